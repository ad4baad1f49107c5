"""Messages of RocketMQ's as objects: for all that is not hot, and for the client.

    stored   i32 size | i32 magic | i32 CRC of the body | i32 queue | i32 flag | i64 offset in the queue | i64 physical offset
             i32 sysFlag | i64 born | born host, i32 port | i64 stored | store host, i32 port | i32 reconsume times
             i64 prepared transaction offset | i32 size, body | u8 size, topic | i16 size, properties

Big-endian. Hosts have 4 bytes, or 16 if sysFlag says so; with the second magic the topic's size has two bytes.
Source: RocketMQ 4.9.8 and 5.3.3, MessageDecoder. Read next: `stored`, the same for many at once.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from polymq.errors import RemoteProtocolError
from polymq.limits import BATCH_SIZE_BYTES_MAX
from polymq.protocols.rocketmq import properties as property_names
from polymq.protocols.rocketmq.codes import SysFlag
from polymq.protocols.rocketmq.compression import unpack
from polymq.protocols.rocketmq.extras import EXTRA_VERSION, FIXED_SIZE_BYTES
from polymq.protocols.rocketmq.generic import generic_of
from polymq.protocols.rocketmq.names import tag_hash
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX
from polymq.wire.batch import Message

__all__ = [
    "MAGIC",
    "MAGIC_2",
    "ORIGIN_ROCKETMQ",
    "PACKED",
    "Extra",
    "StoredMessage",
    "body_crc",
    "body_of",
    "decode_stored",
    "extra_of",
    "make_extra",
    "make_message",
    "read_extra",
]

# The protocol's number in the log.
ORIGIN_ROCKETMQ: Final = 2
MAGIC: Final = 0xDAA320A7
MAGIC_2: Final = 0xDAA320AB
# What fills the end of a broker's file; nothing is in it.
_MAGIC_BLANK: Final = 0xCBD43194

# The first byte of a second extra, which is the body as its sender has packed it.
PACKED: Final = b"\x02"
# What the rest of a record takes: properties are there as they travel and as headers.
_FIELDS_SIZE_MAX: Final = 8 * PROPERTIES_SIZE_BYTES_MAX

_NO_HOST: Final = b"\x7f\0\0\1"
_EXTRA_HEAD: Final = struct.Struct(">BBHiiq")
_EXTRA_TAIL: Final = struct.Struct(">iiqiI")
_STORED_START: Final = struct.Struct(">II")
_STORED_HEAD: Final = struct.Struct(">IIIiiqqiq")
_I64: Final = struct.Struct(">q")
_HOST: Final = struct.Struct(">4si")
_HOST_V6: Final = struct.Struct(">16si")
_STORED_TAIL: Final = struct.Struct(">iqi")
_I16: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class Extra:
    """What a message of RocketMQ's has besides its body. `properties` are as they travel (see `properties`)."""

    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: bytes = _NO_HOST
    born_port: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0
    tags_code: int = 0
    body_crc: int = 0
    properties: bytes = b""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as a client gets it. `properties` are as they travel."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    body_crc: int = 0
    born_ms: int = 0
    born_host: bytes = _NO_HOST
    born_port: int = 0
    store_ms: int = 0
    store_host: bytes = _NO_HOST
    store_port: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0


def body_crc(body: bytes) -> int:
    """Work out the checksum of a body: that of zlib without its top bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def make_extra(extra: Extra) -> bytes:
    """Write the native extra of a message, every field as it is given; `make_message` works out two of them.

    Limits: properties of PROPERTIES_SIZE_BYTES_MAX (asserted).
    """
    assert len(extra.born_host) in (4, 16)
    assert len(extra.properties) <= PROPERTIES_SIZE_BYTES_MAX
    head = _EXTRA_HEAD.pack(EXTRA_VERSION, len(extra.born_host), 0, extra.flag, extra.sys_flag, extra.born_ms)
    tail = _EXTRA_TAIL.pack(extra.born_port, extra.reconsume_times, extra.prepared_offset, extra.tags_code, extra.body_crc)
    return b"".join((head, extra.born_host, tail, extra.properties))


def read_extra(data: bytes) -> Extra | None:
    """Read a native extra; None if it is none that this version knows."""
    if len(data) < FIXED_SIZE_BYTES:
        return None
    version, host_size, _, flag, sys_flag, born_ms = _EXTRA_HEAD.unpack_from(data)
    if version != EXTRA_VERSION or host_size not in (4, 16) or len(data) < FIXED_SIZE_BYTES - 4 + host_size:
        return None
    at = _EXTRA_HEAD.size + host_size
    port, reconsumed, prepared, tags_code, crc = _EXTRA_TAIL.unpack_from(data, at)
    host = data[_EXTRA_HEAD.size : at]
    raw = data[at + _EXTRA_TAIL.size :]
    if len(raw) > PROPERTIES_SIZE_BYTES_MAX:
        return None
    return Extra(flag, sys_flag, born_ms, host, port, reconsumed, prepared, tags_code, crc, raw)


def extra_of(message: Message) -> Extra | None:
    """Find the native extra of a message from the log; None if it came by another protocol."""
    for origin, data in message.extras:
        if origin == ORIGIN_ROCKETMQ:
            return read_extra(data)
    return None


def body_of(message: Message) -> bytes:
    """Give the body of a message from the log as RocketMQ's clients have it: packed, if its sender has packed it."""
    for origin, data in message.extras:
        if origin == ORIGIN_ROCKETMQ and data[:1] == PACKED:
            return data[1:]
    return message.body


def make_message(body: bytes, extra: Extra, *, unpacked_size_max: int = 0) -> Message:
    """Make the core's message of one of RocketMQ's: tags code, checksum, and what others see of it, are worked out of properties and body.

    A packed body is kept as it is for RocketMQ's clients, and unpacked for everybody else; not if it is damaged, or unfolds to more
    than `unpacked_size_max`.
    """
    tags = property_names.get(extra.properties, property_names.TAGS)
    complete = Extra(
        extra.flag,
        extra.sys_flag & ~(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6),
        extra.born_ms,
        extra.born_host,
        extra.born_port,
        extra.reconsume_times,
        extra.prepared_offset,
        tag_hash(tags) if tags else 0,
        body_crc(body),
        extra.properties,
    )
    key, headers = generic_of(extra.properties)
    extras: tuple[tuple[int, bytes], ...] = ((ORIGIN_ROCKETMQ, make_extra(complete)),)
    plain = _unpacked(body, extra.sys_flag, unpacked_size_max)
    if plain is None:
        return Message(body, key, headers, extras)
    return Message(plain, key, headers, (*extras, (ORIGIN_ROCKETMQ, PACKED + body)))


def _unpacked(body: bytes, sys_flag: int, size_max: int) -> bytes | None:
    """Unpack a body for everybody else; None if there is nothing to unpack, or it does not."""
    size_max = min(size_max, BATCH_SIZE_BYTES_MAX - _FIELDS_SIZE_MAX - len(body))
    if not sys_flag & SysFlag.COMPRESSED or size_max <= 0:
        return None
    try:
        return unpack(body, sys_flag, size_max)
    except RemoteProtocolError:
        return None


def decode_stored(view: bytes | memoryview) -> list[StoredMessage]:
    """Read the stored messages of an answer. Raises RemoteProtocolError (not fatal) when sizes do not fit."""
    data = bytes(view)
    messages = []
    at = 0
    while at < len(data):
        try:
            size, magic = _STORED_START.unpack_from(data, at)
            if magic == _MAGIC_BLANK and _STORED_START.size <= size <= len(data) - at:
                at += size
                continue
            message, at = _read_stored(data, at)
        except struct.error as error:
            raise RemoteProtocolError("a stored message does not fit", fatal=False) from error
        messages.append(message)
    return messages


def _read_stored(data: bytes, start: int) -> tuple[StoredMessage, int]:
    size, magic, crc, queue_id, flag, offset, physical, sys_flag, born_ms = _STORED_HEAD.unpack_from(data, start)
    end = start + size
    if size < _STORED_HEAD.size or end > len(data):
        raise struct.error("size")
    at = start + _STORED_HEAD.size
    born_host, born_port, at = _read_host(data, at, v6=bool(sys_flag & SysFlag.BORN_HOST_V6))
    (store_ms,) = _I64.unpack_from(data, at)
    store_host, store_port, at = _read_host(data, at + 8, v6=bool(sys_flag & SysFlag.STORE_HOST_V6))
    reconsumed, prepared, body_size = _STORED_TAIL.unpack_from(data, at)
    body, at = _cut(data, at + _STORED_TAIL.size, body_size, end)
    topic_size, at = (_I16.unpack_from(data, at)[0], at + 2) if magic == MAGIC_2 else (struct.unpack_from("B", data, at)[0], at + 1)
    topic, at = _cut(data, at, topic_size, end)
    raw, at = _cut(data, at + 2, _I16.unpack_from(data, at)[0], end)
    message = StoredMessage(
        topic.decode("utf-8", "replace"),
        queue_id,
        offset,
        physical,
        body,
        raw,
        flag,
        sys_flag,
        crc,
        born_ms,
        born_host,
        born_port,
        store_ms,
        store_host,
        store_port,
        reconsumed,
        prepared,
    )
    return message, end


def _read_host(data: bytes, at: int, *, v6: bool) -> tuple[bytes, int, int]:
    form = _HOST_V6 if v6 else _HOST
    host, port = form.unpack_from(data, at)
    return host, port, at + form.size


def _cut(data: bytes, at: int, size: int, end: int) -> tuple[bytes, int]:
    if size < 0 or at + size > end:
        raise struct.error("size")
    return data[at : at + size], at + size
