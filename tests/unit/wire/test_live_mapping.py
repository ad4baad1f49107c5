"""Messages of a batch under other names: compared with what one by one would give."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.wire.live import COLUMNS, KEPT, SPARE, UNTAKEN, LiveBatch, LiveMessage
from polymq.wire.live_mapping import gather, note_taken, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable

texts = st.sampled_from((b"", b"a", b"bb", b"a.b", b"a", b"x" * 40))
messages = st.builds(
    lambda subject, head, body, reply: LiveMessage(subject, head + body, reply, len(head), b"account", b"groups"),
    st.sampled_from((b"s", b"s", b"t.u", b"long." * 20)),
    texts,
    texts,
    texts,
)


def numbers(*values: int) -> memoryview:
    return memoryview(array("i", values))


def picks_of(*indexes: int) -> memoryview:
    return numbers(*(each for index in indexes for each in (index, 0)))


def renamed(name: bytes) -> bytes:
    return b"to." + name


def headed(block: bytes) -> bytes:
    return b"<" + block + b">"


@given(st.lists(messages, max_size=12), st.data())
def test_messages_are_rewritten(given_: list[LiveMessage], data: st.DataObject) -> None:
    # A part of a greater batch: positions count from the start of the view, rows do not.
    batch = LiveBatch.of([LiveMessage(b"before", b"x"), *given_]).part(1, len(given_))
    chosen = data.draw(st.lists(st.integers(0, len(given_) - 1), unique=True)) if given_ else []
    count = len(chosen)
    rename: Callable[[bytes], bytes] | None = data.draw(st.sampled_from((None, renamed)))
    subjects = data.draw(st.sampled_from((None, [b"named.%d" % number for number in range(count)]))) if rename is None else None
    replies = data.draw(st.sampled_from((None, [b"r" * (number % 3) for number in range(count)])))
    head: Callable[[bytes], bytes] | None = data.draw(st.sampled_from((None, headed)))
    queues = data.draw(st.sampled_from((None, [b"", b"q", b"q r"])))
    groups = [data.draw(st.integers(0, 2)) for _ in chosen]
    picks = numbers(*(each for pair in zip(chosen, groups, strict=True) for each in pair))
    made = rewrite(batch, picks, marks=KEPT, rename=rename, subjects=subjects, replies=replies, head=head, queues=queues)
    expected = []
    for place, index in enumerate(chosen):
        message = given_[index]
        block, body = message.payload[: message.header_size], message.payload[message.header_size :]
        if head is not None:
            block = head(block)
        subject = renamed(message.subject) if rename is not None else subjects[place] if subjects is not None else message.subject
        reply = message.reply if replies is None else replies[place]
        expected.append(LiveMessage(subject, block + body, reply, len(block), b"", queues[groups[place]] if queues else b""))
    assert made.messages() == expected
    assert [made.rows[COLUMNS * place + SPARE] for place in range(count)] == [KEPT] * count
    assert batch.messages() == given_, "and the old one is as it was"


def test_what_stays_the_same_is_not_copied() -> None:
    batch = LiveBatch.of([LiveMessage(b"a", b"1", b"r"), LiveMessage(b"b", b"2")])
    made = rewrite(batch, picks_of(1, 0), marks=KEPT, queues=[b""])
    assert made.view is batch.view
    assert made.messages() == batch.messages()[::-1]


def test_who_renames_is_asked_once_for_each_name() -> None:
    asked: list[bytes] = []

    def rename(name: bytes) -> bytes:
        asked.append(name)
        return renamed(name)

    batch = LiveBatch.of([LiveMessage(name, b"") for name in (b"a", b"a", b"b", b"a", b"b")])
    made = rewrite(batch, picks_of(*range(5)), marks=0, rename=rename)
    assert asked == [b"a", b"b"]
    assert [each.subject for each in made.messages()] == [b"to.a", b"to.a", b"to.b", b"to.a", b"to.b"]


@pytest.mark.parametrize("index", [-1, 2])
def test_no_message_is_taken_from_beyond_the_batch(index: int) -> None:
    batch = LiveBatch.of([LiveMessage(b"a", b"")] * 3).part(0, 2)
    with pytest.raises(AssertionError):
        rewrite(batch, picks_of(0, index), marks=0)


def test_what_somebody_has_taken_is_not_untaken() -> None:
    batch = LiveBatch.of([LiveMessage(b"a", b"")] * 4, marks=UNTAKEN | KEPT)
    picks = picks_of(1, 3)
    made = rewrite(batch, picks, marks=0)
    made.rows[SPARE] |= UNTAKEN
    note_taken(batch, picks, made)
    assert [batch.rows[COLUMNS * index + SPARE] for index in range(4)] == [UNTAKEN | KEPT, UNTAKEN | KEPT, UNTAKEN | KEPT, KEPT]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=30), st.lists(st.integers(0, 3), min_size=8, max_size=8))
def test_pairs_are_sorted_by_whose_they_are(pairs: list[tuple[int, int]], owners: list[int]) -> None:
    pairs.sort(key=lambda pair: pair[0])
    queues = [b"", b"q", b"", b"r", b"q", b"s", b"", b"r"]
    expected: dict[int, dict[int, set[bytes]]] = {}
    for index, tag in pairs:
        expected.setdefault(owners[tag], {}).setdefault(index, set()).update({queues[tag]} - {b""})
    given_ = numbers(*(each for pair in pairs for each in pair), 99, 99)
    found: dict[int, dict[int, set[bytes]]] = {}
    for owner, picks, names in gather(given_, len(pairs), numbers(*owners), queues):
        assert picks.tolist()[::2] == sorted(set(picks.tolist()[::2])), "each once, in order"
        found[owner] = {picks[at]: set(names[picks[at + 1]].split()) for at in range(0, len(picks), 2)}
        assert all(len(names[picks[at + 1]].split()) == len(set(names[picks[at + 1]].split())) for at in range(0, len(picks), 2))
    assert found == expected
    assert queues == [b"", b"q", b"", b"r", b"q", b"s", b"", b"r"]
