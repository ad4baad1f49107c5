from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.clients.log import PartitionInfo, TopicInfo
from polymq.spark.log import offsets
from polymq.spark.log.offsets import Place, Position, Range

PLACE = Place("orders", 0)
ranges = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=1, max_size=6).map(
    lambda pairs: [Range(Place("t", index), start, start + count, 3, 4) for index, (start, count) in enumerate(pairs)]
)


def info(
    *, number: int = 4, epochs: tuple[tuple[int, int], ...] = ((1, 0), (2, 50)), start: int = 0, readable: int = 100, end: int = 100
) -> PartitionInfo:
    return PartitionInfo(0, number, epochs[-1][0], epochs, start, end, readable)


@given(
    st.dictionaries(
        st.builds(Place, st.text(max_size=3), st.integers(0, 99)), st.builds(Position, st.integers(0), st.integers(0), st.integers(0))
    )
)
def test_positions_survive_the_checkpoint(positions: offsets.Positions) -> None:
    text = json.dumps(offsets.encode(positions))
    assert offsets.decode(json.loads(text)) == positions
    assert json.dumps(offsets.encode(dict(reversed(list(positions.items()))))) == text


def test_the_form_in_the_checkpoint_is_fixed() -> None:
    """Checkpoints outlive versions: this form is read for ever."""
    assert offsets.encode({PLACE: Position(7, 2, 4)}) == {"orders": {"0": {"offset": 7, "epoch": 2, "log": 4}}}


@pytest.mark.parametrize(("offset", "epoch"), [(0, 1), (49, 1), (50, 1), (51, 2), (100, 2)])
def test_a_position_has_the_epoch_of_the_record_before_it(offset: int, epoch: int) -> None:
    assert offsets.position_at(info(), offset) == Position(offset, epoch, 4)


def test_both_ends_of_topics() -> None:
    topics = [TopicInfo("", "orders", (info(start=3),))]
    assert offsets.newest(topics) == {PLACE: Position(100, 2, 4)}
    assert offsets.oldest(topics) == {PLACE: Position(3, 1, 4)}


@pytest.mark.parametrize(
    ("position", "partition", "begin", "words"),
    [
        (Position(60, 2, 4), info(), 60, None),
        (Position(50, 1, 4), info(), 50, None),
        (Position(100, 2, 4), info(), 100, None),
        (Position(20, 1, 4), info(start=20), 20, None),
        (Position(51, 1, 4), info(), 50, "name other records"),
        (Position(90, 1, 4), info(epochs=((1, 0), (2, 70), (3, 60))), 60, "name other records"),
        (Position(90, 1, 4), info(epochs=((5, 40),), start=45), 45, "name other records"),
        (Position(101, 2, 4), info(), 100, "ends at offset 100"),
        (Position(101, 2, 4), info(readable=60), 100, "ends at offset 100"),
        (Position(100, 2, 4), info(readable=60), 100, None),
        (Position(61, 2, 4), info(readable=60), 61, None),
        (Position(10, 1, 4), info(start=20), 20, "10 records were removed"),
        (Position(60, 2, 4), info(number=5, start=2), 2, "created again"),
    ],
)
def test_going_on_notices_what_was_lost(position: Position, partition: PartitionInfo, begin: int, words: str | None) -> None:
    found, loss = offsets.resume(PLACE, position, partition)
    assert found == begin
    assert (loss is None) == (words is None)
    assert words is None or words in str(loss)


@given(ranges, st.integers(1, 400))
def test_a_limit_is_kept_and_used_and_shared(wanted: list[Range], most: int) -> None:
    total = sum(each.count for each in wanted)
    limited = offsets.limit(wanted, most)
    assert sum(each.count for each in limited) == min(total, most)
    for before, after in zip(wanted, limited, strict=True):
        assert (after.place, after.start, after.epoch, after.log) == (before.place, before.start, before.epoch, before.log)
        assert after.start <= after.end <= before.end
        assert after.count >= before.count * min(most, total) // max(total, 1)


@given(ranges, st.integers(1, 12), st.integers(1, 40))
def test_splitting_covers_every_offset_once(wanted: list[Range], parts_min: int, most: int) -> None:
    parts = offsets.split(wanted, parts_min=parts_min, records_max=most)
    covered = [(part.place, n) for part in parts for n in range(part.start, part.end)]
    assert covered == [(each.place, n) for each in wanted for n in range(each.start, each.end)]
    assert all(0 < part.count <= most for part in parts)
    assert all((part.epoch, part.log) == (3, 4) for part in parts)


def test_one_range_is_split_into_the_wanted_parts() -> None:
    parts = offsets.split([Range(PLACE, 0, 100, 1, 4)], parts_min=3, records_max=10**6)
    assert [(part.start, part.end) for part in parts] == [(0, 33), (33, 66), (66, 100)]
