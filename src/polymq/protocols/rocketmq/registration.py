"""What a broker tells a name server of itself (body of 103): its topics, and a version that changes with them.

There are two forms: JSON, and a deflated one with lengths, which brokers use when they are told to. Both are read here; JSON is
written. A topic that cannot be read is passed over: a broker does not lose its place because of one of them.

deflated, all numbers i32 big-endian:
    size, JSON of the version | count of topics | for each: size, "name read write perm filter [attributes]"
    | size, JSON list of filter servers | more, which nobody needs here

Source: RegisterBrokerBody, TopicConfig.encode, RocketMQ 4.9.8.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import orjson

from polymq.rocketmq_limits import (
    REGISTRATION_NAME_SIZE_MAX,
    REGISTRATION_OBJECTS_MAX,
    REGISTRATION_SIZE_BYTES_MAX,
    REGISTRATION_TOPICS_MAX,
    ROUTE_QUEUES_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DataVersion", "Registration", "RegistrationProblem", "TopicConfig", "parse_registration", "write_registration"]

_I32: Final = struct.Struct(">i")
_INTEGER_MAX: Final = (1 << 63) - 1
_PERM_MAX: Final = 15
_FIELDS_MIN: Final = 4


class RegistrationProblem(Exception):
    """The body is not what it should be. Says how."""


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Which state of a broker's topics this is. Two that are equal stand for the same topics."""

    counter: int = 0
    timestamp_ms: int = 0
    state_version: int = 0

    def fields(self) -> dict[str, int]:
        """Give what JSON has."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp_ms}

    @classmethod
    def of(cls, found: object) -> DataVersion:
        """Read what `fields` gave, or a real broker; what is missing is 0."""
        if not isinstance(found, dict):
            return cls()
        return cls(*(_integer(found.get(name)) for name in ("counter", "timestamp", "stateVersion")))


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic at one broker."""

    name: str
    read_queues: int
    write_queues: int
    perm: int = 6
    sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class Registration:
    """What was registered. `skipped`: so many topics could not be read."""

    topics: tuple[TopicConfig, ...] = ()
    version: DataVersion = DataVersion()
    skipped: int = 0


def parse_registration(body: bytes, *, compressed: bool = False) -> Registration:
    """Read the body of 103; none at all is a broker without topics.

    Limits:  REGISTRATION_SIZE_BYTES_MAX, before and after inflating, and REGISTRATION_OBJECTS_MAX; of more than REGISTRATION_TOPICS_MAX topics the rest is skipped.
    Raises:  RegistrationProblem.
    """
    if not body:
        return Registration()
    if len(body) > REGISTRATION_SIZE_BYTES_MAX:
        raise RegistrationProblem(f"larger than {REGISTRATION_SIZE_BYTES_MAX} bytes")
    return _parse_deflated(body) if compressed else _parse_json(body)


def _parse_json(body: bytes) -> Registration:
    try:
        document = _loads(body)
    except orjson.JSONDecodeError as error:
        raise RegistrationProblem("no JSON") from error
    wrapper = document.get("topicConfigSerializeWrapper") if isinstance(document, dict) else None
    if not isinstance(wrapper, dict):
        return Registration()
    table = wrapper.get("topicConfigTable")
    found: list[TopicConfig] = []
    entries = table if isinstance(table, dict) else {}
    skipped = max(0, len(entries) - REGISTRATION_TOPICS_MAX)
    for name, fields in islice(entries.items(), REGISTRATION_TOPICS_MAX):
        config = _config(name, fields) if isinstance(fields, dict) else None
        if config is None:
            skipped += 1
        else:
            found.append(config)
    return Registration(tuple(found), DataVersion.of(wrapper.get("dataVersion")), skipped)


def _loads(body: bytes) -> Any:
    """Read JSON that has not too much in it. Raises RegistrationProblem, orjson.JSONDecodeError."""
    if body.count(b"{") + body.count(b"[") > REGISTRATION_OBJECTS_MAX:
        raise RegistrationProblem(f"more than {REGISTRATION_OBJECTS_MAX} lists and objects")
    return orjson.loads(body)


def _config(name: str, fields: dict[str, Any]) -> TopicConfig | None:
    values = [_integer(fields.get(key, default)) for key, default in _DEFAULTS]
    return _checked(name, *values)


_DEFAULTS: Final = (("readQueueNums", 16), ("writeQueueNums", 16), ("perm", 6), ("topicSysFlag", 0))


def _checked(name: str, read: int, write: int, perm: int, sys_flag: int) -> TopicConfig | None:
    """Make a topic, if it is one that can be in a route."""
    good = 0 < len(name) <= REGISTRATION_NAME_SIZE_MAX and name.isascii()
    good = good and 0 <= read <= ROUTE_QUEUES_MAX and 0 <= write <= ROUTE_QUEUES_MAX and 0 <= perm <= _PERM_MAX
    return TopicConfig(name, read, write, perm, sys_flag) if good else None


def _integer(value: object) -> int:
    """Take a number, also one that is written as text; what is none is 0."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and -1 <= value <= _INTEGER_MAX else 0


def _parse_deflated(body: bytes) -> Registration:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, REGISTRATION_SIZE_BYTES_MAX)
    except zlib.error as error:
        raise RegistrationProblem("cannot be inflated") from error
    if not inflater.eof:
        raise RegistrationProblem(f"larger than {REGISTRATION_SIZE_BYTES_MAX} bytes, or cut off")
    try:
        return _parse_pieces(plain)
    except (struct.error, UnicodeDecodeError, orjson.JSONDecodeError, ValueError) as error:
        raise RegistrationProblem("cut off or garbled") from error


def _parse_pieces(plain: bytes) -> Registration:
    version, at = _piece(plain, 0)
    (count,) = _I32.unpack_from(plain, at)
    at += _I32.size
    found: list[TopicConfig] = []
    skipped = max(0, count - REGISTRATION_TOPICS_MAX)
    for _ in range(min(count, REGISTRATION_TOPICS_MAX)):
        text, at = _piece(plain, at)
        config = _spelled(text.decode("utf-8", "replace"))
        if config is None:
            skipped += 1
        else:
            found.append(config)
    return Registration(tuple(found), DataVersion.of(_loads(version)), skipped)


def _piece(plain: bytes, at: int) -> tuple[bytes, int]:
    """Take one piece with its size in front; raises ValueError, struct.error."""
    (size,) = _I32.unpack_from(plain, at)
    at += _I32.size
    if not 0 <= size <= len(plain) - at:
        raise ValueError("a piece is longer than all")
    return plain[at : at + size], at + size


def _spelled(text: str) -> TopicConfig | None:
    """Read a topic as TopicConfig.encode writes it."""
    fields = text.split(" ")
    if len(fields) < _FIELDS_MIN or not all(field.isdigit() for field in fields[1:_FIELDS_MIN]):
        return None
    return _checked(fields[0], _integer(fields[1]), _integer(fields[2]), _integer(fields[3]), 0)


def write_registration(topics: Iterable[TopicConfig], version: DataVersion) -> bytes:
    """Write the body of 103: compact JSON. Names are legal ones, so nothing in them needs quoting."""
    table = ",".join(
        f'"{topic.name}":{{"order":false,"perm":{topic.perm},"readQueueNums":{topic.read_queues},"topicFilterType":"SINGLE_TAG",'
        f'"topicName":"{topic.name}","topicSysFlag":{topic.sys_flag},"writeQueueNums":{topic.write_queues}}}'
        for topic in topics
    )
    shown = orjson.dumps(version.fields()).decode()
    text = f'{{"filterServerList":[],"topicConfigSerializeWrapper":{{"dataVersion":{shown},"topicConfigTable":{{{table}}}}}}}'
    return text.encode()
