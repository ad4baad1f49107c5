"""Answers say what they are to say, in both kinds of headers, and sends are answered from their rows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from polymq.protocols.rocketmq import encode
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.events import Event, Request, Sends
from polymq.protocols.rocketmq.ids import offset_message_id, physical_offset
from polymq.protocols.rocketmq.places import REGION_SIZE_BYTES_MAX, Place
from tests.unit.protocols.nsq.streams import interpreted
from tests.unit.protocols.rocketmq.frames import SETTINGS, binary_send, one, send

if TYPE_CHECKING:
    from types import ModuleType

plain = interpreted("polymq.protocols.rocketmq.encode")
both = pytest.mark.parametrize("module", [encode, plain], ids=["as built", "interpreted"])
PLACE = Place(b"T", 3, 7, b"\x0a\0\0\2", 20911)


def sends_of(stream: bytes) -> Sends:
    events: list[Event] = []
    Decoder(SETTINGS).feed(memoryview(stream), events)
    (sends,) = events
    assert isinstance(sends, Sends)
    return sends


def requests_of(data: bytes) -> list[Request]:
    events: list[Event] = []
    assert Decoder(SETTINGS, server=False).feed(memoryview(data), events) == len(data)
    return [event for event in events if isinstance(event, Request)]


@pytest.mark.parametrize("binary", [False, True])
def test_answers_and_requests(*, binary: bool) -> None:
    answer = encode.encode_response(17, -3, remark='no "topic"\n', ext={"a": "é\x01"}, body=b"body", binary=binary)
    assert one(answer) == (17, -3, 1, {"a": "é\x01"}, b"body", binary, 'no "topic"\n', 3, 409)
    request = encode.encode_request(40, 5, ext={"consumerGroup": "G"}, oneway=True, binary=binary)
    assert one(request) == (40, 5, 2, {"consumerGroup": "G"}, b"", binary, None, 3, 409)
    assert one(encode.encode_request(34, 6, body=b"{}", binary=binary))[2:5] == (0, {}, b"{}")


def test_an_answer_in_json_is_compact_and_has_fields_always() -> None:
    assert encode.encode_response(0, 5)[8:] == b'{"code":0,"extFields":{},"flag":1,"language":"PYTHON","opaque":5,"version":409}'


@both
@pytest.mark.parametrize("offset", [0, 9, 10, 2**31, 2**41 - 1])
def test_sends_are_answered(module: ModuleType, offset: int) -> None:
    numbers = (5, -(2**31), 2**31 - 1, 0, 10)
    sends = sends_of(b"".join([maker(opaque=opaque, flag=flag) for opaque in numbers for maker in (send, binary_send) for flag in (0, 2)]))
    order, groups = module.by_queue(sends)
    assert groups == [(0, 2, 0, 20)]
    room = bytearray(20 * module.SEND_REPLY_SIZE_BYTES_MAX)
    end = module.encode_send_replies(room, 3, sends, order, 0, 1, place=PLACE, first_offset=offset)
    end = module.encode_send_replies(room, end, sends, order, 1, 18, place=PLACE, first_offset=min(offset + 1, 2**41 - 18))
    answers = requests_of(bytes(room[3:end]))
    wanted = [row for row in range(19) if not sends.number(row, 1) & 1]
    assert [answer.opaque for answer in answers] == [sends.number(row, 0) for row in wanted]
    assert [answer.binary for answer in answers] == [bool(sends.number(row, 1) & 2) for row in wanted]
    first = answers[0]
    assert (first.code, first.flag, first.language, first.version) == (0, 1, 3, 409)
    assert first.ext == {
        "queueId": "3",
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
        "msgId": offset_message_id(b"\x0a\0\0\2", 20911, physical_offset(7, offset)),
        "queueOffset": str(offset),
    }


def test_the_largest_answer_fits() -> None:
    place = Place(b"T", 2**31 - 1, 2**22 - 1, b"\xff\xff\xff\xff", 65535, b"r" * REGION_SIZE_BYTES_MAX)
    for frame in (send(opaque=-(2**31)), binary_send(opaque=-(2**31))):
        sends = sends_of(frame)
        order, _ = encode.by_queue(sends)
        room = bytearray(encode.SEND_REPLY_SIZE_BYTES_MAX)
        end = encode.encode_send_replies(room, 0, sends, order, 0, 1, place=place, first_offset=2**41 - 1)
        assert end <= encode.SEND_REPLY_SIZE_BYTES_MAX
        (answer,) = requests_of(bytes(room[:end]))
        assert answer.ext["queueOffset"] == str(2**41 - 1)


@both
def test_sends_are_sorted_by_queue(module: ModuleType) -> None:
    random_ = random.Random(5)
    for count in (1, 2, 50):
        picked = [(random_.choice(["T", "U"]), random_.choice([-1, 0, 3])) for _ in range(count)]
        sends = sends_of(b"".join([send(b=topic, e=queue, opaque=number) for number, (topic, queue) in enumerate(picked)]))
        order, groups = module.by_queue(sends)
        told = {
            (sends.topics[topic], queue): [sends.number(row, 0) for row in order[first : first + size]]
            for topic, queue, first, size in groups
        }
        assert told == {key: [number for number, each in enumerate(picked) if each == key] for key in dict.fromkeys(picked)}
        assert sum(size for *_, size in groups) == count


def test_a_later_run_of_a_feed_is_sorted_from_its_first_row_on() -> None:
    events: list[Event] = []
    Decoder(SETTINGS).feed(memoryview(send() + encode.encode_request(34, 1) + send(opaque=8) + send(opaque=9, e=0)), events)
    sends = events[2]
    assert isinstance(sends, Sends)
    order, groups = encode.by_queue(sends)
    assert list(order[:2]) == [1, 2]
    assert groups == [(0, 2, 0, 1), (0, 0, 1, 1)]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("offset", [0, 2**41])
def test_the_head_of_a_pull_stands_before_its_messages(offset: int, *, binary: bool) -> None:
    room = bytearray(b"x" * (2 + encode.PULL_HEAD_SIZE_BYTES)) + b"body"
    start = encode.encode_found_head(
        room, 2, opaque=-(2**31), binary=binary, body_size=4, next_offset=offset, min_offset=offset, max_offset=offset
    )
    ext = dict.fromkeys(("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"), str(offset)) | {"suggestWhichBrokerId": "0"}
    assert requests_of(bytes(room[start:])) == [Request(0, -(2**31), 1, ext, b"body", binary, "FOUND", 3, 409)]
    assert room[:start] == b"x" * start


@both
def test_the_messages_of_a_batch_are_named(module: ModuleType) -> None:
    physical = physical_offset(7, 98)
    expected = [offset_message_id(b"\x0a\0\0\2", 20911, physical + number) for number in range(5)]
    assert module.encode_message_ids(b"\x0a\0\0\2", 20911, physical, 5) == ",".join(expected)
    assert module.encode_message_ids(b"\x0a\0\0\2", 20911, physical, 1) == expected[0]
