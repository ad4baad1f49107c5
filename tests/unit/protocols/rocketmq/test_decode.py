"""Frames become rows or requests, and what is wrong ends the connection."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest

from polymq.limits import PENDING_INPUT_SIZE_BYTES_MAX
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.events import BINARY, ONEWAY, V2, Event, Sends
from polymq.protocols.rocketmq.messages import Extra, read_extra
from polymq.protocols.rocketmq.names import retry_topic, tag_hash
from polymq.protocols.rocketmq.settings import RocketmqSettings
from polymq.rocketmq_limits import (
    HEADER_SIZE_BYTES_MAX,
    REQUESTS_PER_FEED_MAX,
    SENDS_PER_FEED_MAX,
    TOPICS_REMEMBERED_MAX,
    UNUSUAL_HEADER_SIZE_BYTES_MAX,
)
from tests.unit.protocols.rocketmq.frames import (
    HOST,
    PORT,
    SETTINGS,
    binary_frame,
    binary_send,
    json_frame,
    one,
    raw_frame,
    run,
    send,
    send_ext,
)

KEPT = b"KEYS\x01K1\x02UNIQ_KEY\x01FD00\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster"
OLD_NAMES = {
    "producerGroup": "PG",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 2,
    "sysFlag": 0,
    "bornTimestamp": 1795212447778,
    "flag": 7,
    "properties": "KEYS\x01K1\x02UNIQ_KEY\x01FD00\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    "reconsumeTimes": 0,
    "unitMode": "0",
    "AccessKey": "",
}


def extra(**changed: Any) -> Extra:
    known: dict[str, Any] = {
        "flag": 7,
        "born_ms": 1795212447778,
        "born_host": HOST,
        "born_port": PORT,
        "tags_code": tag_hash("TagA"),
        "body_crc": zlib.crc32(b"hello") & 0x7FFFFFFF,
        "properties": KEPT,
    }
    return Extra(**(known | changed))


@pytest.mark.parametrize("scanning", [True, False])
@pytest.mark.parametrize(
    ("frame", "flags"),
    [
        (send(), V2),
        (send(flag=2), V2 | ONEWAY),
        (binary_send(), V2 | BINARY),
        (json_frame(10, OLD_NAMES, b"hello"), 0),
        (binary_frame(10, {name: str(value) for name, value in OLD_NAMES.items()}, b"hello"), BINARY),
        (send(e=2, f=0, g=1795212447778, h=7, j=None, k=False, l=None, m=None, n=None), V2),
        (send(m=False), V2),
    ],
)
def test_a_plain_send_is_a_row(frame: bytes, flags: int, *, scanning: bool) -> None:
    name, opaque, told_flags, topic, queue_id, body, data = one(frame, scanning=scanning)
    assert (name, opaque, told_flags, topic, queue_id, body) == ("SEND", 1, flags, "T", 2, b"hello")
    assert read_extra(data) == extra()


@pytest.mark.parametrize("scanning", [True, False])
@pytest.mark.parametrize(
    "changed",
    [
        {"b": None},
        {"b": "bad!"},
        {"b": ""},
        {"b": "x" * 128},
        {"b": retry_topic("G")},
        {"b": "%DLQ%G"},
        {"b": "SELF_TEST_TOPIC"},
        {"e": None},
        {"e": "x"},
        {"e": ""},
        {"e": "-"},
        {"e": "2147483648"},
        {"e": "9" * 19},
        {"f": "1"},
        {"f": "769"},
        {"f": "4"},
        {"f": "8"},
        {"f": None},
        {"g": None},
        {"h": "1.5"},
        {"j": "many"},
        {"d": "many"},
        {"d": "2147483648"},
        {"l": "many"},
        {"m": "true"},
        {"m": True},
        {"i": "DELAY\x013\x02"},
        {"i": "a\x01b\x02TRAN_MSG\x01true"},
        {"i": "MSG_TYPE\x01reply\x02"},
        {"i": "TIMER_DELAY_SEC\x015\x02"},
        {"i": "TIMER_DELAY_MS\x015\x02"},
        {"i": "TIMER_DELIVER_MS\x015\x02"},
        {"i": "long\x01" + "x" * 32767},
    ],
)
def test_a_send_that_is_more_than_an_append_is_a_request(changed: dict[str, Any], *, scanning: bool) -> None:
    said = one(send(**changed), scanning=scanning)
    assert said[0] == 310
    assert said[3] == {name: str(value).lower() if value is True else value for name, value in send_ext(**changed).items()}
    assert said[4] == b"hello"


@pytest.mark.parametrize(
    ("properties", "kept", "tags"),
    [
        ("", b"CLUSTER\x01DefaultCluster", ""),
        ("WAIT\x01true", b"CLUSTER\x01DefaultCluster", ""),
        ("TAGS\x01A\x02", b"TAGS\x01A\x02CLUSTER\x01DefaultCluster", "A"),
        ("TAGS\x01A\x02TAGS\x01B", b"TAGS\x01A\x02TAGS\x01B\x02CLUSTER\x01DefaultCluster", "B"),
        ("CLUSTER\x01other\x02x\x01y\x02", b"x\x01y\x02CLUSTER\x01DefaultCluster", ""),
        ("\x01v\x02n\x01\x02n\x02\x02TAGS\x01", b"CLUSTER\x01DefaultCluster", ""),
        ("n\x01a\x01b", b"n\x01a\x01b\x02CLUSTER\x01DefaultCluster", ""),
        ("TAGS\x01é€\U0001f600", "TAGS\x01é€\U0001f600\x02CLUSTER\x01DefaultCluster".encode(), "é€\U0001f600"),
        ('n\x01"\\/\b\f\n\r\t', b'n\x01"\\/\b\f\n\r\t\x02CLUSTER\x01DefaultCluster', ""),
    ],
)
def test_properties_are_kept_as_the_broker_keeps_them(properties: str, kept: bytes, tags: str) -> None:
    for frame in (send(i=properties), binary_send(i=properties), json_frame(10, OLD_NAMES | {"properties": properties}, b"hello")):
        assert read_extra(one(frame)[6]) == extra(properties=kept, tags_code=tag_hash(tags))


def test_properties_may_be_missing_and_as_large_as_may_be() -> None:
    assert read_extra(one(send(i=None))[6]) == extra(properties=b"CLUSTER\x01DefaultCluster", tags_code=0)
    largest = 32767 - len("x\x01\x02CLUSTER\x01DefaultCluster")
    assert one(send(i="x\x01" + "y" * largest))[0] == "SEND"
    assert one(send(i="x\x01" + "y" * (largest + 1)))[0] == 310


def test_bits_that_are_not_the_clients_are_cleared() -> None:
    kept = read_extra(one(send(f=str(0x300 | 0xF0)))[6])
    assert kept is not None
    assert kept.sys_flag == 0x300


def test_hosts_of_16_bytes_are_kept() -> None:
    decoder = Decoder(SETTINGS, born_host=bytes(range(16)), born_port=9)
    events: list[Event] = []
    decoder.feed(memoryview(send()), events)
    (sends,) = events
    assert isinstance(sends, Sends)
    kept = read_extra(sends.extra(0))
    assert kept == extra(born_host=bytes(range(16)), born_port=9)


def test_negative_numbers() -> None:
    said = one(send(e="-1", opaque=-5))
    assert (said[1], said[4]) == (-5, -1)


@pytest.mark.parametrize(("options", "frame"), [({"server": False}, send()), ({"every_request": True}, send()), ({}, send(flag=1))])
def test_sends_may_be_requests(options: dict[str, Any], frame: bytes) -> None:
    assert one(frame, **options)[0] == 310


def test_a_body_too_large_is_the_gateways_to_refuse() -> None:
    small = RocketmqSettings(body_size_bytes_max=5)
    assert one(send(), settings=small)[0] == "SEND"
    assert one(send(b"larger"), settings=small)[0] == 310


@pytest.mark.parametrize("scanning", [True, False])
def test_other_frames_are_requests(*, scanning: bool) -> None:
    ext = {"consumerGroup": "G", "text": 'a"\u00e9\u20ac\U0001f600\n', "n": 5, "yes": True, "no": False}
    expected = {"consumerGroup": "G", "text": 'a"\u00e9\u20ac\U0001f600\n', "n": "5", "yes": "true", "no": "false"}
    said = one(json_frame(14, ext, b"body", opaque=9, flag=3, remark="re\x01"), scanning=scanning)
    assert said == (14, 9, 3, expected, b"body", False, "re\x01", 0, 409)
    said = one(binary_frame(14, expected, b"body", opaque=9), scanning=scanning)
    assert said == (14, 9, 0, expected, b"body", True, None, 0, 479)


def test_the_vector_of_the_real_class() -> None:
    vector = bytes.fromhex("000000290100002400690001df00000007000000000000000268690000000d0005746f70696300000002543142")
    assert one(vector) == (105, 7, 0, {"topic": "T1"}, b"B", True, "hi", 0, 479)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">iI", 3, 0) + b"123",
        struct.pack(">iI", -1, 0),
        struct.pack(">iI", 16 * 1024 * 1024 - 3, 0),
        struct.pack(">iI", 10, 7) + b"123456",
        struct.pack(">iI", 6, 2 << 24 | 2) + b"{}",
        raw_frame(b""),
        raw_frame(b"[]"),
        raw_frame(b"{}x"),
        raw_frame(b'{"code":1,}'),
        raw_frame(b'{"code":"x"}'),
        raw_frame(b'{"code":true}'),
        raw_frame(b'{"code":2147483648}'),
        raw_frame(b'{"opaque":-2147483649}'),
        raw_frame(b'{"opaque":1.5}'),
        raw_frame(b'{"code":1,"extFields":[]}'),
        raw_frame(b'{"code":1,"extFields":{"a":"\\x"}}'),
        raw_frame(b'{"code":1,"remark":"'),
        raw_frame(b'{"x":' + b"[" * 100_000),
        raw_frame(b"", kind=1),
        raw_frame(bytes(20), kind=1),
        raw_frame(bytes(17) + struct.pack(">i", 1), kind=1),
        raw_frame(bytes(13) + struct.pack(">i", 5) + bytes(4), kind=1),
        raw_frame(bytes(13) + struct.pack(">i", -5) + bytes(4), kind=1),
        raw_frame(bytes(17) + struct.pack(">ihci", 7, 1, b"n", -1), kind=1),
        raw_frame(bytes(17) + struct.pack(">ihci", 7, -1, b"n", 0), kind=1),
        raw_frame(bytes(17) + struct.pack(">ih", 6, 1) + bytes(4), kind=1),
        raw_frame(bytes(17) + struct.pack(">ihBi", 8, 1, 65, 2) + b"x", kind=1),
    ],
)
def test_what_is_no_frame_ends_the_connection(frame: bytes) -> None:
    said = run(send() + frame + send())
    assert [each[0] for each in said] == ["SEND", "VIOLATION"]
    assert run(send() + frame + send(), scanning=False) == said


def test_a_header_may_be_as_large_as_its_limit() -> None:
    filler = "x" * (HEADER_SIZE_BYTES_MAX - 150)
    frame = json_frame(99, {"a": filler})
    frame = raw_frame(frame[8:] + b" " * (HEADER_SIZE_BYTES_MAX - len(frame) + 8))
    assert one(frame)[3] == {"a": filler}
    assert one(raw_frame(frame[8:] + b" "))[0] == "VIOLATION"


def test_an_unusual_header_may_be_half_as_large() -> None:
    head = b'{"code":99,"x":null'
    frame = raw_frame(head + b" " * (UNUSUAL_HEADER_SIZE_BYTES_MAX - len(head) - 1) + b"}")
    assert one(frame)[0] == 99
    assert one(raw_frame(frame[8:] + b" "))[0] == "VIOLATION"
    assert one(json_frame(99, {"a": "x" * UNUSUAL_HEADER_SIZE_BYTES_MAX}))[0] == 99


@pytest.mark.parametrize("start", [bytes(4), b"\0\0\0\3", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET "])
def test_a_size_that_cannot_be_is_found_at_once(start: bytes) -> None:
    assert [each[0] for each in run(start)] == ["VIOLATION"]


def test_frames_as_large_as_a_buffer_are_read() -> None:
    assert SETTINGS.frame_size_bytes_max <= PENDING_INPUT_SIZE_BYTES_MAX
    frame = json_frame(99, {}, b"x" * (SETTINGS.frame_size_bytes_max - len(json_frame(99, {}))))
    assert one(frame)[0] == 99
    assert one(json_frame(99, {}, b"x" * (SETTINGS.frame_size_bytes_max - len(json_frame(99, {})) + 1)))[0] == "VIOLATION"


def test_unusual_json_says_the_same() -> None:
    ext = send_ext()
    plain = run(send())
    spaced = json.dumps({"extFields": ext, "flag": 0, "opaque": 1, "x": None, "code": 310}, indent=2).encode() + b"\n"
    assert run(raw_frame(spaced, b"hello")) == plain
    escaped = json.dumps({"code": "310", "opaque": 1, "extFields": ext}).replace("PG", "\\u0050G").encode()
    assert run(raw_frame(escaped, b"hello")) == plain
    twice = b'{"code":1,"extFields":{"b":"X"},"extFields":' + json.dumps({"b": "Y"} | ext).encode() + b',"opaque":1,"code":310}'
    assert run(raw_frame(twice, b"hello")) == plain
    assert run(raw_frame(json.dumps({"code": 310, "opaque": 1, "extFields": ext | {"z": [1, {"a": None}]}}).encode(), b"hello")) == plain
    many = {f"x{number}": "" for number in range(100)}
    assert one(json_frame(310, many | ext, b"hello"))[3] == many | ext


def test_broken_characters_are_replaced() -> None:
    said = one(raw_frame(b'{"code":5,"extFields":{"a":"\xff","b":"\\ud800","c":"\\udc00x","d":"\\ud83d\\ude00"},"remark":"\xc3"}'))
    assert said[3] == {"a": "\ufffd", "b": "?", "c": "?x", "d": "\U0001f600"}
    assert said[6] == "\ufffd"
    fields = b"\0\1a" + struct.pack(">i", 1) + b"\xff"
    assert one(raw_frame(bytes(17) + struct.pack(">i", len(fields)) + fields, kind=1))[3] == {"a": "\ufffd"}


def test_a_feed_stops_after_many_events() -> None:
    decoder = Decoder(SETTINGS)
    stream = memoryview(json_frame(34, {}) * (REQUESTS_PER_FEED_MAX + 1))
    events: list[Event] = []
    consumed = decoder.feed(stream, events)
    assert (len(events), decoder.need) == (REQUESTS_PER_FEED_MAX, 0)
    events.clear()
    assert decoder.feed(stream[consumed:], events) == len(stream) - consumed
    assert (len(events), decoder.need) == (1, 4)

    stream = memoryview(send() * (SENDS_PER_FEED_MAX + 1))
    events.clear()
    consumed = decoder.feed(stream, events)
    (sends,) = events
    assert isinstance(sends, Sends)
    assert (sends.count, decoder.need, consumed) == (SENDS_PER_FEED_MAX, 0, len(stream) - len(send()))


def test_runs_of_one_feed_lie_behind_one_another() -> None:
    said = run(send(opaque=1) + send(opaque=2) + json_frame(34, {}, opaque=3) + send(opaque=4))
    assert [each[1] for each in said] == [1, 2, 3, 4]


def test_it_says_how_much_it_needs() -> None:
    decoder = Decoder(SETTINGS)
    frame = send()
    events: list[Event] = []
    assert decoder.need == 4
    assert decoder.feed(memoryview(frame[:4]), events) == 0
    assert decoder.need == 8
    assert decoder.feed(memoryview(frame[:8]), events) == 0
    assert decoder.need == len(frame)
    assert decoder.feed(memoryview(frame + frame[:3]), events) == len(frame)
    assert decoder.need == 4


def test_after_a_violation_all_is_swallowed() -> None:
    decoder = Decoder(SETTINGS)
    events: list[Event] = []
    assert decoder.feed(memoryview(b"GET / HTTP/1.1\r\n"), events) == 16
    assert len(events) == 1
    assert decoder.feed(memoryview(send()), events) == len(send())
    assert len(events) == 1


def test_topics_are_remembered_up_to_a_limit() -> None:
    decoder = Decoder(SETTINGS)
    for number in range(TOPICS_REMEMBERED_MAX + 2):
        events: list[Event] = []
        decoder.feed(memoryview(send(b=f"topic-{number}")), events)
        (sends,) = events
        assert isinstance(sends, Sends)
        assert sends.topic(0) == f"topic-{number}"
    assert len(decoder.topics) == 1


def test_the_view_can_be_given_back() -> None:
    decoder = Decoder(SETTINGS)
    buffer = bytearray(send())
    events: list[Event] = []
    with memoryview(buffer) as view:
        decoder.feed(view, events)
        events.clear()
    buffer.append(0)
