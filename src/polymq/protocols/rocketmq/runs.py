"""What a run of stored messages unfolds to, and how those in it that are packed are made plain first.

A run is the body of a pull's answer, or several of them one behind the other. `unfold` turns it into columns without an object
per message; it takes bodies as they lie there. What a sender has compressed, or a broker of 5.x keeps as one message with others
inside, is rare, and made plain here one by one. `messages` has the layout.

Source: RocketMQ 5.3.3, MessageDecoder.decodeMessage, for messages inside of one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.batches import split_batch
from polymq.protocols.rocketmq.codes import SysFlag
from polymq.protocols.rocketmq.compression import unpack
from polymq.protocols.rocketmq.messages import MAGIC, MAGIC_2, StoredMessage, body_crc, decode_stored

if TYPE_CHECKING:
    from array import array

__all__ = ["FIELDS", "KEY", "MESSAGE_ID", "REPLY_TO", "TAGS", "UNPACKED_SIZE_BYTES_MAX", "Unfolded", "encode_one", "unpacked_run"]

# The texts of a message, by their places in `Unfolded.text_ends`.
KEY: Final = 0
TAGS: Final = 1
REPLY_TO: Final = 2
MESSAGE_ID: Final = 3
FIELDS: Final = 4

# Of one body, and of all that is in an answer: an answer is 256 KiB, or one larger message, so this is met by nonsense only.
_BODY_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
UNPACKED_SIZE_BYTES_MAX: Final = 512 * 1024 * 1024

_INNER: Final = 0xC0  # INNER_BATCH and NEED_UNWRAP
_PACKED: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK) | _INNER
_TOPIC_SIZE_MAX: Final = 127
_HEAD: Final = struct.Struct(">IIIiiqqiq")
_TAIL: Final = struct.Struct(">iqi")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_I16: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class Unfolded:
    """Messages as the buffers of Arrow arrays: `pyarrow.Array.from_buffers` takes each of them without a copy.

    Row i has `offsets[i]`, `times_us[i]` (when it was stored, microseconds since 1970), `reconsume_times[i]` and the body
    `bodies[body_ends[i] : body_ends[i + 1]]`, and the headers `header_ends[i]` to `header_ends[i + 1]`, whose names and
    values lie like bodies. Of the texts, field f has `count + 1` numbers of `text_ends` from `f * (count + 1)` on, which count from
    `text_starts[f]` in `texts`, and a bit per row in the `(count + 7) // 8` bytes of `text_valid` from `f * ((count + 7) // 8)` on,
    lowest bit first. int64: "q" arrays, int32: "i" arrays.

    `gap` is the first offset that was to come and did not, before one that did; -1: there is none. `damaged` is that of a message
    whose body is not what its checksum says; rows end before it; -1: there is none.
    """

    count: int
    offsets: array[int]
    times_us: array[int]
    reconsume_times: array[int]
    body_ends: array[int]
    bodies: bytearray
    text_starts: tuple[int, ...]
    text_ends: array[int]
    texts: bytearray
    text_valid: bytearray
    header_count: int
    header_ends: array[int]
    name_ends: array[int]
    names: bytearray
    value_ends: array[int]
    values: bytearray
    gap: int = -1
    damaged: int = -1


def unpacked_run(run: bytes | memoryview) -> bytes:
    """Make a run plain: bodies unpacked, and messages inside of others on their own; a body that does not unpack stays as it is.

    Raises: RemoteProtocolError (not fatal) when sizes do not fit, or all together unfold to more than UNPACKED_SIZE_BYTES_MAX.
    """
    left = UNPACKED_SIZE_BYTES_MAX
    parts: list[bytes] = []
    for message in decode_stored(run):
        for each in _plain(message, min(left, _BODY_SIZE_BYTES_MAX)):
            left -= len(each)
            parts.append(each)
        if left <= 0:
            raise RemoteProtocolError("messages that unfold to too much", fatal=False)
    return b"".join(parts)


def _plain(message: StoredMessage, size_max: int) -> list[bytes]:
    """Make one stored message plain; gives the records that are in its place."""
    if not message.sys_flag & _PACKED:
        return [encode_one(message)]
    kind = message.sys_flag & ~_PACKED
    if message.body_crc and message.body_crc != body_crc(message.body):
        return [encode_one(replace(message, sys_flag=kind))]  # `unfold` finds that it is damaged
    try:
        body = unpack(message.body, message.sys_flag, size_max)
        if message.sys_flag & _INNER != _INNER:
            return [encode_one(replace(message, body=body, sys_flag=kind, body_crc=body_crc(body)))]
        parts = split_batch(body)
    except RemoteProtocolError:
        return [encode_one(replace(message, sys_flag=kind))]
    return [
        encode_one(
            replace(
                message,
                queue_offset=message.queue_offset + index,
                body=part.body,
                properties=part.properties,
                flag=part.flag,
                sys_flag=kind,
                body_crc=body_crc(part.body),
            )
        )
        for index, part in enumerate(parts)
    ]


def encode_one(message: StoredMessage) -> bytes:
    """Write a stored message; `decode_stored` is the other way."""
    topic = message.topic.encode()
    is_long = len(topic) > _TOPIC_SIZE_MAX
    parts = (
        message.born_host,
        _I32.pack(message.born_port),
        _I64.pack(message.store_ms),
        message.store_host,
        _I32.pack(message.store_port),
        _TAIL.pack(message.reconsume_times, message.prepared_offset, len(message.body)),
        message.body,
        _I16.pack(len(topic)) if is_long else bytes((len(topic),)),
        topic,
        _I16.pack(len(message.properties)),
        message.properties,
    )
    size = _HEAD.size + sum(map(len, parts))
    head = _HEAD.pack(
        size,
        MAGIC_2 if is_long else MAGIC,
        message.body_crc,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        message.sys_flag,
        message.born_ms,
    )
    return b"".join((head, *parts))
