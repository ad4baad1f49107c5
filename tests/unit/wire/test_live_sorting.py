from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.wire.live import LiveBatch, LiveMessage
from polymq.wire.live_sorting import Sorter, has_negative_tag


def pairs_of(*numbers: tuple[int, int]) -> memoryview:
    return memoryview(array("i", [number for pair in numbers for number in pair]))


def groups_of(sorter: Sorter, batch: LiveBatch, pairs: memoryview, count: int) -> list[tuple[int, list[bytes], int]]:
    """Each tag with its payloads, and how many have more than a body."""
    found = []
    for tag, first, size, size_bytes, rich in sorter.sort(batch, pairs, count):
        bodies = sorter.batch(batch, first, size, size_bytes).bodies()
        messages = batch.messages()
        assert bodies == [messages[index].payload for index in sorter.places()[first : first + size]]
        assert size_bytes == sum(map(len, bodies))
        found.append((tag, bodies, rich))
    return found


def test_messages_of_one_topic_lie_side_by_side() -> None:
    batch = LiveBatch.of(
        [
            LiveMessage(b"a", b"1"),
            LiveMessage(b"b", b"h22", header_size=1),
            LiveMessage(b"c", b"333"),
            LiveMessage(b"a", b"4", b"reply"),
            LiveMessage(b"b", b""),
        ]
    )
    sorter = Sorter()
    pairs = pairs_of((0, 7), (1, 500), (3, 7), (4, 500))
    assert groups_of(sorter, batch, pairs, 4) == [(7, [b"1", b"4"], 1), (500, [b"h22", b""], 1)]
    assert groups_of(sorter, batch, pairs, 1) == [(7, [b"1"], 0)]


@given(st.lists(st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=5)), min_size=1, max_size=40), min_size=1, max_size=4))
def test_sorting_keeps_the_order_within_each_tag(batches: list[list[tuple[int, bytes]]]) -> None:
    sorter = Sorter()
    for each in batches:
        batch = LiveBatch.of([LiveMessage(b"s", body) for _tag, body in each])
        pairs = pairs_of(*((index, tag) for index, (tag, _body) in enumerate(each)))
        expected: dict[int, list[bytes]] = {}
        for tag, body in each:
            expected.setdefault(tag, []).append(body)
        assert groups_of(sorter, batch, pairs, len(each)) == [(tag, bodies, 0) for tag, bodies in expected.items()]


def test_room_for_many_is_given_back() -> None:
    sorter = Sorter()
    count = limits.LIVE_SORTED_KEPT_MAX
    batch = LiveBatch.of([LiveMessage(b"s", b"%d" % number) for number in range(count)])
    for size in (count, 1, count):
        pairs = pairs_of(*((number, number % 3) for number in range(size)))
        assert [(tag, len(bodies)) for tag, bodies, _ in groups_of(sorter, batch, pairs, size)] == [
            (tag, len(range(tag, size, 3))) for tag in range(min(3, size))
        ]


def test_tags_are_not_negative() -> None:
    batch = LiveBatch.of([LiveMessage(b"s", b"x")])
    pairs = pairs_of((0, -1))
    assert has_negative_tag(pairs, 1)
    assert not has_negative_tag(pairs, 0)
    assert not has_negative_tag(pairs_of((0, 0), (1, 5)), 2)
    with pytest.raises(AssertionError):
        Sorter().sort(batch, pairs, 1)
