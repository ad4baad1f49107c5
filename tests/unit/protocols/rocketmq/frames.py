"""Tools for the tests of this package: frames as bytes, a stand-in for the pump, events as comparable tuples."""

from __future__ import annotations

import itertools
import json
import struct
from typing import TYPE_CHECKING, Any

from polymq.protocols.rocketmq import decode
from polymq.protocols.rocketmq.events import COLUMNS, EXTRA_SIZE, FLAGS, GENERIC_SIZE, OPAQUE, QUEUE_ID, Event, Request, Sends, Violation
from polymq.protocols.rocketmq.header import Header, encode_binary
from polymq.protocols.rocketmq.settings import RocketmqSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

HOST = b"\x0a\x00\x00\x01"
PORT = 1234
SETTINGS = RocketmqSettings()
PROPERTIES = "KEYS\x01K1\x02UNIQ_KEY\x01FD00\x02WAIT\x01true\x02TAGS\x01TagA"


def raw_frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def json_frame(
    code: int, ext: Mapping[str, object] | None = None, body: bytes = b"", *, opaque: int = 1, flag: int = 0, **more: object
) -> bytes:
    found = {"code": code, "extFields": ext or {}, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 409, **more}
    return raw_frame(json.dumps(found, separators=(",", ":")).encode(), body)


def binary_frame(code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", *, opaque: int = 1, flag: int = 0) -> bytes:
    return raw_frame(encode_binary(Header(code, opaque, flag, dict(ext or {}), None, 0, 479)), body, 1)


def send_ext(**changed: object) -> dict[str, object]:
    """The fields of a send; None leaves one out."""
    found: dict[str, object] = {
        "a": "PG",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "2",
        "f": "0",
        "g": "1795212447778",
        "h": "7",
        "i": PROPERTIES,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    found.update(changed)
    return {name: value for name, value in found.items() if value is not None}


def send(body: bytes = b"hello", *, opaque: int = 1, flag: int = 0, **changed: object) -> bytes:
    return json_frame(310, send_ext(**changed), body, opaque=opaque, flag=flag)


def binary_send(body: bytes = b"hello", *, opaque: int = 1, flag: int = 0, **changed: str) -> bytes:
    return binary_frame(310, {name: str(value) for name, value in send_ext(**changed).items()}, body, opaque=opaque, flag=flag)


def told(event: Event) -> list[tuple[Any, ...]]:
    """Say what one event stands for, message by message, so that runs do not show."""
    if isinstance(event, Sends):
        assert event.count > 0
        rows = range(event.first, event.first + event.count)
        assert event.size_bytes == sum(
            17 + event.rows[COLUMNS * row + EXTRA_SIZE] + event.rows[COLUMNS * row + GENERIC_SIZE] + len(event.body(row)) for row in rows
        )
        return [
            (
                "SEND",
                event.number(row, OPAQUE),
                event.number(row, FLAGS),
                event.topic(row),
                event.number(row, QUEUE_ID),
                event.body(row),
                event.extra(row),
            )
            for row in rows
        ]
    if isinstance(event, Violation):
        return [("VIOLATION", event.reason)]
    return [tuple(getattr(event, name) for name in Request.__slots__ if name != "key")]


def run(stream: bytes, cuts: Iterable[int] = (), *, module: ModuleType = decode, **options: Any) -> list[tuple[Any, ...]]:
    """Feed a stream in pieces, as the pump does; gives what was said."""
    every_request = options.pop("every_request", False)
    decoder = module.Decoder(options.pop("settings", SETTINGS), born_host=HOST, born_port=PORT, **options)
    decoder.every_request = every_request
    said: list[tuple[Any, ...]] = []
    rest = b""
    for start, stop in itertools.pairwise([0, *sorted(cuts), len(stream)]):
        rest += stream[start:stop]
        while len(rest) >= decoder.need:
            events: list[Event] = []
            consumed = decoder.feed(memoryview(rest), events)
            assert 0 <= consumed <= len(rest)
            for event in events:
                said.extend(told(event))
            rest = rest[consumed:]
            if not rest:
                break
            assert consumed or decoder.need > len(rest)
    return said


def one(stream: bytes, **options: Any) -> tuple[Any, ...]:
    """Feed one frame."""
    (said,) = run(stream, **options)
    return said
