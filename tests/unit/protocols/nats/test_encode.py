from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.protocols.nats import encode, problems
from polymq.protocols.nats.commands import PeerKind
from polymq.protocols.nats.settings import NatsSettings
from polymq.wire.live import LiveBatch, LiveMessage
from tests.unit.protocols.nats.streams import run
from tests.unit.protocols.nsq.streams import interpreted

if TYPE_CHECKING:
    from types import ModuleType

plain = interpreted("polymq.protocols.nats.encode")
BUILDS = (encode, plain)
ACK = b"$JS.ACK.stream.consumer.1.2.3.1700000000000000000.0"
GUARD = b"\xaa" * 7

names = st.sampled_from([b"a", b"foo.bar", b"_INBOX." + b"x" * 40, b"$JS.ACK.x", ACK, ACK + b"@s1.a", ACK + b"@"])
sids = st.one_of(st.integers(1, 10**6).map(b"%d".__mod__), st.binary(min_size=1, max_size=30).map(lambda raw: raw.hex().encode()))
payloads = st.one_of(st.binary(max_size=30), st.sampled_from([b"x" * size for size in (9, 10, 99, 100, 999, 1000, 9999, 10_000)]))


@st.composite
def messages(draw: st.DrawFn, *, routed: bool) -> LiveMessage:
    payload = draw(payloads)
    return LiveMessage(
        subject=draw(names),
        payload=payload,
        reply=draw(st.one_of(st.just(b""), names)),
        header_size=draw(st.integers(0, min(12, len(payload)))),
        account=draw(st.sampled_from([b"$G", b"ACC"])) if routed else b"",
    )


def pairs_of(pairs: list[tuple[int, int]]) -> memoryview:
    """More room than pairs, as the core has it."""
    return memoryview(array("i", [number for pair in [*pairs, (0, 0)] for number in pair]))


def read_messages(data: bytes) -> list[tuple[bytes, bytes, bytes, bytes, bytes]]:
    """Read what a client gets, without any code of ours: subject, sid, reply, headers, payload."""
    found = []
    while data:
        line, _, data = data.partition(b"\r\n")
        verb, subject, sid, *rest = line.split(b" ")
        size, header_size = int(rest[-1]), int(rest[-2]) if verb == b"HMSG" else 0
        reply = rest[:-2] if verb == b"HMSG" else rest[:-1]
        assert verb in {b"MSG", b"HMSG"}
        assert len(reply) <= 1
        assert (verb == b"HMSG") == (header_size > 0)
        assert data[size : size + 2] == b"\r\n"
        found.append((subject, sid, b"".join(reply), data[:header_size], data[header_size:size]))
        data = data[size + 2 :]
    return found


def encoded(module: ModuleType, batch: LiveBatch, pairs: list[tuple[int, bytes]], *, headers: bool, at: int = 0) -> bytes:
    """Write pairs of message and sid; nothing outside the room is touched."""
    table = module.SidTable()
    tags = {sid: table.add(sid) for _, sid in pairs}
    numbers = pairs_of([(index, tags[sid]) for index, sid in pairs])
    room = module.messages_size_bytes(batch, numbers, len(pairs), table)
    target = bytearray(b"\xaa" * at + bytes(room) + GUARD)
    end = module.encode_messages(target, at, batch, numbers, len(pairs), table, headers=headers)
    assert target[:at] == b"\xaa" * at
    assert target[at + room :] == GUARD
    assert at <= end <= at + room
    return bytes(target[at:end])


@given(st.lists(messages(routed=False), min_size=1, max_size=6), st.booleans(), st.integers(0, 6), st.data())
def test_messages_behind_their_confirmations(given_: list[LiveMessage], headers: bool, said: int, data: st.DataObject) -> None:
    batch = LiveBatch.of(given_)
    some = st.lists(st.tuples(st.integers(0, len(given_) - 1), st.sampled_from((b"1", b"22", b"x" * 20))), max_size=8).map(sorted)
    pairs = data.draw(some)
    expected, told = b"", said
    for index, sid in pairs:
        expected += encode.OK * max(0, index + 1 - told) + encoded(encode, batch, [(index, sid)], headers=headers)
        told = max(told, index + 1)
    for module in BUILDS:
        table = module.SidTable()
        tags = {sid: table.add(sid) for _, sid in pairs}
        numbers = pairs_of([(index, tags[sid]) for index, sid in pairs])
        room = module.messages_size_bytes(batch, numbers, len(pairs), table) + len(encode.OK) * (told - said)
        target = bytearray(b"\xaa" + bytes(room) + GUARD)
        end = module.encode_confirmed(target, 1, batch, numbers, len(pairs), table, headers=headers, said=said)
        assert bytes(target[1:end]) == expected
        assert target[1 + room :] == GUARD
        if room:
            with pytest.raises(AssertionError):
                module.encode_confirmed(bytearray(room - 1), 0, batch, numbers, len(pairs), table, headers=headers, said=said)


@settings(max_examples=200)
@given(st.lists(messages(routed=False), min_size=1, max_size=5), st.booleans(), st.integers(0, 3), st.data())
def test_messages_for_clients(given_: list[LiveMessage], headers: bool, at: int, data: st.DataObject) -> None:
    batch = LiveBatch.of(given_)
    pairs = data.draw(st.lists(st.tuples(st.integers(0, len(given_) - 1), sids), max_size=8))
    written = [encoded(module, batch, pairs, headers=headers, at=at) for module in BUILDS]
    assert written[0] == written[1]
    expected = []
    for index, sid in pairs:
        each = given_[index]
        header = each.payload[: each.header_size] if headers else b""
        expected.append((each.subject, sid, each.reply, header, each.payload[each.header_size :]))
    assert read_messages(written[0]) == expected


def split_acknowledgement(reply: bytes) -> tuple[bytes, bytes] | None:
    """Take apart the reply of a message that JetStream sends through another server: its true subject and reply.

    `$JS.ACK.<stream>.<consumer>.<5 numbers>@<subject>`; names may have an @ as well, so the first one behind eight dots
    counts. None: the message is what it says.
    """
    if not reply.startswith(b"$JS.ACK."):
        return None
    dots = 0
    for at, byte in enumerate(reply[:-1]):
        if byte == ord("."):
            dots += 1
        elif byte == ord("@") and dots >= 8:
            return reply[at + 1 :], reply[:at]
    return None


@pytest.mark.parametrize(
    ("reply", "parts"),
    [
        (ACK + b"@s1.a", (b"s1.a", ACK)),
        (ACK + b"@s1@a", (b"s1@a", ACK)),
        (ACK + b"@", None),
        (ACK, None),
        (b"$JS.ACK.str@eam.con@sumer.1.2.3.4.0@x", (b"x", b"$JS.ACK.str@eam.con@sumer.1.2.3.4.0")),
        (b"$JS.ACK.s.c.1.2.3@x", None),
        (b"$JS.ACKs.s.c.1.2.3.4.5@x", None),
        (b"_INBOX.a.b.c.d.e.f.g.h.i@x", None),
        (b"", None),
    ],
)
def test_what_messages_are_compared_with(reply: bytes, parts: tuple[bytes, bytes] | None) -> None:
    assert split_acknowledgement(reply) == parts


@given(st.lists(messages(routed=True), min_size=1, max_size=5), st.booleans())
def test_messages_of_routes_for_clients(given_: list[LiveMessage], headers: bool) -> None:
    batch = LiveBatch.of(given_)
    pairs = [(index, b"7") for index in range(len(given_))]
    written = [encoded(module, batch, pairs, headers=headers) for module in BUILDS]
    assert written[0] == written[1]
    shown = [split_acknowledgement(each.reply) or (each.subject, each.reply) for each in given_]
    assert [(subject, reply) for subject, _, reply, _, _ in read_messages(written[0])] == shown


@pytest.mark.parametrize("module", BUILDS)
def test_the_lines_byte_by_byte(module: ModuleType) -> None:
    batch = LiveBatch.of(
        [LiveMessage(b"foo", b"hello"), LiveMessage(b"bar", b"HDhello", reply=b"r", header_size=2), LiveMessage(b"e", b"")]
    )
    pairs = [(0, b"1"), (1, b"22"), (2, b"sid-of-15-bytes")]
    assert encoded(module, batch, pairs, headers=True) == (
        b"MSG foo 1 5\r\nhello\r\nHMSG bar 22 r 2 7\r\nHDhello\r\nMSG e sid-of-15-bytes 0\r\n\r\n"
    )
    assert (
        encoded(module, batch, pairs, headers=False)
        == b"MSG foo 1 5\r\nhello\r\nMSG bar 22 r 5\r\nhello\r\nMSG e sid-of-15-bytes 0\r\n\r\n"
    )


@pytest.mark.parametrize("module", BUILDS)
@pytest.mark.parametrize(("at", "missing"), [(-1, 0), (0, 1)])
def test_too_little_room_is_our_bug(module: Any, at: int, missing: int) -> None:
    batch = LiveBatch.of([LiveMessage(b"a", b"x", account=b"$G")])
    table = module.SidTable()
    pairs = pairs_of([(0, table.add(b"1"))])
    with pytest.raises(AssertionError):
        module.encode_messages(
            bytearray(module.messages_size_bytes(batch, pairs, 1, table) - missing), at, batch, pairs, 1, table, headers=True
        )
    with pytest.raises(AssertionError):
        module.encode_messages(bytearray(1000), 0, batch, pairs, 3, table, headers=True)
    with pytest.raises(AssertionError):
        module.encode_routed(
            bytearray(module.routed_size_bytes(batch, pairs, 1, b"$G", {}) - missing), at, batch, pairs, 1, b"$G", {}, headers=True
        )


@pytest.mark.parametrize("module", BUILDS)
def test_the_room_is_enough_for_the_largest_numbers(module: ModuleType) -> None:
    size = 1_000_000
    batch = LiveBatch.of([LiveMessage(b"s", bytes(size), reply=b"r", header_size=size)])
    written = encoded(module, batch, [(0, b"sid-of-14-byte")] * 3, headers=True)
    assert written.startswith(b"HMSG s sid-of-14-byte r 1000000 1000000\r\n\0")
    assert len(written) == 3 * (len(b"HMSG s sid-of-14-byte r 1000000 1000000\r\n\r\n") + size)
    assert routed(module, batch, [0], b"$G", {0: [b"q"]}, headers=True).startswith(b"HMSG $G s + r q 1000000 1000000\r\n\0")
    for own, named in ((b"A" * 200, b""), (b"", b"A" * 200)):
        batch = LiveBatch.of([LiveMessage(b"s", b"", account=named)])
        assert routed(module, batch, [0] * 3, own, {}, headers=True) == b"RMSG %b s 0\r\n\r\n" % (b"A" * 200) * 3
    # And for a message of nothing, behind which the rest of the sid's slot is written.
    assert encoded(module, LiveBatch.of([LiveMessage(b"s", b"")]), [(0, b"1")], headers=True) == b"MSG s 1 0\r\n\r\n"


# --- Sids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", BUILDS)
@given(st.lists(st.one_of(sids, st.integers(0, 20)), max_size=40))
def test_sids_by_tag(module: Any, steps: list[bytes | int]) -> None:
    table = module.SidTable()
    model: dict[int, bytes] = {}
    most = 0
    for step in steps:
        if isinstance(step, bytes):
            tag = table.add(step)
            assert tag not in model
            model[tag] = step
            most = max(most, len(model))
            assert tag < most
        elif model:
            tag = sorted(model)[step % len(model)]
            table.remove(tag)
            del model[tag]
        assert len(table) == len(model)
        assert {tag: table.sid(tag) for tag in model} == model


@pytest.mark.parametrize("module", BUILDS)
def test_a_long_sid_is_forgotten_as_a_whole(module: Any) -> None:
    batch = LiveBatch.of([LiveMessage(b"a", b"x")])
    table = module.SidTable()
    tag = table.add(b"x" * 500)
    long = module.messages_size_bytes(batch, pairs_of([(0, tag)]), 1, table)
    table.remove(tag)
    assert table.add(b"1") == tag
    assert long - module.messages_size_bytes(batch, pairs_of([(0, tag)]), 1, table) == 500


def test_an_unknown_tag_is_our_bug() -> None:
    table = encode.SidTable()
    for tag in (-1, 0):
        with pytest.raises(AssertionError):
            table.sid(tag)
        with pytest.raises(AssertionError):
            table.remove(tag)


# --- Routes -----------------------------------------------------------------------------------------------------------


def routed(
    module: ModuleType, batch: LiveBatch, indexes: list[int], account: bytes, queues: dict[int, list[bytes]], *, headers: bool, at: int = 0
) -> bytes:
    numbers = pairs_of([(index, 0) for index in indexes])
    room = module.routed_size_bytes(batch, numbers, len(indexes), account, queues)
    target = bytearray(b"\xaa" * at + bytes(room) + GUARD)
    end = module.encode_routed(target, at, batch, numbers, len(indexes), account, queues, headers=headers)
    assert target[:at] == b"\xaa" * at
    assert target[at + room :] == GUARD
    assert at <= end <= at + room
    return bytes(target[at:end])


@settings(max_examples=200)
@given(
    st.lists(st.one_of(messages(routed=False), messages(routed=True)), min_size=1, max_size=6),
    st.dictionaries(st.integers(0, 5), st.lists(st.sampled_from([b"q", b"group-2", b"+"]), max_size=3)),
    st.booleans(),
    st.integers(0, 3),
)
def test_a_route_reads_what_is_written_for_it(given_: list[LiveMessage], queues: dict[int, list[bytes]], headers: bool, at: int) -> None:
    batch = LiveBatch.of(given_)
    indexes = list(range(len(given_)))
    written = [routed(module, batch, indexes, b"OWN", queues, headers=headers, at=at) for module in BUILDS]
    assert written[0] == written[1]
    expected = [
        (
            "MSG",
            each.account or b"OWN",
            each.subject,
            each.reply,
            b" ".join(queues.get(index, [])),
            each.payload[: each.header_size] if headers else b"",
            each.payload[each.header_size :],
        )
        for index, each in enumerate(given_)
    ]
    assert run(written[0], kind=PeerKind.ROUTE, settings=NatsSettings()) == expected


@pytest.mark.parametrize("module", BUILDS)
def test_routed_lines_byte_by_byte(module: ModuleType) -> None:
    # The forms that nats-server 2.9.10 sent for the same publishes.
    batch = LiveBatch.of(
        [
            LiveMessage(b"foo", b"hello"),
            LiveMessage(b"foo", b"hello2", reply=b"my.reply"),
            LiveMessage(b"foo", b"NATS/1.0\r\nK: v\r\n\r\nbody", header_size=18),
            LiveMessage(b"foo", b"q-no-reply"),
            LiveMessage(b"foo", b"q-reply", reply=b"rr"),
            LiveMessage(b"foo", b"NATS/1.0\r\nK: v\r\n\r\nq-reply", reply=b"rr", header_size=18),
        ]
    )
    queues = {3: [b"q1", b"q2"], 4: [b"q1", b"q2"], 5: [b"q1"], 0: []}
    assert routed(module, batch, [0, 1, 2], b"$G", queues, headers=True) == (
        b"RMSG $G foo 5\r\nhello\r\nRMSG $G foo my.reply 6\r\nhello2\r\nHMSG $G foo 18 22\r\nNATS/1.0\r\nK: v\r\n\r\nbody\r\n"
    )
    assert routed(module, batch, [3, 4, 5], b"$G", queues, headers=True) == (
        b"RMSG $G foo | q1 q2 10\r\nq-no-reply\r\n"
        b"RMSG $G foo + rr q1 q2 7\r\nq-reply\r\n"
        b"HMSG $G foo + rr q1 18 25\r\nNATS/1.0\r\nK: v\r\n\r\nq-reply\r\n"
    )
    assert routed(module, batch, [2, 5], b"$G", queues, headers=False) == b"RMSG $G foo 4\r\nbody\r\nRMSG $G foo + rr q1 7\r\nq-reply\r\n"


# --- Lines ------------------------------------------------------------------------------------------------------------


def test_single_lines() -> None:
    assert (encode.OK, encode.PING, encode.PONG) == (b"+OK\r\n", b"PING\r\n", b"PONG\r\n")
    assert encode.error_line(problems.UNKNOWN_OPERATION) == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert encode.remote_subscribe(b"$G", b"foo") == b"RS+ $G foo\r\n"
    assert encode.remote_subscribe(b"$G", b"foo", b"q1", 3) == b"RS+ $G foo q1 3\r\n"
    assert encode.remote_unsubscribe(b"$G", b"foo") == b"RS- $G foo\r\n"
    assert encode.remote_unsubscribe(b"$G", b"foo", b"q1") == b"RS- $G foo q1\r\n"


@pytest.mark.parametrize("count", [0, 1, 128, 129, 5000])
def test_answers_to_a_run(count: int) -> None:
    assert encode.ok_lines(count) == encode.OK * count


def test_nobody_listens() -> None:
    # As nats-server 2.14.5 writes it.
    assert encode.no_responders(b"_INBOX.r", b"12", b"svc") == (b"HMSG _INBOX.r 12 35 35\r\nNATS/1.0 503\r\nNats-Subject: svc\r\n\r\n\r\n")
    ((subject, sid, reply, header, payload),) = read_messages(encode.no_responders(b"r", b"1", b"a.b"))
    assert (subject, sid, reply, len(header), payload) == (b"r", b"1", b"", 35, b"")


@pytest.mark.parametrize("module", BUILDS)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=4),
    st.lists(st.sampled_from([b"1", b"2", b"12", b"x" * 15]), min_size=6, max_size=6),
)
def test_who_gets_the_same_bytes(module: Any, pairs: list[tuple[int, int]], names: list[bytes]) -> None:
    tables = module.SidTable(), module.SidTable()
    for place, name in enumerate(names):
        tables[place % 2].add(name)
    others = [(index, (tag + 1) % 3) for index, tag in pairs]
    for these in (pairs, others, [(index + 1, tag) for index, tag in pairs], [*pairs[1:], *pairs[:1]]):
        same = module.same_messages(pairs_of(pairs), tables[0], pairs_of(these), tables[1], len(pairs))
        told = [[(index, table.sid(tag)) for index, tag in some] for some, table in ((pairs, tables[0]), (these, tables[1]))]
        long_sids = any(len(sid) > 14 for _, sid in told[0])
        assert same is (told[0] == told[1] and not long_sids)
        assert module.same_pairs(pairs_of(pairs), pairs_of(these), len(pairs)) is (pairs == these)


def test_each_subject_is_asked_about_once_as_long_as_it_is_allowed() -> None:
    batch = LiveBatch.of([LiveMessage(name, b"") for name in (b"a", b"a", b"b", b"a", b"no", b"a", b"no", b"c", b"c")])
    asked: list[bytes] = []

    def may_publish(name: bytes) -> bool:
        asked.append(name)
        return name != b"no"

    assert [encode.next_forbidden(batch, first, may_publish) for first in (0, 5, 7, 9)] == [4, 6, 9, 9]
    assert asked == [b"a", b"b", b"no", b"a", b"no", b"c"]
