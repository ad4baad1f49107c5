from __future__ import annotations

import itertools

import pytest

from polymq.protocols.nsq import events
from polymq.protocols.nsq.decode import Decoder
from polymq.protocols.nsq.settings import LINE_SIZE_BYTES_MAX, NsqSettings
from polymq.protocols.nsq.states import Command, State
from tests.unit.protocols.nsq import streams
from tests.unit.protocols.nsq.streams import Pump, dpub, i32, identify, mpub, pub, run, three_ways

SUB = b"SUB t c\n"
SMALL = NsqSettings(message_size_bytes_max=100, body_size_bytes_max=1000)
ID = 0x0123456789ABCDEF


def violation(text: bytes) -> tuple[str, bytes]:
    return ("Violation", text)


# --- Runs -------------------------------------------------------------------------------------------------------------


def feed(stream: bytes, prepared: bytes = SUB) -> tuple[list[events.Event], int, Decoder]:
    decoder = Decoder(NsqSettings())
    decoder.feed(memoryview(streams.MAGIC + prepared))
    found, consumed = decoder.feed(memoryview(stream))
    return found, consumed, decoder


def test_a_run_of_publishes_to_one_topic_is_one_event() -> None:
    bodies = [b"%d" % number for number in range(1000)]
    found, consumed, decoder = feed(b"".join(pub(b"t", body) for body in bodies))
    (event,) = found
    assert isinstance(event, events.Publish)
    assert (event.topic, event.command, event.answers, event.delay_ms) == (b"t", Command.PUB, 1000, 0)
    assert event.batch.bodies() == bodies
    assert consumed == sum(len(pub(b"t", body)) for body in bodies)
    assert decoder.need == 1


def test_a_new_topic_begins_a_new_run() -> None:
    found, _, _ = feed(pub(b"a", b"1") + pub(b"a", b"2") + pub(b"ab", b"3") + pub(b"a", b"4"))
    assert [(event.topic, event.batch.bodies()) for event in found if isinstance(event, events.Publish)] == [
        (b"a", [b"1", b"2"]),
        (b"ab", [b"3"]),
        (b"a", [b"4"]),
    ]


def test_a_run_goes_on_behind_a_message_that_came_in_two_pieces() -> None:
    stream = pub(b"t", b"first") + pub(b"t", b"second")
    pump = Pump()
    pump.push(stream[:12])
    found, _ = pump.decoder.feed(memoryview(pump.rest + stream[12:]))
    (event,) = found
    assert isinstance(event, events.Publish)
    assert event.batch.bodies() == [b"first", b"second"]


def test_a_run_of_finishes_is_one_event() -> None:
    ids = [0, 9, 10, 15, ID, (1 << 63) - 1, *range(500)]
    found, _, _ = feed(b"".join(b"FIN %016x\n" % each for each in ids))
    (event,) = found
    assert isinstance(event, events.Finish)
    assert event.ids.format == "q"
    assert list(event.ids[event.first : event.first + event.count]) == ids


def test_each_mpub_is_an_event_of_its_own() -> None:
    found, _, _ = feed(mpub(b"t", [b"a", b"bb"]) + mpub(b"t", [b"ccc"]))
    assert [(event.command, event.batch.bodies(), event.answers) for event in found if isinstance(event, events.Publish)] == [
        (Command.MPUB, [b"a", b"bb"], 1),
        (Command.MPUB, [b"ccc"], 1),
    ]


def test_what_was_handed_out_stays_whole_when_the_arrays_grow() -> None:
    stream = b"FIN %016x\n" % 7 + pub(b"t", b"x") + mpub(b"t", [b"%d" % number for number in range(5000)]) + b"FIN %016x\n" % 8
    whole = run(SUB + stream)
    assert whole[1:] == [("FIN", 7), ("PUB", b"t", b"x"), ("MPUB", b"t", 0, tuple(b"%d" % number for number in range(5000))), ("FIN", 8)]


def test_arrays_that_have_grown_are_given_up() -> None:
    decoder = Decoder(NsqSettings())
    decoder.feed(memoryview(streams.MAGIC))
    (big,), _ = decoder.feed(memoryview(pub(b"t", b"x") * 40_000))
    assert isinstance(big, events.Publish)
    assert len(big.batch.sizes) > 40_000
    (small,), _ = decoder.feed(memoryview(pub(b"t", b"x")))
    assert isinstance(small, events.Publish)
    assert len(small.batch.sizes) < 1000


def test_the_decoder_lets_go_of_the_buffer() -> None:
    buffer = bytearray(streams.MAGIC + pub(b"t", b"x"))
    decoder = Decoder(NsqSettings())
    found, _ = decoder.feed(memoryview(buffer))
    del found
    buffer.append(0)


# --- Ids --------------------------------------------------------------------------------------------------------------

FOREIGN = [
    b"0123456789ABCDEF",
    b"8000000000000000",
    b"ffffffffffffffff",
    b"000000000000000g",
    b"000000000000000`",
    b"00000000000000 0"[:14] + b"\x00\x00",
]


@pytest.mark.parametrize("raw_id", FOREIGN)
@pytest.mark.parametrize("command", [Command.FIN, Command.TOUCH])
def test_ids_that_were_never_minted_are_handed_on_raw(raw_id: bytes, command: Command) -> None:
    stream = SUB + b"FIN %016x\n" % 1 + command.value + b" " + raw_id + b"\nFIN %016x\n" % 2
    assert three_ways(stream)[1:] == [("FIN", 1), ("ForeignId", command, raw_id), ("FIN", 2)]


def test_every_byte_value_at_every_place_of_an_id() -> None:
    for place, value in itertools.product(range(16), range(256)):
        if value in b"\n ":
            continue
        raw_id = bytearray(b"0123456789abcdef")
        raw_id[place] = value
        is_digit = value in b"0123456789abcdef" and (place > 0 or value in b"01234567")
        found = run(SUB + b"FIN " + raw_id + b"\n")[1:]
        if value == 0x0D and place == 15:  # the carriage return of a line end, not of the id
            assert found == [violation(b"E_INVALID invalid message ID")]
        elif is_digit:
            assert found == [("FIN", int(raw_id, 16))]
        else:
            assert found == [("ForeignId", Command.FIN, bytes(raw_id))]


# --- Lines ------------------------------------------------------------------------------------------------------------


def test_line_ends_and_words_too_many() -> None:
    stream = SUB + b"NOP\r\n" + b"RDY 5 6 7\r\n" + b"FIN %016x\r\n" % ID + b"FIN %016x and more\n" % ID + b"PUB t more\r\n" + i32(1) + b"x"
    assert three_ways(stream) == [
        ("Subscribe", b"t", b"c"),
        ("Nop",),
        ("FIN", ID),
        ("FIN", ID),
        ("Ready", 5),
        ("PUB", b"t", b"x"),
    ]


def test_the_longest_line_is_a_command_and_one_byte_more_is_not() -> None:
    longest = b"NOP " + b"x" * (LINE_SIZE_BYTES_MAX - 5) + b"\n"
    assert len(longest) == LINE_SIZE_BYTES_MAX
    assert run(longest) == [("Nop",)]
    assert run(b"x" + longest) == [("SilentClose",)]
    assert run(b"N" * (LINE_SIZE_BYTES_MAX - 1)) == []
    assert run(b"N" * LINE_SIZE_BYTES_MAX) == [("SilentClose",)]
    assert run(b"N" * LINE_SIZE_BYTES_MAX, range(0, LINE_SIZE_BYTES_MAX, 1000)) == [("SilentClose",)]


def test_the_magic() -> None:
    pump = Pump(magic=False)
    assert pump.decoder.need == 4
    pump.push(b" ")
    assert pump.feeds == 0
    pump.push(b" V2NOP\n")
    assert pump.end() == [("Nop",)]
    wrong = Pump(magic=False)
    wrong.push(b"GET / HTTP/1.1\r\n\r\n")
    assert wrong.end() == [violation(b"E_BAD_PROTOCOL")]
    short = Pump(magic=False)
    short.push(b"  V")
    assert short.end() == []


# --- States -----------------------------------------------------------------------------------------------------------


def test_the_state_moves_with_the_commands() -> None:
    pump = Pump()
    seen = [pump.decoder.state]
    for line in (SUB, b"CLS\n"):
        pump.push(line)
        seen.append(pump.decoder.state)
    assert seen == [State.INIT, State.SUBSCRIBED, State.CLOSING]


def test_a_state_error_comes_before_the_body() -> None:
    assert run(SUB + b"IDENTIFY\n") == [("Subscribe", b"t", b"c"), violation(b"E_INVALID cannot IDENTIFY in current state")]
    assert run(SUB + b"AUTH x y\n")[1:] == [violation(b"E_INVALID cannot AUTH in current state")]


def test_a_finish_before_sub_is_refused_in_its_usual_form_too() -> None:
    assert run(b"FIN %016x\n" % ID) == [violation(b"E_INVALID cannot FIN in current state")]


def test_heartbeats_switched_off_refuse_sub_before_its_words_are_looked_at() -> None:
    pump = Pump()
    pump.push(identify())
    pump.decoder.heartbeats = False
    assert pump.decoder.heartbeats is False
    pump.push(b"SUB\n")
    assert pump.end()[1:] == [violation(b"E_INVALID cannot SUB with heartbeats disabled")]


@pytest.mark.parametrize("line", [b"NOP", b"XYZ", b"", b"FIN %016x" % ID, b"PUB t"])
def test_missing_tls_refuses_everything_but_identify(line: bytes) -> None:
    pump = Pump()
    pump.push(pub(b"t", b"x"))
    pump.decoder.tls_missing = True
    assert pump.decoder.tls_missing is True
    pump.push(identify() + line + b"\n")
    name = line.split(b" ")[0]
    assert pump.end()[1:] == [("Identify", b"{}"), violation(b"E_INVALID cannot %b in current state (TLS required)" % name)]


def test_tls_allows_what_it_was_missing_for() -> None:
    pump = Pump()
    pump.decoder.tls_missing = True
    pump.decoder.tls_missing = False
    pump.push(SUB + b"FIN %016x\n" % ID)
    assert pump.end() == [("Subscribe", b"t", b"c"), ("FIN", ID)]


# --- Pauses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"), [(identify(b"null"), events.Identify(b"null")), (b"AUTH\n" + i32(3) + b"abc", events.Auth(b"abc"))]
)
def test_identify_and_auth_leave_the_rest_for_another_feed(command: bytes, expected: events.Event) -> None:
    found, consumed, decoder = feed(command + b"\x16\x03\x01", prepared=b"")
    assert found == [expected]
    assert consumed == len(command)
    assert decoder.need == 0


def test_after_a_violation_input_is_swallowed() -> None:
    found, consumed, decoder = feed(b"ASDF\nNOP\n")
    assert found == [events.Violation(b"E_INVALID invalid command ASDF")]
    assert consumed == 9
    assert decoder.need == 1
    assert decoder.feed(memoryview(b"NOP\nPUB")) == ([], 7)
    assert decoder.eof() == []


def test_need_says_what_is_missing() -> None:
    steps = [
        (b"PU", 3),
        (b"B t\n", 4),
        (i32(10), 10),
        (b"x" * 9, 10),
        (b"x", 1),
        (b"MPUB t\n", 4),
        (i32(99), 4),
        (i32(2), 4),
        (i32(3), 7),
        (b"abc", 11),
        (i32(5), 16),
        (b"defgh", 1),
        (b"IDENTIFY\n", 4),
        (i32(2), 2),
    ]
    pump = Pump()
    for data, need in steps:
        pump.push(data)
        assert pump.decoder.need == need, data


# --- Publishing -------------------------------------------------------------------------------------------------------


def test_mpub_is_not_delimited_by_its_stated_size() -> None:
    for stated in (1, 4, 1000):
        stream = mpub(b"t", [b"aa", b"bb"], stated_size=stated) + pub(b"t", b"x")
        assert three_ways(stream) == [("MPUB", b"t", 0, (b"aa", b"bb")), ("PUB", b"t", b"x")]


def test_mpub_begun_is_announced_once() -> None:
    pump = Pump()
    pump.push(b"MPUB t\n")
    assert pump.steps == [("PublishBegun", b"t")]
    pump.push(i32(20) + i32(2) + i32(1))
    pump.push(b"x")
    assert pump.steps == [("PublishBegun", b"t")]
    pump.push(i32(0))
    assert pump.end() == [("PublishBegun", b"t"), violation(b"E_BAD_MESSAGE MPUB invalid message(1) body size 0")]


def test_an_mpub_that_is_there_as_a_whole_is_not_announced_but_a_wrong_one_is() -> None:
    found, _, _ = feed(mpub(b"t", [b"a"]))
    assert [type(event) for event in found] == [events.Publish]
    found, _, _ = feed(mpub(b"t", [b"a", b""]))
    assert found == [events.PublishBegun(b"t"), events.Violation(b"E_BAD_MESSAGE MPUB invalid message(1) body size 0")]


def test_the_sum_of_an_mpub_is_limited_although_its_stated_size_is_not_believed() -> None:
    fits = mpub(b"t", [b"x" * 100] * 10, stated_size=1)
    assert run(fits, settings=SMALL) == [("MPUB", b"t", 0, (b"x" * 100,) * 10)]
    assert three_ways(mpub(b"t", [b"x" * 100] * 10 + [b"y"], stated_size=1), settings=SMALL) == [
        ("PublishBegun", b"t"),
        violation(b"E_BAD_BODY MPUB body too big 1001 > 1000"),
    ]


def test_an_mpub_of_the_largest_count() -> None:
    settings = NsqSettings(body_size_bytes_max=504)
    assert settings.multi_publish_count_max == 100
    assert three_ways(mpub(b"t", [b"x"] * 100), settings=settings) == [("MPUB", b"t", 0, (b"x",) * 100)]
    assert run(mpub(b"t", [b"x"] * 101, stated_size=9), settings=settings)[1:] == [violation(b"E_BAD_BODY MPUB invalid message count 101")]


BODY_CASES = [
    (b"PUB t\n" + i32(0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
    (b"PUB t\n" + i32(-1), b"E_BAD_MESSAGE PUB invalid message body size -1"),
    (b"PUB t\n" + i32(101), b"E_BAD_MESSAGE PUB message too big 101 > 100"),
    (b"PUB t\n" + i32(-(2**31)), b"E_BAD_MESSAGE PUB invalid message body size -2147483648"),
    (b"DPUB t 1\n" + i32(0), b"E_BAD_MESSAGE DPUB invalid message body size 0"),
    (b"DPUB t 1\n" + i32(101), b"E_BAD_MESSAGE DPUB message too big 101 > 100"),
    (b"IDENTIFY\n" + i32(0), b"E_BAD_BODY IDENTIFY invalid body size 0"),
    (b"IDENTIFY\n" + i32(1001), b"E_BAD_BODY IDENTIFY body too big 1001 > 1000"),
    (b"AUTH\n" + i32(-1), b"E_BAD_BODY AUTH invalid body size -1"),
    (b"AUTH\n" + i32(1001), b"E_BAD_BODY AUTH body too big 1001 > 1000"),
]
MPUB_CASES = [
    (i32(0), b"E_BAD_BODY MPUB invalid body size 0"),
    (i32(-5), b"E_BAD_BODY MPUB invalid body size -5"),
    (i32(1148), b"E_BAD_BODY MPUB body too big 1148 > 1000"),
    (i32(9) + i32(0), b"E_BAD_BODY MPUB invalid message count 0"),
    (i32(9) + i32(-1), b"E_BAD_BODY MPUB invalid message count -1"),
    (i32(9) + i32(200), b"E_BAD_BODY MPUB invalid message count 200"),
    (i32(9) + i32(2) + i32(1) + b"x" + i32(0), b"E_BAD_MESSAGE MPUB invalid message(1) body size 0"),
    (i32(9) + i32(2) + i32(-7), b"E_BAD_MESSAGE MPUB invalid message(0) body size -7"),
    (i32(9) + i32(2) + i32(101), b"E_BAD_MESSAGE MPUB message too big 101 > 100"),
]


@pytest.mark.parametrize(("stream", "text"), BODY_CASES)
def test_sizes_are_judged_as_soon_as_they_are_there(stream: bytes, text: bytes) -> None:
    assert three_ways(stream, settings=SMALL) == [violation(text)]
    # Behind a run of the same command, where the shortcut stops, and with all that the size promises behind it.
    assert run(pub(b"t", b"x") * 2 + stream + b"x" * 2000, settings=SMALL)[2:] == [violation(text)]
    assert run(pub(b"t", b"x") * 2 + stream, settings=SMALL)[2:] == [violation(text)]


@pytest.mark.parametrize(("body", "text"), MPUB_CASES)
def test_the_numbers_of_an_mpub_are_judged_as_soon_as_they_are_there(body: bytes, text: bytes) -> None:
    assert three_ways(b"MPUB t\n" + body, settings=SMALL) == [("PublishBegun", b"t"), violation(text)]
    assert run(mpub(b"t", [b"x"]) + b"MPUB t\n" + body, settings=SMALL)[1:] == [("PublishBegun", b"t"), violation(text)]


def test_limits_are_reached_and_not_passed() -> None:
    assert run(pub(b"t", b"x" * 100) * 2, settings=SMALL) == [("PUB", b"t", b"x" * 100)] * 2
    assert run(mpub(b"t", [b"x" * 100]), settings=SMALL) == [("MPUB", b"t", 0, (b"x" * 100,))]
    assert run(dpub(b"t", 3_600_000, b"x" * 100), settings=SMALL) == [("DPUB", b"t", 3_600_000, (b"x" * 100,))]
    assert run(identify(b"x" * 1000), settings=SMALL) == [("Identify", b"x" * 1000)]


# --- The end of the input -----------------------------------------------------------------------------------------------

END_CASES = [
    (b"", None),
    (b"PUB t", None),
    (b"PUB t\n", b"E_BAD_MESSAGE PUB failed to read message body size"),
    (b"PUB t\n\0\0\0", b"E_BAD_MESSAGE PUB failed to read message body size"),
    (b"PUB t\n" + i32(3) + b"ab", b"E_BAD_MESSAGE PUB failed to read message body"),
    (b"DPUB t 5\n\0", b"E_BAD_MESSAGE DPUB failed to read message body size"),
    (b"DPUB t 5\n" + i32(1), b"E_BAD_MESSAGE DPUB failed to read message body"),
    (b"IDENTIFY\n\0", b"E_BAD_BODY IDENTIFY failed to read body size"),
    (b"IDENTIFY\n" + i32(2) + b"{", b"E_BAD_BODY IDENTIFY failed to read body"),
    (b"AUTH\n", b"E_BAD_BODY AUTH failed to read body size"),
    (b"AUTH\n" + i32(2), b"E_BAD_BODY AUTH failed to read body"),
]
MPUB_END_CASES = [
    (b"", b"E_BAD_BODY MPUB failed to read body size"),
    (i32(30) + b"\0\0", b"E_BAD_BODY MPUB failed to read message count"),
    (i32(30) + i32(2), b"E_BAD_MESSAGE MPUB failed to read message(0) body size"),
    (i32(30) + i32(2) + i32(1), b"E_BAD_MESSAGE MPUB failed to read message body"),
    (i32(30) + i32(2) + i32(1) + b"x", b"E_BAD_MESSAGE MPUB failed to read message(1) body size"),
    (i32(30) + i32(2) + i32(1) + b"x\0\0\0", b"E_BAD_MESSAGE MPUB failed to read message(1) body size"),
    (i32(30) + i32(2) + i32(1) + b"x" + i32(2) + b"y", b"E_BAD_MESSAGE MPUB failed to read message body"),
]


@pytest.mark.parametrize(("stream", "text"), END_CASES)
def test_the_end_within_a_command(stream: bytes, text: bytes | None) -> None:
    expected = [violation(text)] if text else []
    assert run(stream) == expected
    assert run(stream, range(len(stream))) == expected


@pytest.mark.parametrize(("body", "text"), MPUB_END_CASES)
def test_the_end_within_an_mpub(body: bytes, text: bytes) -> None:
    for stream in (b"MPUB t\n" + body, pub(b"t", b"x") + b"MPUB t\n" + body):
        expected = [("PublishBegun", b"t"), violation(text)]
        assert run(stream)[-2:] == expected
        assert run(stream, range(len(stream)))[-2:] == expected


def test_a_stream_that_has_ended_stays_ended() -> None:
    pump = Pump()
    pump.push(b"PUB t\n")
    assert pump.end() == [violation(b"E_BAD_MESSAGE PUB failed to read message body size")]
    assert pump.decoder.eof() == []
    assert pump.decoder.feed(memoryview(i32(1) + b"x")) == ([], 5)


# --- Cost ---------------------------------------------------------------------------------------------------------------


def test_a_large_mpub_in_small_pieces_is_walked_once() -> None:
    """Feeds are as many as there are numbers and bodies to wait for, and no entry is found twice."""
    bodies = [b"x" * 50] * 300
    stream = mpub(b"t", bodies)
    pump = Pump()
    for at in range(0, len(stream), 7):
        pump.push(stream[at : at + 7])
    assert pump.end() == [("MPUB", b"t", 0, tuple(bodies))]
    assert pump.feeds <= 5 + 2 * len(bodies)


def test_a_read_full_of_nops_and_rdys_is_a_few_events() -> None:
    pump = Pump()
    pump.push(b"SUB t c\n")
    fin = b"FIN %016x\n"
    for stream, most in (
        (b"NOP\n" * 60_000, 1),
        (b"RDY 5\n" * 40_000, 1),
        (b"RDY 1\nRDY 2\n" * 20_000, 1),
        (b"".join(fin % number + b"RDY 1\n" for number in range(9000)), 2),
        (b"".join(fin % number + b"RDY %d\n" % (number % 7) for number in range(9000)), 2),
    ):
        found, consumed = pump.decoder.feed(memoryview(stream))
        assert consumed == len(stream)
        assert len(found) <= most


def test_of_fins_and_rdys_the_last_rdy_counts_behind_all_fins() -> None:
    pump = Pump()
    pump.push(b"SUB t c\n")
    stream = b"".join(b"FIN %016x\nRDY %d\n" % (number, number % 5) for number in range(1000))
    finish, ready = pump.decoder.feed(memoryview(stream))[0]
    assert isinstance(finish, events.Finish)
    assert list(finish.ids[finish.first : finish.first + finish.count]) == list(range(1000))
    assert ready == events.Ready(4)


def test_a_remembered_line_means_nothing_in_another_situation() -> None:
    assert run(b"SUB t c\nRDY 5\n")[-1] == ("Ready", 5)
    assert run(b"SUB t c\nRDY 5\nCLS\nRDY 5\n")[-2:] == [("Cls",), ("Nop",)]
    assert run(b"RDY 5\n")[-1][0] == "Violation"
    less = NsqSettings(ready_count_max=4)
    assert run(b"SUB t c\nRDY 5\n", settings=less)[-1][0] == "Violation"
    assert run(b"SUB t c\nRDY 5\n")[-1] == ("Ready", 5)


def test_a_fin_in_an_unusual_form_is_not_lost_among_others() -> None:
    stream = SUB + b"FIN %016x\r\n" % 5 + b"RDY 1\n" + pub(b"t", b"x") + b"FIN %016x\r\n" % 6 + b"RDY 1\n" + b"FIN %016x\n" % 7 + b"RDY 2\n"
    steps = three_ways(stream)
    assert [step for step in steps if step[0] != "Subscribe"] == [
        ("FIN", 5), ("Ready", 1), ("PUB", b"t", b"x"), ("FIN", 6), ("FIN", 7), ("Ready", 2),
    ]  # fmt: skip
