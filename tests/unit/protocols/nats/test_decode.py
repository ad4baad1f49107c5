from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import NATS_EVENTS_PER_FEED_MAX
from polymq.protocols.nats import decode, events, problems
from polymq.protocols.nats.commands import PeerKind
from polymq.protocols.nats.decode import Decoder
from polymq.protocols.nats.problems import CloseReason
from polymq.protocols.nats.rows import CAPACITY_KEPT_MAX
from polymq.protocols.nats.settings import NatsSettings
from polymq.protocols.nats.subjects import is_valid_literal
from polymq.wire import live
from tests.unit.protocols.nats.streams import Facts, Pump, hpub, pub, run, three_ways
from tests.unit.protocols.nsq.streams import interpreted

if TYPE_CHECKING:
    from types import ModuleType

plain = interpreted("polymq.protocols.nats.decode")
SMALL = NatsSettings(payload_size_bytes_max=100, line_size_bytes_max=40, routed_payload_size_bytes_max=200)
ROUTE = PeerKind.ROUTE
UNKNOWN = ("Violation", problems.UNKNOWN_OPERATION, CloseReason.PROTOCOL_VIOLATION)
TOO_LONG = ("Violation", problems.LINE_TOO_LONG, CloseReason.LINE_TOO_LONG)
TOO_LARGE = ("Violation", problems.PAYLOAD_TOO_LARGE, CloseReason.PAYLOAD_TOO_LARGE)
SILENT = ("SilentClose", CloseReason.PROTOCOL_VIOLATION)


def message(
    subject: bytes, payload: bytes, reply: bytes = b"", header: bytes = b"", account: bytes = b"", queues: bytes = b""
) -> tuple[object, ...]:
    return ("MSG", account, subject, reply, queues, header, payload)


def feed(stream: bytes, kind: PeerKind = PeerKind.CLIENT) -> tuple[list[events.Event], int, Decoder]:
    decoder = Decoder(NatsSettings(), kind)
    decoder.headers = True
    found, consumed = decoder.feed(memoryview(stream))
    return found, consumed, decoder


# --- Runs -------------------------------------------------------------------------------------------------------------


def test_a_run_of_messages_is_one_event_whatever_their_subjects() -> None:
    parts = [pub(b"a.%d" % (number % 7), b"x" * number, b"r" if number % 3 else b"") for number in range(300)]
    parts.insert(20, hpub(b"h", b"NATS/1.0\r\n\r\n", b"body"))
    found, consumed, decoder = feed(b"".join(parts))
    (event,) = found
    assert isinstance(event, events.Publishes)
    assert event.batch.count == 301
    assert event.size_bytes == sum(range(300)) + 16
    assert not event.unusual
    assert [each.subject for each in event.batch.messages()][18:22] == [b"a.4", b"a.5", b"h", b"a.6"]
    assert (consumed, decoder.need) == (sum(map(len, parts)), 1)


def test_what_comes_in_between_ends_a_run_and_keeps_its_place() -> None:
    found, _, _ = feed(pub(b"a", b"1") + pub(b"b", b"2") + b"PING\r\n" + pub(b"a", b"3") + b"SUB a 1\r\nUNSUB 1\r\n" + pub(b"a", b"4"))
    assert [type(event).__name__ for event in found] == ["Publishes", "Ping", "Publishes", "Subscribe", "Unsubscribe", "Publishes"]
    assert [event.batch.count for event in found if isinstance(event, events.Publishes)] == [2, 1, 1]


def test_a_run_goes_on_behind_a_message_that_came_in_two_pieces() -> None:
    stream = pub(b"t", b"first") + pub(b"u", b"second")
    pump = Pump()
    pump.push(stream[:12])
    found, _ = pump.decoder.feed(memoryview(pump.rest + stream[12:]))
    (event,) = found
    assert isinstance(event, events.Publishes)
    assert [each.payload for each in event.batch.messages()] == [b"first", b"second"]


def test_positions_count_from_the_start_of_the_view() -> None:
    stream = b"PING\r\n" + hpub(b"sub.ject", b"hd", b"body", b"re")
    found, _, _ = feed(stream)
    event = found[1]
    assert isinstance(event, events.Publishes)
    row = list(event.batch.rows)
    assert row[live.SUBJECT_AT] == stream.index(b"sub.ject")
    assert row[live.REPLY_AT] == stream.index(b"re ")
    assert row[live.PAYLOAD_AT] == stream.index(b"hdbody")
    assert (row[live.HEADER_SIZE], row[live.PAYLOAD_SIZE], row[live.SPARE]) == (2, 6, 0)
    assert event.batch.view.obj is stream


def test_what_was_handed_out_stays_whole_when_the_rows_grow() -> None:
    one = pub(b"s", b"")
    found, _, _ = feed(one * 100 + b"PING\r\n" + one * 1000 + b"PING\r\n" + one * 5000)
    assert [
        (event.batch.count, {each.subject for each in event.batch.messages()}) for event in found if isinstance(event, events.Publishes)
    ] == [
        (100, {b"s"}),
        (1000, {b"s"}),
        (5000, {b"s"}),
    ]


def test_a_feed_with_very_many_messages() -> None:
    count = CAPACITY_KEPT_MAX + 1
    found, _, decoder = feed(pub(b"s", b"") * count)
    assert isinstance(found[0], events.Publishes)
    assert found[0].batch.count == count
    found, _ = decoder.feed(memoryview(pub(b"t", b"x")))
    assert isinstance(found[0], events.Publishes)
    assert found[0].batch.subject(0) == b"t"


def test_who_is_fed_does_not_keep_the_view() -> None:
    buffer = bytearray(pub(b"a", b"1") + b"PUB b")
    decoder = Decoder(NatsSettings(), PeerKind.CLIENT)
    with memoryview(buffer) as view:
        found, _ = decoder.feed(view)
        event = found.pop()
        assert isinstance(event, events.Publishes)
        event.batch.view.release()
        del event
    buffer.extend(b"more")


# --- Cuts -------------------------------------------------------------------------------------------------------------


def test_a_payload_is_waited_for_as_a_whole_and_its_end_byte_by_byte() -> None:
    pump = Pump()
    pump.push(b"PUB subject 1000\r\n")
    feeds = pump.feeds
    assert pump.decoder.need == len(pump.rest) + 1001
    pump.push(b"x" * 999)
    assert pump.feeds == feeds
    pump.push(b"x")
    assert pump.feeds == feeds
    pump.push(b"\r")
    assert pump.decoder.need == len(pump.rest) + 1
    pump.push(b"\n")
    assert pump.steps == [message(b"subject", b"x" * 1000)]


def test_a_wrong_end_is_noticed_at_its_byte() -> None:
    for end in (b"x", b"\n", b"\rx", b"\r\r"):
        pump = Pump()
        pump.push(b"PUB a 2\r\nab")
        pump.push(end[:1])
        pump.push(end[1:])
        assert pump.steps == [UNKNOWN], end


def test_a_wrong_verb_is_noticed_at_its_byte() -> None:
    for wrong in (
        b"X",
        b"PX",
        b"PUX",
        b"PUBX",
        b"PUB\r",
        b"CONNECX",
        b"\r",
        b"\n",
        b" ",
        b"+X",
        b"-ERR\r",
        b"UNSUBS",
        b"M",
        b"R",
        b"L",
        b"A",
        b"HM",
    ):
        pump = Pump()
        pump.push(wrong[:-1])
        assert pump.steps == []
        pump.push(wrong[-1:])
        assert pump.steps == [UNKNOWN], wrong


def test_blanks_behind_a_verb_are_not_kept() -> None:
    pump = Pump()
    pump.push(b"PUB ")
    for _ in range(100):
        pump.push(b" \t" * 500)
        assert pump.rest == b""
    pump.push(b"a 1\r\nx\r\n")
    assert pump.steps == [message(b"a", b"x")]


def test_what_stands_behind_ping_is_not_kept() -> None:
    pump = Pump()
    pump.push(b"ping")
    for _ in range(100):
        pump.push(b"x\r" * 500)
        assert pump.rest == b""
    assert pump.steps == []
    pump.push(b"\nPONG\n")
    assert pump.steps == [("Ping",), ("Pong",)]


def test_a_long_line_that_drips_is_searched_once() -> None:
    pump = Pump(settings=NatsSettings(line_size_bytes_max=100_000))
    pump.push(b"SUB ")
    pump.push(b"a" * 50_000)
    assert pump.decoder.need == 50_001
    pump.push(b"a" * 50_000)
    assert pump.steps == []
    pump.push(b"a")
    assert pump.steps == [TOO_LONG]


# --- Commands of clients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"PUB a 3\r\nabc\r\n", [message(b"a", b"abc")]),
        (b"pub\ta  r\t\t3 \t \r\nabc\r\n", [message(b"a", b"abc", b"r")]),
        (b"PUB a 3\nabc\r\n", [message(b"a", b"abc")]),
        (b"PUB a 0\r\n\r\n", [message(b"a", b"")]),
        (b"PUB a 000000003\r\nabc\r\n", [message(b"a", b"abc")]),
        (b"PUB \x00\xff\x0b\x0c 1\r\n\n\r\n", [message(b"\x00\xff\x0b\x0c", b"\n")]),
        (b"HPUB a 2 3\r\nabc\r\n", [message(b"a", b"c", header=b"ab")]),
        (b"hpub a r 3 3\r\nabc\r\n", [message(b"a", b"", b"r", b"abc")]),
        (b"HPUB a 0 3\r\nabc\r\n", [message(b"a", b"abc")]),
        (b"SUB a 1\r\n", [("Subscribe", b"a", b"1", b"")]),
        (b"sub a.* q\tabc \n", [("Subscribe", b"a.*", b"abc", b"q")]),
        (b"UNSUB abc\r\n", [("Unsubscribe", b"abc", 0)]),
        (b"UNSUB 1 5\r\n", [("Unsubscribe", b"1", 5)]),
        (b"UNSUB 1 999999999\r\n", [("Unsubscribe", b"1", 999_999_999)]),
        (b"UNSUB 1 1000000000\r\n", [("Unsubscribe", b"1", 0)]),
        (b"UNSUB 1 -5\r\n", [("Unsubscribe", b"1", 0)]),
        (b"PING\r\nPONG\r\n+OK\r\n", [("Ping",), ("Pong",)]),
        (b"INFO {}\r\n", []),
        (b"CONNECT {}\r\n", [("Connect", b"{}")]),
        (b"connect{}\n", [("Connect", b"{}")]),
        (b"CONNECT \t {} \r\nPING\r\n", [("Connect", b"{} "), ("Ping",)]),
        (b"CONNECT\r\n", [("Connect", b"")]),
        (b"CONNECT\n{}\r\n", [("Connect", b"\n{}")]),
        (b"-ERR 'x y'\r\n", [("PeerError", b"'x y'")]),
    ],
)
def test_what_clients_say(stream: bytes, expected: list[tuple[object, ...]]) -> None:
    assert three_ways(stream) == expected


@pytest.mark.parametrize(
    "stream",
    [
        *(
            b"PUB" + rest
            for rest in (b" \r\n", b" a\r\n", b" a b c 1\r\nx\r\n", b" a x\r\n", b" a 1x\r\n", b" a -1\r\n", b" a 1000000000\r\n")
        ),
        *(
            b"HPUB" + rest
            for rest in (b" \r\n", b" a\r\n", b" a 1\r\n", b" a b c 1 1\r\n", b" a 2 1\r\n", b" a x 1\r\n", b" a 1 x\r\n", b" a -1 1\r\n")
        ),
        *(b"SUB" + rest for rest in (b" \r\n", b" a\r\n", b" a b c d\r\n", b" a b\r c\r\n")),
        *(b"UNSUB" + rest for rest in (b" \r\n", b" 1 2 3\r\n")),
        b"INFO x\r\n",
        # nats-server takes these for words, or not, depending on how the bytes come in.
        b"PUB a\rb 1\r\nx\r\n",
        b"PUB a 1\r\r\nx\r\n",
        b"PUB \n",
        b"SUB \na 1\r\n",
    ],
)
def test_what_is_misread_closes_without_a_word(stream: bytes) -> None:
    assert three_ways(stream) == [SILENT]
    assert three_ways(pub(b"a", b"1") + stream) == [message(b"a", b"1"), SILENT]


def test_headers_are_for_clients_that_asked_for_them() -> None:
    assert three_ways(b"HPUB a 1 2\r\nab\r\n", facts=Facts(headers=False)) == [SILENT]
    stream = b"CONNECT {noheaders}\r\n" + pub(b"a", b"1") + b"HPUB a 1 2\r\nab\r\n"
    assert three_ways(stream) == [("Connect", b"{noheaders}"), message(b"a", b"1"), SILENT]


def test_after_connect_the_gateway_has_its_say() -> None:
    decoder = Decoder(NatsSettings(), PeerKind.CLIENT)
    stream = b"CONNECT {}\r\nHPUB a 1 2\r\nab\r\n"
    found, consumed = decoder.feed(memoryview(stream))
    assert (found, consumed, decoder.need) == ([events.Connect(b"{}")], 12, 0)
    decoder.headers = True
    found, consumed = decoder.feed(memoryview(stream[12:]))
    assert isinstance(found[0], events.Publishes)
    assert (consumed, decoder.need) == (16, 1)


def test_many_events_come_in_parts() -> None:
    decoder = Decoder(NatsSettings(), PeerKind.CLIENT)
    rest, sizes = b"".join(b"SUB a %d\r\nPING\r\n" % number for number in range(NATS_EVENTS_PER_FEED_MAX)), []
    while rest:
        found, consumed = decoder.feed(memoryview(rest))
        rest = rest[consumed:]
        sizes.append((len(found), decoder.need))
    assert sizes == [(NATS_EVENTS_PER_FEED_MAX, 0)] * 2
    assert (decoder.feed(memoryview(b"")), decoder.need) == (([], 0), 1)


@pytest.mark.parametrize("behind", [b"", b"PI", b"PUB a 100000\r\nxx", b"SUB a 1\r\nCONNECT {}\r\nSUB b", b"PUB a 1\r\nxyz", b"NO\r\n"])
@pytest.mark.parametrize("module", [decode, plain])
def test_what_is_rewound_comes_again(behind: bytes, module: ModuleType) -> None:
    first = b"PING\r\n" + pub(b"a", b"1") + hpub(b"b", b"", b"NATS/1.0\r\n\r\n") + pub(b"c", b"") + b"PING\r\n" + pub(b"d", b"2")
    whole = run(first + behind, module=module)
    for place in range(2):
        for count in range(1, (3, 1)[place] + 1):
            pump = Pump(PeerKind.CLIENT, module)
            found, _ = pump.decoder.feed(memoryview(first + behind))
            runs = [event for event in found if isinstance(event, events.Publishes)]
            assert runs[place].payloads_size_bytes(count) == sum(len(each.payload) for each in runs[place].batch.messages()[:count])
            end = runs[place].end_of(count)
            pump.decoder.rewind()
            assert pump.decoder.need == 1
            told = run(first[:end], module=module)
            pump.push((first + behind)[end:])
            assert told + pump.steps == whole


@pytest.mark.parametrize("kind", PeerKind)
def test_connect_first(kind: PeerKind) -> None:
    violation = ("Violation", problems.AUTH_VIOLATION, CloseReason.AUTH_VIOLATION)
    for stream in (b"PING\r\n", b"INFO {}\r\n", pub(b"a", b"1"), b"RMSG $G a 1\r\nx\r\n", b"X", b" CONNECT {}\r\n"):
        assert three_ways(stream, kind=kind, facts=Facts(connect_first=True)) == [violation]
    assert three_ways(b"connect {}\r\nPING\r\n", kind=kind, facts=Facts(connect_first=True)) == [("Connect", b"{}"), ("Ping",)]
    assert three_ways(b"CONNEXION", kind=kind, facts=Facts(connect_first=True)) == [UNKNOWN]


def test_the_servers_own_names_are_pointed_out() -> None:
    for name, reserved in (
        (b"_GR_.x", True),
        (b"_R_.x", True),
        (b"$NRG.x", True),
        (b"$JS.x", True),
        (b"_INBOX.x", False),
        (b"$SYS", False),
        (b"_", False),
    ):
        for stream in (pub(name, b""), pub(b"a", b"", name), hpub(b"a", b"h", b"", name)):
            found, _, _ = feed(pub(b"b", b"") + stream + pub(b"b", b""))
            assert isinstance(found[0], events.Publishes)
            assert found[0].unusual is reserved, stream
    found, _, _ = feed(pub(b"_GR_.x", b"") + b"PING\r\n" + pub(b"b", b""))
    assert [event.unusual for event in found if isinstance(event, events.Publishes)] == [True, False]
    found, _, _ = feed(b"RMSG _R _GR_.x $JS.ACK.x 0\r\n\r\n", ROUTE)
    assert isinstance(found[0], events.Publishes)
    assert not found[0].unusual


@given(st.text("ab.*>", min_size=1, max_size=6).map(str.encode), st.booleans())
def test_names_that_a_pedantic_client_may_not_publish_to_are_pointed_out(name: bytes, pedantic: bool) -> None:
    for module in (decode, plain):
        decoder = module.Decoder(NatsSettings(), PeerKind.CLIENT)
        decoder.pedantic = pedantic
        for said in (
            pub(name, b"x"),
            pub(b"a", b"", name),
            b"pub  " + pub(name, b"")[4:],
            pub(b"a.b", b"") + pub(name, b"") + pub(b"b", b""),
        ):
            (event,), consumed = decoder.feed(memoryview(said))
            assert consumed == len(said)
            assert event.unusual is (pedantic and said != pub(b"a", b"", name) and not is_valid_literal(name))


# --- Limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [b"PUB", b"SUB", b"CONNECT", b"-ERR", b"UNSUB"])
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_the_longest_line(head: bytes, end: bytes) -> None:
    tail = b" 0" + end + (b"\r\n" if head == b"PUB" else b"")
    assert three_ways(head + b" " + b"a" * 38 + tail, settings=SMALL)[0][0] not in {"Violation", "SilentClose"}
    assert three_ways(head + b" " + b"a" * 39 + tail, settings=SMALL) == [TOO_LONG]
    assert three_ways(head + b" " * 100 + b"a" * 38 + tail, settings=SMALL)[0][0] not in {"Violation", "SilentClose"}
    assert three_ways(head + b" " * 100 + b"a" * 39 + tail, settings=SMALL) == [TOO_LONG]


def test_a_line_that_is_too_long_is_not_waited_for() -> None:
    assert run(b"SUB " + b"a" * 41, settings=SMALL) == [TOO_LONG]
    assert run(b"SUB " + b"a" * 40, settings=SMALL) == []
    # The last byte may be the line's end.
    assert run(b"SUB " + b"a" * 40 + b"\r", settings=SMALL) == []
    assert run(b"SUB " + b"a" * 40 + b"\rx", settings=SMALL) == [TOO_LONG]


def test_a_route_has_longer_lines() -> None:
    names = b"q" * 600
    size = len(b"$G a | " + names + b" 0")
    assert three_ways(b"RMSG $G a | " + names + b" " * (641 - size) + b"0\r\n\r\n", kind=ROUTE, settings=SMALL)[0][0] == "MSG"
    assert three_ways(b"RMSG $G a | " + names + b" " * (642 - size) + b"0\r\n\r\n", kind=ROUTE, settings=SMALL) == [TOO_LONG]


def test_the_largest_payload() -> None:
    assert three_ways(pub(b"a", b"x" * 100), settings=SMALL) == [message(b"a", b"x" * 100)]
    assert three_ways(b"PUB a 101\r\n", settings=SMALL) == [TOO_LARGE]
    assert three_ways(hpub(b"a", b"h" * 50, b"x" * 50), settings=SMALL) == [message(b"a", b"x" * 50, header=b"h" * 50)]
    assert three_ways(b"HPUB a 1 101\r\n", settings=SMALL) == [TOO_LARGE]
    assert three_ways(pub(b"a", b"1") + b"PUB a 999999999\r\n", settings=SMALL) == [message(b"a", b"1"), TOO_LARGE]


def test_what_comes_after_the_end_is_swallowed() -> None:
    for last in (b"X", b"PUB a x\r\n", b"-ERR x\r\n"):
        decoder = Decoder(NatsSettings(), PeerKind.CLIENT)
        found, consumed = decoder.feed(memoryview(last + pub(b"a", b"1")))
        assert len(found) == 1
        assert (consumed, decoder.need) == (len(last + pub(b"a", b"1")), 1)
        assert decoder.feed(memoryview(b"more")) == ([], 4)


# --- Routes -----------------------------------------------------------------------------------------------------------

FORMS = [
    (b"", b"", b""),
    (b"r ", b"r", b""),
    (b"| ", b"|", b""),
    (b"+ ", b"+", b""),
    (b"+ r ", b"r", b""),
    (b"| q1 ", b"", b"q1"),
    (b"| q1  q2\tq3 ", b"", b"q1  q2\tq3"),
    (b"+ r q1 ", b"r", b"q1"),
    (b"+ r q1 q2 ", b"r", b"q1 q2"),
    (b"| + ", b"", b"+"),
    (b"+ | + ", b"|", b"+"),
]


@pytest.mark.parametrize(("form", "reply", "queues"), FORMS)
@pytest.mark.parametrize("omitted", [False, True])
def test_messages_of_routes(form: bytes, reply: bytes, queues: bytes, omitted: bool) -> None:
    account, name = (b"", b"") if omitted else (b"$G ", b"$G")
    plain = message(b"foo", b"abc", reply, b"", name, queues)
    headed = message(b"foo", b"c", reply, b"ab", name, queues)
    for stream, expected in (
        (b"RMSG %bfoo %b3\r\nabc\r\n" % (account, form), plain),
        (b"HMSG %bfoo %b2 3\r\nabc\r\n" % (account, form), headed),
        (b"LMSG leafs %bfoo %b0 3\r\nabc\r\n" % (account, form), plain),
        (b"lmsg leafs %bfoo %b2 3\r\nabc\r\n" % (account, form), headed),
    ):
        assert three_ways(stream, kind=ROUTE, facts=Facts(account_omitted=omitted)) == [expected]
        assert three_ways(stream * 3, kind=ROUTE, facts=Facts(account_omitted=omitted)) == [expected] * 3


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"RMSG" + rest
            for rest in (b" \r\n", b" $G\r\n", b" $G a\r\n", b" $G a x\r\n", b" $G a b c 1\r\n", b" $G a ++ c 1\r\n", b" $G a + b x\r\n")
        ),
        *(b"HMSG" + rest for rest in (b" $G a 1\r\n", b" $G a 2 1\r\n", b" $G a b c 1 1\r\n", b" $G a + b 1 x\r\n", b" $G a x 1\r\n")),
        *(b"LMSG" + rest for rest in (b" o $G a 1\r\n", b" o $G a 2 1\r\n", b" o $G a b c 1 1\r\n")),
        *(b"RS+" + rest for rest in (b" $G\r\n", b" $G a q\r\n", b" $G a q 1 x\r\n", b" \r\n")),
        *(b"RS-" + rest for rest in (b" $G\r\n", b" $G a q 1\r\n", b" \r\n")),
        *(b"LS+" + rest for rest in (b" o $G\r\n", b" o $G a q\r\n", b" \r\n")),
        *(b"LS-" + rest for rest in (b" $G\r\n", b" o $G a q\r\n")),
        b"UNSUB a\r\n",
        b"PUB a x\r\n",
        b"PUB a b c 1\r\n",
        b"HPUB a 1\r\n",
    ],
)
def test_what_is_misread_of_a_route(line: bytes) -> None:
    assert three_ways(line, kind=ROUTE) == [SILENT]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"RS+ $G foo\r\n", [("RemoteSubscribe", b"$G", b"foo", b"", 1)]),
        (b"rs+\t$G  foo q 12\n", [("RemoteSubscribe", b"$G", b"foo", b"q", 12)]),
        (b"RS+ $G foo q x\r\n", [("RemoteSubscribe", b"$G", b"foo", b"q", 0)]),
        (b"LS+ leafs $G foo\r\n", [("RemoteSubscribe", b"$G", b"foo", b"", 1)]),
        (b"LS+ leafs $G foo q 2\r\n", [("RemoteSubscribe", b"$G", b"foo", b"q", 2)]),
        (b"RS- $G foo\r\n", [("RemoteUnsubscribe", b"$G", b"foo", b"")]),
        (b"RS- $G foo q\r\n", [("RemoteUnsubscribe", b"$G", b"foo", b"q")]),
        (b"LS-  $G foo\r\n", [("RemoteUnsubscribe", b"$G", b"foo", b"")]),
        (b"LS-  $G foo q\r\n", [("RemoteUnsubscribe", b"$G", b"foo", b"q")]),
        (b"UNSUB $G foo\r\n", [("RemoteUnsubscribe", b"$G", b"foo", b"")]),
        (b"SUB foo\r\nA+ x\r\nA- x y z\r\n+OK\r\n", []),
        (b"PUB foo 3\r\nabc\r\nHPUB foo r 1 3\r\nabc\r\nPING\r\n", [("Ping",)]),
        (b"INFO {} \r\nPONG\r\n", [("Info", b"{} "), ("Pong",)]),
        (b"CONNECT {}\r\n", [("Connect", b"{}")]),
        (b"-ERR 'x'\r\n", [("PeerError", b"'x'")]),
        (b"MSG a 1 1\r\n", [UNKNOWN]),
        (b"A\r\n", [UNKNOWN]),
    ],
)
def test_what_servers_say(stream: bytes, expected: list[tuple[object, ...]]) -> None:
    assert three_ways(stream, kind=ROUTE) == expected


def test_without_the_account() -> None:
    stream = b"RS+ foo\r\nRS+ foo q 2\r\nRS- foo\r\nRS- foo q\r\nLS+ o foo\r\nLS- foo q\r\n"
    assert [step[1:4] for step in three_ways(stream, kind=ROUTE, facts=Facts(account_omitted=True))] == [
        (b"", b"foo", b""),
        (b"", b"foo", b"q"),
        (b"", b"foo", b""),
        (b"", b"foo", b"q"),
        (b"", b"foo", b""),
        (b"", b"foo", b"q"),
    ]
    assert three_ways(b"RS+ $G foo\r\n", kind=ROUTE, facts=Facts(account_omitted=True)) == [SILENT]
    assert three_ways(b"LS+ \r\n", kind=ROUTE, facts=Facts(account_omitted=True)) == [SILENT]


@pytest.mark.parametrize("omitted", [False, True])
def test_a_message_that_is_too_large_is_left_out(omitted: bool) -> None:
    account, name = (b"", b"") if omitted else (b"$G ", b"$G")
    stream = b"RMSG %bfoo 200\r\n%b\r\nRMSG %bbar r 201\r\n%b\r\nLMSG o %bfoo 5 300\r\n%b\r\nPING\r\n" % (
        *(account, b"x" * 200),
        *(account, b"y" * 201),
        *(account, b"z" * 300),
    )
    assert three_ways(stream, kind=ROUTE, settings=SMALL, facts=Facts(account_omitted=omitted)) == [
        message(b"foo", b"x" * 200, account=name),
        ("LeftOut", name, b"bar", 201),
        ("LeftOut", name, b"foo", 300),
        ("Ping",),
    ]


def test_the_payload_of_what_is_left_out_is_not_kept() -> None:
    pump = Pump(ROUTE)
    pump.push(b"RMSG $G foo 999999999\r\n")
    for _ in range(50):
        pump.push(b"x" * 100_000)
        assert pump.rest == b""
    assert pump.steps == [("LeftOut", b"$G", b"foo", 999_999_999)]


@pytest.mark.parametrize("end", [b"x", b"\n", b"\rx"])
def test_what_is_left_out_has_to_end_well(end: bytes) -> None:
    assert three_ways(b"RMSG $G foo 201\r\n" + b"x" * 201 + end, kind=ROUTE, settings=SMALL) == [("LeftOut", b"$G", b"foo", 201), UNKNOWN]
    assert three_ways(b"PUB foo 3\r\nabc" + end, kind=ROUTE) == [UNKNOWN]


def test_every_cut_of_a_long_talk() -> None:
    stream = (
        b"CONNECT {}\r\nSUB a 1\r\n" + pub(b"a", b"1") + hpub(b"b", b"h", b"2", b"r") + b"PING\r\npong \r\nUNSUB 1 2\r\n" + pub(b"c", b"")
    )
    whole = run(stream)
    assert len(whole) == 8
    for first, second in itertools.combinations(range(0, len(stream), 3), 2):
        assert run(stream, [first, second]) == whole
