"""What is said to RocketMQ's servers in dialogues: frames and headers that are none, or only nearly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.interop.rocketmq_cases import CASES
from tests.interop.rocketmq_dialogue import Stage, lying, request, send
from tests.interop.rocketmq_raw import BINARY, raw_frame

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

case = CASES.case


@case
def codes_that_nobody_knows(stage: Stage) -> None:
    talk = stage.broker()
    for code in (0, 1, 9, 16, 39, 40, 99, 500, 12345, -1):
        talk.ask(code, {}, note=f"code {code}")
        talk.ask(code, {}, note=f"code {code}, binary", serialize=BINARY)
    talk.ask(99999, {}, note="beyond 16 bits")


@case
def frames_that_lie(stage: Stage) -> None:
    good = request(30, {"topic": "TBW102", "queueId": "0"})
    frames = {
        "right": good,
        "twice": good + good,
        "no length": b"\0\0\0\0",
        "a length of three": b"\0\0\0\x03abc",
        "a length of four": b"\0\0\0\x04\0\0\0\0",
        "longer than it is": lying(good, len(good) + 100),
        "one shorter": lying(good, len(good) - 5) + good,
        "16 MiB": lying(good, 16 << 20),
        "more than 16 MiB": lying(good, (16 << 20) + 1),
        "negative": lying(good, -1),
        "a header longer than the frame": good[:4] + b"\0\0\xff\xff" + good[8:],
        "a header of nothing": good[:4] + b"\0\0\0\0" + good[8:],
        "serialize type 2": good[:4] + b"\x02" + good[5:],
        "serialize type 255": good[:4] + b"\xff" + good[5:],
        "JSON that says it is binary": good[:4] + b"\x01" + good[5:],
        "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    }
    for name, data in frames.items():
        talk = stage.broker()
        talk.say(data, note=name)
        talk.connection.close()


HEADERS: dict[str, bytes] = {
    "nothing but braces": b"{}",
    "no code": b'{"opaque":7,"flag":0,"language":"JAVA","version":409}',
    "no opaque": b'{"code":105,"flag":0,"language":"JAVA","version":409,"extFields":{"topic":"TBW102"}}',
    "no language": b'{"code":99,"opaque":7}',
    "an unknown language": b'{"code":99,"opaque":7,"language":"COBOL"}',
    "a language that is a number": b'{"code":99,"opaque":7,"language":3}',
    "code as text": b'{"code":"99","opaque":"7","flag":"0","version":"409"}',
    "code with a fraction": b'{"code":99.5,"opaque":7}',
    "code that is true": b'{"code":true,"opaque":7}',
    "code null": b'{"code":null,"opaque":7}',
    "opaque negative": b'{"code":99,"opaque":-7}',
    "opaque beyond 32 bits": b'{"code":99,"opaque":4294967303}',
    "an answer that nobody waits for": b'{"code":99,"opaque":7,"flag":1}',
    "one way": b'{"code":99,"opaque":7,"flag":2}',
    "fields null": b'{"code":30,"opaque":7,"extFields":null}',
    "fields a list": b'{"code":30,"opaque":7,"extFields":[]}',
    "fields a text": b'{"code":30,"opaque":7,"extFields":"x"}',
    "a field that is an object": b'{"code":30,"opaque":7,"extFields":{"topic":{"a":1},"queueId":"0"}}',
    "a field that is null": b'{"code":30,"opaque":7,"extFields":{"topic":null,"queueId":"0"}}',
    "the same field twice": b'{"code":30,"opaque":7,"extFields":{"topic":"a","topic":"TBW102","queueId":"0"}}',
    "blanks and lines": b' {\n "code" : 99 ,\t"opaque" : 7 } \n',
    "single quotes": b"{'code':99,'opaque':7}",
    "names without quotes": b"{code:99,opaque:7}",
    "a trailing comma": b'{"code":99,"opaque":7,}',
    "a list": b"[1,2]",
    "a number": b"7",
    "null": b"null",
    "half": b'{"code":99,"opaque":7',
    "more behind it": b'{"code":99,"opaque":7}}',
    "no text": b"\xff\xfe{",
    "deep": b'{"code":99,"opaque":7,"x":' + b"[" * 400 + b"]" * 400 + b"}",
    "unknown names": b'{"code":99,"opaque":7,"mine":{"a":[1,null,true,"x"]}}',
    "serializeTypeCurrentRPC of another": b'{"code":99,"opaque":7,"serializeTypeCurrentRPC":"ROCKETMQ"}',
    "escapes": b'{"code":30,"opaque":7,"extFields":{"topic":"\\u0054BW102","queueId":"0"}}',
}


def header(data: bytes) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.broker().say(raw_frame(data), note="broker")
        stage.names().say(raw_frame(data), note="nameserver")

    return play


for name, data in HEADERS.items():
    CASES.add(f"a header: {name}", header(data))


@case
def a_header_of_a_megabyte(stage: Stage) -> None:
    big = json.dumps({"code": 99, "opaque": 7, "extFields": {"x": "y" * (1 << 20)}}).encode()
    many = json.dumps({"code": 99, "opaque": 7, "extFields": {f"x{number}": "" for number in range(50_000)}}).encode()
    for name, data in {"one field": big, "many fields": many}.items():
        stage.broker().say(raw_frame(data), note=name, quiet_s=3.0)


def binary(
    code: int = 99, ext: bytes = b"", *, remark: bytes = b"", remark_size: int | None = None, ext_size: int | None = None, language: int = 0
) -> bytes:
    fixed = code.to_bytes(2, "big", signed=True) + bytes([language]) + (409).to_bytes(2, "big") + (7).to_bytes(4, "big") + bytes(4)
    sizes = [len(remark) if remark_size is None else remark_size, len(ext) if ext_size is None else ext_size]
    first, second = (size.to_bytes(4, "big", signed=True) for size in sizes)
    return fixed + first + remark + second + ext


def pair(key: bytes, value: bytes) -> bytes:
    return len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value


BINARIES: dict[str, bytes] = {
    "right": binary(),
    "with a remark": binary(remark=b"hello"),
    "an unknown language": binary(language=200),
    "a remark that is longer": binary(remark_size=1000),
    "a remark of less than nothing": binary(remark_size=-5),
    "fields that are longer": binary(ext_size=1000),
    "fields of less than nothing": binary(ext_size=-5),
    "half a pair": binary(30, b"\0\x05top"),
    "a name of nothing": binary(30, pair(b"", b"x") + pair(b"topic", b"TBW102") + pair(b"queueId", b"0")),
    "a value of nothing": binary(30, pair(b"topic", b"") + pair(b"queueId", b"0")),
    "a value that is longer": binary(30, b"\0\x05topic\0\0\xff\xffx"),
    "a name of less than nothing": binary(30, b"\xff\xfbtopic"),
    "bytes behind it": binary() + b"more",
    "cut": binary()[:-2],
    "nothing": b"",
}


def binary_header(data: bytes) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.broker().say(raw_frame(data, serialize=BINARY), note="broker")

    return play


for name, data in BINARIES.items():
    CASES.add(f"a binary header: {name}", binary_header(data))


@case
def many_at_once_are_answered_each(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    fields = {key: talk.named(value) for key, value in send("WORD-t").items()}
    numbers = [talk.connection.begin(310, fields, f"{number}".encode(), serialize=number % 2) for number in range(50)]
    answers = [talk.connection.answer(number) for number in numbers]
    stage.note(f"codes {sorted({each.code for each in answers})}, offsets {sorted(int(each.ext['queueOffset']) for each in answers)}")
