"""What a record batch is made of, and the parts of its format that are not hot: headers and single records.

The loops over records are in `records.py`, which is compiled and gives these names on: import from there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.errors import CorruptRecord, Refusal, RefusalCode
from polymq.wire.crc import crc32c

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from typing_extensions import Buffer

__all__ = [
    "ATTRIBUTES_PASSED_OVER",
    "ATTRIBUTE_PREPARED",
    "ATTRIBUTE_RENEWED",
    "BODY_AT_MASK",
    "COMPRESSION_MASK",
    "HEADER_SIZE_BYTES",
    "MAGIC",
    "NO_PRODUCER",
    "ORIGIN_NONE",
    "PRODUCER_BROKER",
    "PRODUCER_PREPARED",
    "RECORD_OVERHEAD_BYTES",
    "VERSION",
    "BatchHeader",
    "Columns",
    "Message",
    "Producer",
    "SealedFields",
    "SideColumns",
    "encode_message",
    "keys_of",
    "parse_header",
    "read_messages",
    "read_note",
    "read_shown",
    "seal",
    "seal_fields",
]

HEADER_SIZE_BYTES: Final = 80
# The size field and the field of flags and body distance: what a record costs beyond its body when nothing is optional.
RECORD_OVERHEAD_BYTES: Final = 8
MAGIC: Final = 0x514D5950
VERSION: Final = 1
ATTRIBUTE_PREPARED: Final = 0x01
# One record that stands in for an earlier one of the same log, for one work group alone: everybody else has that one, but for groups that
# are replayed, or made while the topic is paused, which get both.
ATTRIBUTE_RENEWED: Final = 0x02
# Whole batches that nobody is shown who reads the log.
ATTRIBUTES_PASSED_OVER: Final = ATTRIBUTE_PREPARED | ATTRIBUTE_RENEWED
COMPRESSION_MASK: Final = 0xF0
# What the broker itself writes has no protocol of origin. A batch with this producer carries a note of the broker's:
# the extra of that origin in its first record (`read_note`).
ORIGIN_NONE: Final = 0
PRODUCER_BROKER: Final = -2
# What a commit of prepared batches has appended: the producer's epoch is the number of the staging log, the sequence the
# offset of the first record there (core/prepared_commit.py).
PRODUCER_PREPARED: Final = -3
# The body's distance takes the lower 24 bits of its word: all optional fields together stay below 16 MiB.
BODY_AT_MASK: Final = 0xFFFFFF

# id, epoch and sequence of who sends batches that have them
Producer = tuple[int, int, int]
NO_PRODUCER: Final = (-1, -1, -1)

# origin, attributes, segment id, epoch, count, base offset, base time, producer id, producer epoch, sequence
SealedFields = tuple[int, int, int, int, int, int, int, int, int, int]

_HEADER: Final = struct.Struct("<IIIBBHQIIqqqi4xq8x")
_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")
_EXTRA: Final = struct.Struct("<BI")
_TIME_MAX_NS: Final = 2**63 - 1

_FLAG_TIME: Final = 0x01
_FLAG_EXPIRY: Final = 0x02
_FLAG_KEY: Final = 0x04
_FLAG_HEADERS: Final = 0x08
_FLAG_EXTRAS: Final = 0x10

assert _HEADER.size == HEADER_SIZE_BYTES


@dataclass(frozen=True, slots=True)
class Message:
    """One message with everything that a record can hold: for tools, tests, clients and the paths that are not hot.

    `headers` are (name, value) pairs, `extras` are (protocol of origin, bytes) pairs. `time_ns` 0 is "the batch's
    own time" when a message is encoded; a message that was read has its real time.
    """

    body: bytes
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    extras: tuple[tuple[int, bytes], ...] = ()
    time_ns: int = 0
    expiry_ns: int | None = None


@dataclass(slots=True)
class BatchHeader:
    """The 80 bytes before the records, in the order of the wire. Not frozen: one is made per append, at half the cost.

    `seal` fills in `crc`, `magic`, `size` and `version`: who writes a batch leaves them alone.
    """

    crc: int = 0
    magic: int = MAGIC
    size: int = 0
    version: int = VERSION
    origin: int = 0
    attributes: int = 0
    segment_id: int = 0
    epoch: int = 0
    count: int = 0
    base_offset: int = 0
    base_time_ns: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as the buffers of Arrow arrays: `pyarrow.Array.from_buffers` takes each of them without a copy.

    Record i has `offsets[i]`, `times_us[i]` (microseconds since 1970) and the body `bodies[body_ends[i] :
    body_ends[i + 1]]`; keys likewise, with one bit per record in `key_valid` (lowest bit first). Record i has the
    headers `header_ends[i]` to `header_ends[i + 1]`; names and values of header j lie like bodies. int64: "q" arrays,
    int32: "i" arrays with one more element than there are rows.
    """

    count: int
    offsets: array[int]
    times_us: array[int]
    body_ends: array[int]
    bodies: bytearray
    key_count: int
    key_valid: bytearray
    key_ends: array[int]
    keys: bytearray
    header_count: int
    header_ends: array[int]
    name_ends: array[int]
    names: bytearray
    value_ends: array[int]
    values: bytearray


@dataclass(frozen=True, slots=True)
class SideColumns:
    """One element for each row of the `Columns` that they were made for, as buffers of Arrow arrays.

    `origins[i]` is a byte: the protocol of row i's batch or, where the batch has none, of its first extra that has one;
    ORIGIN_NONE where neither says. `expires_us[i]` ("q") is microseconds since 1970, 0 for what ended before, if the bit
    of row i is set in `expiry_valid` (lowest bit first); how many bits are set is `expiry_count`.
    """

    origins: bytearray
    expiry_count: int
    expiry_valid: bytearray
    expires_us: array[int]


def encode_message(message: Message, base_time_ns: int = 0) -> bytes:
    """Write one record with whatever optional fields the message has.

    Units:  `base_time_ns` is the time of the batch that the record is for; only used if the message has a time.
    Raises: Refusal (BATCH_TOO_LARGE) when key, headers and extras together reach 16 MiB.
    """
    flags = 0
    parts: list[bytes] = []
    if message.time_ns:
        flags |= _FLAG_TIME
        parts.append(_I64.pack(message.time_ns - base_time_ns))
    if message.expiry_ns is not None:
        flags |= _FLAG_EXPIRY
        parts.append(_I64.pack(message.expiry_ns))
    if message.key is not None:
        flags |= _FLAG_KEY
        parts += (_U32.pack(len(message.key)), message.key)
    if message.headers:
        flags |= _FLAG_HEADERS
        fields = b"".join([_U32.pack(len(name)) + name + _U32.pack(len(value)) + value for name, value in message.headers])
        parts += (_U32.pack(len(fields)), fields)
    if message.extras:
        flags |= _FLAG_EXTRAS
        fields = b"".join([_EXTRA.pack(origin, len(data)) + data for origin, data in message.extras])
        parts += (_U32.pack(len(fields)), fields)
    options = b"".join(parts)
    body_at = RECORD_OVERHEAD_BYTES + len(options)
    if body_at > BODY_AT_MASK:
        raise Refusal(RefusalCode.BATCH_TOO_LARGE, "key, headers and extras of a message are too large")
    return b"".join((_U32.pack(body_at + len(message.body)), _U32.pack(flags << 24 | body_at), options, message.body))


def seal(target: bytearray, at: int, end: int, header: BatchHeader) -> None:
    """Write the header of the batch whose records lie in `target[at + HEADER_SIZE_BYTES : end]`: the CRC last."""
    fields = (
        header.origin,
        header.attributes,
        header.segment_id,
        header.epoch,
        header.count,
        header.base_offset,
        header.base_time_ns,
        header.producer_id,
        header.producer_epoch,
        header.sequence,
    )
    seal_fields(target, at, end, fields)


def seal_fields(target: bytearray, at: int, end: int, fields: SealedFields) -> None:
    """Do what `seal` does, from a tuple of the header's fields behind `version`: a microsecond less per batch."""
    assert at >= 0
    assert at + HEADER_SIZE_BYTES + RECORD_OVERHEAD_BYTES <= end <= len(target)
    assert fields[4] >= 1
    _HEADER.pack_into(target, at, 0, MAGIC, end - at, VERSION, *fields)
    _U32.pack_into(target, at, crc32c(memoryview(target)[at + 4 : end]))


def parse_header(view: Buffer, at: int) -> BatchHeader:
    """Read the header at `at`; whether it is one is `check`'s to say. HEADER_SIZE_BYTES bytes must be there."""
    return BatchHeader(*_HEADER.unpack_from(view, at))


def read_messages(view: Buffer, position: int, batch_left: int, base_time_ns: int, count: int, end: int) -> list[Message]:
    """Copy records out as objects, from the same fields that a `Slice` has.

    Raises: CorruptRecord when fewer than `count` sound records lie before `end`.
    Cost:   a few microseconds per message: for tools, tests and clients.
    """
    return [message for _attributes, message in _read(view, position, batch_left, base_time_ns, count, end)]


def read_shown(view: Buffer, position: int, batch_left: int, base_time_ns: int, count: int, end: int) -> list[tuple[int, Message]]:
    """Do as `read_messages`, but leave out what readers of the log pass over: gives (which of the `count`, message)."""
    rows = enumerate(_read(view, position, batch_left, base_time_ns, count, end))
    return [(index, message) for index, (attributes, message) in rows if not attributes & ATTRIBUTES_PASSED_OVER]


def _read(view: Buffer, position: int, batch_left: int, base_time_ns: int, count: int, end: int) -> Iterator[tuple[int, Message]]:
    """Give (attributes of its batch, message) of each; 0 for those of a batch in the midst of which the slice begins."""
    attributes = 0
    with memoryview(view) as whole:
        inside = whole[:end]
        for _ in range(count):
            try:
                if batch_left == 0:
                    attributes = parse_header(inside, position).attributes
                    position, batch_left, base_time_ns = _enter_batch(inside, position)
                record = _record_at(inside, position)
                message = _read_record(record, base_time_ns)
            except (struct.error, ValueError) as error:
                raise CorruptRecord("record batch", position=position, expected="a sound record", found="sizes that do not fit") from error
            yield attributes, message
            position += len(record)
            batch_left -= 1


def read_note(view: Buffer, at: int) -> bytes:
    """Read what the broker has noted in the batch at `at`; empty if nothing. Raises CorruptRecord."""
    (first,) = read_messages(view, at, 0, 0, 1, memoryview(view).nbytes)
    return b"".join([data for origin, data in first.extras if origin == ORIGIN_NONE])


def keys_of(view: Buffer, position: int, batch_left: int, count: int, end: int) -> list[bytes | None]:
    """Copy the keys of records out, from the fields that a `Slice` has; None for a record without one.

    Raises: CorruptRecord as `read_messages` does. Cost: about a microsecond per record.
    """
    keys: list[bytes | None] = []
    with memoryview(view) as whole:
        inside = whole[:end]
        for _ in range(count):
            try:
                if batch_left == 0:
                    position, batch_left, _time_ns = _enter_batch(inside, position)
                record = _record_at(inside, position)
                flags = record[7]
                at = RECORD_OVERHEAD_BYTES + 8 * bool(flags & _FLAG_TIME) + 8 * bool(flags & _FLAG_EXPIRY)
                keys.append(_take(record, at)[0] if flags & _FLAG_KEY else None)
            except (struct.error, ValueError) as error:
                raise CorruptRecord("record batch", position=position, expected="a sound record", found="sizes that do not fit") from error
            position += len(record)
            batch_left -= 1
    return keys


def _enter_batch(view: memoryview, position: int) -> tuple[int, int, int]:
    """Read the header at `position`: where its records start, how many there are, and their time."""
    header = parse_header(view, position)
    if header.magic != MAGIC or header.count < 1:
        raise ValueError("no batch")
    return position + HEADER_SIZE_BYTES, header.count, header.base_time_ns


def _record_at(view: memoryview, position: int) -> memoryview:
    """Cut out the record at `position`; raises ValueError when it is not there as a whole."""
    size = _U32.unpack_from(view, position)[0]
    if size < RECORD_OVERHEAD_BYTES or size > len(view) - position:
        raise ValueError("no room")
    return view[position : position + size]


def _read_record(record: memoryview, base_time_ns: int) -> Message:
    """Take one record apart; raises struct.error or ValueError when its inner sizes do not fit."""
    word = _U32.unpack_from(record, 4)[0]
    flags, body_at = word >> 24, word & BODY_AT_MASK
    if not RECORD_OVERHEAD_BYTES <= body_at <= len(record):
        raise ValueError("body outside its record")
    fields = record[:body_at]
    at = RECORD_OVERHEAD_BYTES
    time_ns, expiry_ns, key = base_time_ns, None, None
    headers: list[tuple[bytes, bytes]] = []
    extras: list[tuple[int, bytes]] = []
    if flags & _FLAG_TIME:
        time_ns += _I64.unpack_from(fields, at)[0]
        if time_ns < 0 or time_ns > _TIME_MAX_NS:
            raise ValueError("time outside 64 bits")
        at += 8
    if flags & _FLAG_EXPIRY:
        expiry_ns = _I64.unpack_from(fields, at)[0]
        at += 8
    if flags & _FLAG_KEY:
        key, at = _take(fields, at)
    if flags & _FLAG_HEADERS:
        inner, at = _take(fields, at)
        position = 0
        while position < len(inner):
            name, position = _take(inner, position)
            value, position = _take(inner, position)
            headers.append((name, value))
    if flags & _FLAG_EXTRAS:
        inner, at = _take(fields, at)
        position = 0
        while position < len(inner):
            data, after = _take(inner, position + 1)
            extras.append((inner[position], data))
            position = after
    return Message(bytes(record[body_at:]), key, tuple(headers), tuple(extras), time_ns, expiry_ns)


def _take(source: bytes | memoryview, at: int) -> tuple[bytes, int]:
    """Copy out bytes that are preceded by their size; also tell where they end."""
    end = at + 4 + _U32.unpack_from(source, at)[0]
    if end > len(source):
        raise ValueError("size reaches outside")
    return bytes(source[at + 4 : end]), end
