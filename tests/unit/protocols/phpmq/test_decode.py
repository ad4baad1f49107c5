from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.phpmq_limits import (
    ID_SIZE_BYTES_MAX,
    NUMBER_SIZE_BYTES_MAX,
    QUEUE_SIZE_BYTES_MAX,
    RUN_SIZE_BYTES_MAX,
    TTL_S_MAX,
)
from polymq.protocols.phpmq import decode
from polymq.protocols.phpmq.decode import Decoder
from polymq.protocols.phpmq.events import Consume, Publish, Settle, Violation
from polymq.protocols.phpmq.ids import id_text
from polymq.protocols.phpmq.problems import Problem
from polymq.protocols.phpmq.settings import PhpmqSettings
from tests.unit.protocols.phpmq import streams
from tests.unit.protocols.phpmq.streams import (
    SALT,
    SETTINGS,
    acknowledge,
    consume,
    dead_letter,
    message,
    packet,
    requeue,
    run,
    send,
)

if TYPE_CHECKING:
    from types import ModuleType

plain = streams.interpreted("polymq.protocols.phpmq.decode")
SMALL = PhpmqSettings(salt=SALT, content_size_bytes_max=40, ttl_s_max=1000)


def test_a_run_of_messages_for_one_queue_is_one_event() -> None:
    stream = send(b"q", b"a", 5) + send(b"q", b"", 0) + send(b"q", b"ccc", 7) + send(b"r", b"d", 0)
    view = memoryview(stream)
    first, second = Decoder(SETTINGS).feed(view)[0]
    assert isinstance(first, Publish)
    assert (first.queue, first.batch.bodies(), first.legacy) == (b"q", [b"a", b"", b"ccc"], False)
    assert first.ttls is not None
    assert list(first.ttls[:3]) == [5, 0, 7]
    assert isinstance(second, Publish)
    assert (second.queue, second.ttls) == (b"r", None)


def test_a_run_is_of_one_dialect() -> None:
    events, _ = Decoder(SETTINGS).feed(memoryview(send(b"q", b"a") + send(b"q", b"b") + send(b"q", b"c", 0)))
    assert [(event.batch.count, event.legacy) for event in events if isinstance(event, Publish)] == [(2, True), (1, False)]


def test_a_run_ends_before_it_gets_too_large() -> None:
    half = b"x" * (RUN_SIZE_BYTES_MAX // 2 + 1)
    events, _ = Decoder(SETTINGS).feed(memoryview(send(b"q", half) * 3 + send(b"q", b"y" * (RUN_SIZE_BYTES_MAX + 1)) + send(b"q", b"z")))
    sizes = [event.batch.size_bytes for event in events if isinstance(event, Publish)]
    assert sizes == [len(half)] * 3 + [RUN_SIZE_BYTES_MAX + 1, 1]


def test_a_run_of_settles_is_one_event_and_counts_what_is_not_ours() -> None:
    ids = [id_text(number, SALT) for number in (3, 1 << 62, 0)]
    stream = b"".join(
        acknowledge(b"q", each) for each in [ids[0], b"f" * 32, ids[1], b"short", id_text(9, SALT + 1), ids[2], ids[0].upper()]
    )
    (event,) = Decoder(SETTINGS).feed(memoryview(stream))[0]
    assert isinstance(event, Settle)
    assert event.queue == b"q"
    assert list(event.ids[event.first : event.first + event.count]) == [3, 1 << 62, 0]
    assert event.foreign == 3 + (ids[0].upper() != ids[0])


def test_long_runs_keep_what_came_before_the_arrays_grew() -> None:
    stream = b"".join(send(b"q", b"%d" % index, index % 3) for index in range(5000))
    stream += b"".join(acknowledge(b"q", id_text(index, SALT)) for index in range(5000))
    found = run(stream)
    assert found[:5000] == [("send", b"q", b"%d" % index, index % 3, False) for index in range(5000)]
    assert found[5000:] == [("settle", b"q", index) for index in range(5000)]
    assert run(stream, module=plain) == found


@pytest.mark.parametrize("module", [decode, plain])
def test_it_stops_behind_so_many_events(module: ModuleType) -> None:
    stream = b"".join(send(b"q%d" % (index // 2), b"%d" % index) for index in range(20)) + b"H01"
    decoder = module.Decoder(SETTINGS)
    decoder.events_max = 3
    found, at, counts = [], 0, []
    while True:
        events, consumed = decoder.feed(memoryview(stream)[at:])
        found += [(event.queue, event.batch.bodies()) for event in events]
        at += consumed
        counts.append(len(events))
        if decoder.need:
            break
        assert not decoder.partial
    assert at == len(stream) - 3
    assert (decoder.need, decoder.partial) == (8, True)
    assert b"".join(body for _, bodies in found for body in bodies) == b"".join(b"%d" % index for index in range(20))
    assert [queue for queue, _ in found] == sorted(queue for queue, _ in found)
    assert max(counts) == 4


def test_packets_come_in_any_order() -> None:
    stream = message(1, (5, b"9"), (2, b"body"), (1, b"q")) + message(2, (4, b"3"), (1, b"q"))
    stream += message(5, (3, id_text(7, SALT)), (5, b"0"), (1, b"q")) + message(6, (3, id_text(8, SALT)), (1, b"q"))
    assert run(stream) == [("send", b"q", b"body", 9, False), ("consume", b"q", 3), ("requeue", b"q", 7, 0), ("remove", b"q", 8)]


def test_names_and_contents_may_be_any_bytes() -> None:
    everything = bytes(range(256))
    assert run(send(everything[:255], everything * 3, 1)) == [("send", everything[:255], everything * 3, 1, False)]
    assert run(send(b"", b"")) == [("send", b"", b"", 0, True)]


def test_numbers_may_have_zeros_in_front() -> None:
    assert run(consume(b"q", "0005") + send(b"q", b"x", "00")) == [("consume", b"q", 5), ("send", b"q", b"x", 0, False)]


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (b"GET / HT", "header"),
        (b"\nP010000", "header"),
        (b"h0100102", "header"),
        (b"H0x00102", "digits"),
        (b"H01 0102", "digits"),
        (b"H01001-2", "digits"),
        (b"H0000102", "version"),
        (b"H0200102", "version"),
        (b"H0100002", "type"),
        (b"H0100304", "type"),
        (b"H0100702", "type"),
        (b"H0199902", "type"),
        (b"H0100100", "count"),
        (b"H0100101", "count"),
        (b"H0100104", "count"),
        (b"H0100199", "count"),
        (b"H0100203", "count"),
        (b"H0100403", "count"),
        (b"H0100502", "count"),
        (b"H0100603", "count"),
        (b"H0100102" + packet(1, b"q")[1:] + b"0", "packet"),
        (b"H0100102" + b"\n" + packet(1, b"q"), "packet"),
        (b"H0100102P0x" + b"0" * 29, "digits"),
        (b"H0100102P01" + b"0" * 28 + b"x", "digits"),
        (b"H0100102P01" + b"-" + b"0" * 27 + b"1", "digits"),
        (message(1, (1, b"q"), (3, b"i")), "packet-type"),
        (message(1, (1, b"q"), (5, b"1")), "packet-type"),
        (message(2, (1, b"q"), (2, b"1")), "packet-type"),
        (message(4, (1, b"q"), (0, b"1")), "packet-type"),
        (message(4, (1, b"q"), (99, b"1")), "packet-type"),
        (message(1, (1, b"q"), (1, b"q")), "duplicate"),
        (message(1, (1, b"q"), (2, b"x"), (2, b"x")), "duplicate"),
        (b"H0100102P01" + b"%029d" % (QUEUE_SIZE_BYTES_MAX + 1), "length"),
        (b"H0100402P03" + b"%029d" % (ID_SIZE_BYTES_MAX + 1), "length"),
        (b"H0100202P04" + b"%029d" % (NUMBER_SIZE_BYTES_MAX + 1), "length"),
        (b"H0100102P02" + b"%029d" % (SETTINGS.content_size_bytes_max + 1), "length"),
        (b"H0100102P02" + b"9" * 29, "length"),
        (b"H0100102P02" + b"1" + b"0" * 28, "length"),
        (consume(b"q", -1), "number"),
        (consume(b"q", ""), "number"),
        (consume(b"q", "5 "), "number"),
        (consume(b"q", "+5"), "number"),
        (consume(b"q", "five"), "number"),
        (send(b"q", b"x", -1), "number"),
        (send(b"q", b"x", ""), "number"),
        (send(b"q", b"x", "1.5"), "number"),
        (send(b"q", b"x", TTL_S_MAX + 1), "number"),
        (requeue(b"q", b"i", "9" * 19), "number"),
        (requeue(b"q", b"i", -1), "number"),
    ],
)
def test_what_is_wrong_ends_the_stream_behind_everything_before(stream: bytes, problem: str) -> None:
    before = [("send", b"q", b"x", 0, True), ("consume", b"q", 5)]
    whole = send(b"q", b"x") + consume(b"q", 5) + stream + send(b"q", b"never")
    for module in (decode, plain):
        for cuts in ((), range(len(whole))):
            *found, last = run(whole, cuts, module=module)
            assert found == before
            assert last[:2] == ("violation", problem)


def test_nothing_is_read_behind_what_is_wrong() -> None:
    decoder = Decoder(SETTINGS)
    (event,), consumed = decoder.feed(memoryview(b"H0100902garbage"))
    assert isinstance(event, Violation)
    assert (event.problem, consumed, decoder.partial) == (Problem.TYPE, 15, False)
    assert decoder.feed(memoryview(send(b"q", b"x"))) == ([], len(send(b"q", b"x")))


def test_need_is_never_more_than_one_message_has() -> None:
    stream = send(b"queue", b"x" * 30, 77)
    for size in range(len(stream)):
        decoder = Decoder(SETTINGS)
        assert decoder.feed(memoryview(stream[:size])) == ([], 0)
        assert size < decoder.need <= len(stream)
        assert decoder.partial is (size > 0)


def test_the_largest_numbers() -> None:
    (event,), _ = Decoder(SETTINGS).feed(memoryview(consume(b"q", "9" * NUMBER_SIZE_BYTES_MAX)))
    assert isinstance(event, Consume)
    assert event.count > 1 << 61
    assert run(send(b"q", b"x", TTL_S_MAX)) == [("send", b"q", b"x", TTL_S_MAX, False)]


queues = st.sampled_from([b"q", b"queue", b"r", b"\xff\x00"])
contents = st.binary(max_size=41)
ids = st.integers(0, (1 << 63) - 1).map(lambda number: id_text(number, SALT)) | st.binary(max_size=34)
numbers = st.integers(-1, 1001) | st.sampled_from(["", "x", "9" * 19, "007"])
sound = st.one_of(
    st.builds(send, queues, contents, st.none() | numbers),
    st.builds(lambda queue, body, count: send(queue, body, 3) * count, queues, st.binary(max_size=40), st.integers(1, 6)),
    st.builds(consume, queues, numbers),
    st.builds(lambda queue, each: acknowledge(queue, each) * 2, queues, ids),
    st.builds(requeue, queues, ids, numbers),
    st.builds(dead_letter, queues, ids),
)
rotten = st.one_of(
    st.builds(
        lambda kind, packets: message(kind, *packets), st.integers(0, 9), st.lists(st.tuples(st.integers(0, 6), contents), max_size=4)
    ),
    st.binary(max_size=40),
)
any_streams = st.lists(st.one_of(sound, sound, sound, rotten), max_size=10).map(b"".join)


@settings(max_examples=300)
@given(any_streams, st.data())
def test_any_cut_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert run(stream, cuts, settings=SMALL) == run(stream, settings=SMALL)


@settings(max_examples=60)
@given(any_streams)
def test_byte_by_byte_gives_the_same_events(stream: bytes) -> None:
    assert run(stream, range(len(stream)), settings=SMALL) == run(stream, settings=SMALL)


@settings(max_examples=300)
@given(any_streams, st.data())
def test_both_builds_give_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=3))
    assert run(stream, cuts, settings=SMALL, module=plain) == run(stream, cuts, settings=SMALL)
