"""Records of a spool as Arrow arrays. Notes (`polymq/spool/notes.py`) are taken apart by arithmetic on whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polymq.errors import CorruptRecord
from polymq.spark import columns as shared
from polymq.spool.notes import NOTE_SIZE_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.wire.records import Columns

__all__ = ["record_batch"]

_EXPIRY_SIZE_BYTES: Final = 8
_NOTES: Final = ("topic", "message_id", "attempts", "reply_to", "expires_at")


def record_batch(names: Sequence[str], protocol: str, found: Columns) -> pa.RecordBatch:
    """Make the columns that are wanted; what is not wanted is not made."""
    count = found.count
    wanted = set(names)
    arrays: dict[str, Any] = {"partition": 0, "protocol": protocol}
    if "value" in wanted:
        arrays["value"] = _binary(count, found.body_ends, found.bodies)
    if "offset" in wanted:
        arrays["offset"] = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(found.offsets)])
    if "timestamp" in wanted:
        arrays["timestamp"] = pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), count, [None, pa.py_buffer(found.times_us)])
    if "headers" in wanted and found.header_count:
        arrays["headers"] = _headers(found)
    if wanted.intersection(_NOTES):
        arrays |= _notes(found, wanted)
    return shared.record_batch(names, count, arrays)


def _binary(count: int, ends: Any, data: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _text(values: pa.Array) -> pa.Array:
    """Make strings of bytes; what is not UTF-8 is repaired, since Spark's strings are."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if each is None else each.decode("utf-8", "replace") for each in values.to_pylist()], pa.string())


def _headers(found: Columns) -> pa.Array:
    names = _text(_binary(found.header_count, found.name_ends, found.names))
    values = _binary(found.header_count, found.value_ends, found.values)
    structures = pa.StructArray.from_arrays([names, values], fields=list(shared.HEADER_TYPE))
    return pa.Array.from_buffers(
        pa.list_(shared.HEADERS_FIELD), found.count, [None, pa.py_buffer(found.header_ends)], children=[structures]
    )


def _notes(found: Columns, wanted: set[str]) -> dict[str, Any]:
    """Take the notes apart; raises CorruptRecord for what is none."""
    keys = np.frombuffer(found.keys, np.uint8)
    ends = np.frombuffer(found.key_ends, np.int32).astype(np.int64)
    starts, stops = ends[:-1], ends[1:]
    if found.key_count != found.count or (len(starts) and int((stops - starts).min()) < NOTE_SIZE_BYTES_MIN):
        raise CorruptRecord("the spool", position=0, expected="a note in each record", found="a record without one")
    attempts, topic_sizes, id_sizes, reply_sizes = (
        keys[starts + at].astype(np.int64) | keys[starts + at + 1].astype(np.int64) << 8 for at in (0, 2, 4, 6)
    )
    topics = starts + NOTE_SIZE_BYTES_MIN
    ids = topics + topic_sizes
    replies = ids + id_sizes
    expiries = replies + reply_sizes
    has_expiry = stops - expiries == _EXPIRY_SIZE_BYTES
    if bool(np.any(expiries + has_expiry * _EXPIRY_SIZE_BYTES != stops)):
        raise CorruptRecord("the spool", position=0, expected="a note", found="sizes that do not fit")
    made: dict[str, Any] = {}
    if "topic" in wanted:
        made["topic"] = _text(_pieces(keys, topics, topic_sizes))
    if "message_id" in wanted:
        made["message_id"] = _or_null(_text(_pieces(keys, ids, id_sizes)), id_sizes)
    if "reply_to" in wanted:
        made["reply_to"] = _or_null(_text(_pieces(keys, replies, reply_sizes)), reply_sizes)
    if "attempts" in wanted:
        made["attempts"] = pa.array(attempts.astype(np.int32), pa.int32(), mask=attempts == 0)
    if "expires_at" in wanted:
        made["expires_at"] = _expiries(keys, expiries, has_expiry)
    return made


def _or_null(values: pa.Array, sizes: Any) -> pa.Array:
    return pc.if_else(pa.array(sizes > 0), values, pa.scalar(None, pa.string()))


def _pieces(data: Any, starts: Any, sizes: Any) -> pa.Array:
    """Gather pieces of a buffer into one array."""
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    size = int(sizes[0]) if len(sizes) else 0
    if len(sizes) and bool(np.all(sizes == size)):
        gathered = data[starts[:, None] + np.arange(size)]
    else:
        places = np.arange(int(ends[-1])) + np.repeat(starts - ends[:-1], sizes)
        gathered = data[places]
    return _binary(len(sizes), ends, np.ascontiguousarray(gathered).reshape(-1))


def _expiries(data: Any, starts: Any, has_expiry: Any) -> pa.Array:
    values = np.zeros(len(starts), np.int64)
    if bool(has_expiry.any()):
        rows = data[starts[has_expiry][:, None] + np.arange(_EXPIRY_SIZE_BYTES)]
        values[has_expiry] = np.ascontiguousarray(rows).reshape(-1).view("<i8")
    return pa.array(values, pa.int64(), mask=~has_expiry).cast(pa.timestamp("us", tz="UTC"))
