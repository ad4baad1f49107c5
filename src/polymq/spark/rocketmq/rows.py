"""Messages as Arrow record batches, by wrapping the buffers of `clients.rocketmq_queues.columns_of` without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from polymq.clients.rocketmq_queues import KEY, MESSAGE_ID, REPLY_TO, TAGS
from polymq.spark import columns
from polymq.spark.columns import HEADER_TYPE, HEADERS_FIELD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.clients.rocketmq_queues import Unfolded

__all__ = ["rows"]

_PROTOCOL: Final = "rocketmq"


def rows(names: Sequence[str], topic: str, partition: int, found: Unfolded, tags: Sequence[str] = ()) -> pa.RecordBatch:
    """Give the columns of these names of messages of one queue; with `tags` only of messages that have one of these.

    Brokers compare hashes of tags, so some have others. Texts that are not UTF-8 have their wrong bytes replaced, since Spark's
    strings are UTF-8.
    """
    count = found.count
    made: dict[str, Callable[[], Any]] = {
        "key": lambda: _text(found, KEY),
        "value": lambda: _binary(count, pa.py_buffer(found.body_ends), pa.py_buffer(found.bodies)),
        "topic": lambda: topic,
        "partition": lambda: partition,
        "offset": lambda: pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(found.offsets)]),
        "timestamp": lambda: pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), count, [None, pa.py_buffer(found.times_us)]),
        "headers": lambda: _headers(found),
        "protocol": lambda: _PROTOCOL,
        "message_id": lambda: _string(_text(found, MESSAGE_ID)),
        "attempts": lambda: _attempts(found),
        "tags": lambda: _string(_text(found, TAGS)),
        "reply_to": lambda: _string(_text(found, REPLY_TO)),
    }
    batch = columns.record_batch(names, count, {name: made[name]() for name in names if name in made})
    if tags:
        batch = batch.filter(pc.is_in(_string(_text(found, TAGS)), value_set=pa.array(list(tags), pa.string())))
    return batch


def _binary(count: int, ends: Any, data: Any, valid: Any = None) -> pa.Array:
    """Wrap values that lie one behind the other."""
    return pa.Array.from_buffers(pa.binary(), count, [valid, ends, data])


def _text(found: Unfolded, field: int) -> pa.Array:
    """Wrap one of the texts, null where a message has none."""
    count, width = found.count, (found.count + 7) // 8
    start = found.text_starts[field]
    ends = pa.py_buffer(found.text_ends).slice(4 * field * (count + 1), 4 * (count + 1))
    valid = pa.py_buffer(found.text_valid).slice(field * width, width)
    return _binary(count, ends, pa.py_buffer(found.texts).slice(start), valid)


def _string(found: pa.Array) -> pa.Array:
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if text is None else text.decode("utf-8", "replace") for text in found.to_pylist()], pa.string())


def _attempts(found: Unfolded) -> pa.Array:
    """Say how often each was delivered if it counts this time: what went back to the broker, and came again, says so."""
    before = pa.Array.from_buffers(pa.int32(), found.count, [None, pa.py_buffer(found.reconsume_times)])
    return pc.add(pc.min_element_wise(before, pa.scalar(2**31 - 2, pa.int32())), pa.scalar(1, pa.int32()))


def _headers(found: Unfolded) -> pa.Array:
    """Wrap the headers as lists of structures."""
    names = _string(_binary(found.header_count, pa.py_buffer(found.name_ends), pa.py_buffer(found.names)))
    values = _binary(found.header_count, pa.py_buffer(found.value_ends), pa.py_buffer(found.values))
    structures = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    return pa.Array.from_buffers(pa.list_(HEADERS_FIELD), found.count, [None, pa.py_buffer(found.header_ends)], children=[structures])
