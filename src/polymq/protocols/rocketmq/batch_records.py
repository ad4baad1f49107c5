"""The messages of a batch as records of the log, without an object for each. Hot; compiled if possible.

A message of a batch keeps all of its properties, those of the batch come behind them, and CLUSTER at the end. What `batches` says of the
layout is checked here, too; `extras` and `wire/records.py` have that of records. Read next: `stored`, the same for single sends.
"""

from __future__ import annotations

from typing import Final

import cython

from polymq.errors import RemoteProtocolError
from polymq.limits import BATCH_SIZE_BYTES_MAX
from polymq.protocols.rocketmq.checksums import CHECKSUM
from polymq.protocols.rocketmq.generic import GENERIC
from polymq.rocketmq_limits import MESSAGE_COUNT_PER_BATCH_MAX, PROPERTIES_SIZE_BYTES_MAX

if not cython.compiled:
    from polymq.protocols.rocketmq.checksums import Checksum
    from polymq.protocols.rocketmq.extras import Keeper  # noqa: TC001  # cimported where this is compiled
    from polymq.protocols.rocketmq.generic import Generic
    from polymq.wire.inline import copy, load_u32_be, store_u32

__all__ = ["encode_batch_records"]

# The five numbers before a body and the size of the properties behind it.
_HEAD_SIZE = cython.declare(cython.Py_ssize_t, 20)
_FIXED_SIZE = cython.declare(cython.Py_ssize_t, 22)
_BEFORE_EXTRA = cython.declare(cython.Py_ssize_t, 17)
_EXTRAS = cython.declare(cython.uint, 0x10)
_GROWTH = cython.declare(cython.Py_ssize_t, 4)
_ORIGIN = cython.declare(cython.uchar, 2)
_COUNT_MAX = cython.declare(cython.Py_ssize_t, MESSAGE_COUNT_PER_BATCH_MAX)
_PROPERTIES_SIZE_MAX = cython.declare(cython.Py_ssize_t, PROPERTIES_SIZE_BYTES_MAX)
# A batch's own head in the log.
_SIZE_MAX: Final = BATCH_SIZE_BYTES_MAX - 1024


def encode_batch_records(
    body: bytes, keeper: Keeper, *, sys_flag: int, born_ms: int, reconsume_times: int, properties: bytes
) -> tuple[memoryview, int]:
    """Write a record for each message of a batch, for `Session.publish_records`; gives how many they are, too.

    `keeper` has the producer's address and the cluster's name; the others are those of the request.
    Raises:  RemoteProtocolError (not fatal) when sizes do not fit, there is no message or more than MESSAGE_COUNT_PER_BATCH_MAX,
             properties are too large, or all together are: the real broker answers MESSAGE_ILLEGAL.
    Cost:    one copy of everything, about 200 ns each.
    """
    count: cython.Py_ssize_t = _count(body, len(body))
    if count <= 0:
        raise RemoteProtocolError("the batch is empty" if count == 0 else "a size in the batch does not fit", fatal=False)
    if count > _COUNT_MAX:
        raise RemoteProtocolError("too many messages in the batch", fatal=False)
    room = len(body) + count * (_BEFORE_EXTRA + keeper.overhead + len(properties) + 2)
    if room > _SIZE_MAX:
        raise RemoteProtocolError("the batch is too large with its properties", fatal=False)
    # What properties become for everybody else: one of three bytes (a name, a value, what is between them) ten more.
    room += _GROWTH * (_properties_sizes(body, len(body)) + count * (len(properties) + 4))
    target = bytearray(room)
    end: cython.Py_ssize_t = _write(target, body, len(body), keeper, sys_flag, born_ms, reconsume_times, properties, len(properties))
    if end < 0:
        raise RemoteProtocolError(f"msg properties length limit {PROPERTIES_SIZE_BYTES_MAX}B.", fatal=False)
    if end > _SIZE_MAX:
        raise RemoteProtocolError("the batch is too large with its properties", fatal=False)
    return memoryview(target)[:end], count


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _properties_size(body: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    return body[at] << 8 | body[at + 1]


@cython.cfunc
@cython.exceptval(check=False)
def _count(body: cython.const[cython.uchar][::1], end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Count the messages; -1 if a size does not fit."""
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    body_size: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    while at < end:
        if end - at < _FIXED_SIZE:
            return -1
        size = load_u32_be(body, at)
        body_size = load_u32_be(body, at + 16)
        if size < _FIXED_SIZE or size > end - at or body_size > size - _FIXED_SIZE:
            return -1
        if _properties_size(body, at + _HEAD_SIZE + body_size) > size - _FIXED_SIZE - body_size:
            return -1
        at += size
        count += 1
    return count


@cython.cfunc
@cython.exceptval(check=False)
def _properties_sizes(body: cython.const[cython.uchar][::1], end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Add up the sizes of the properties of a batch whose sizes fit."""
    at: cython.Py_ssize_t = 0
    total: cython.Py_ssize_t = 0
    while at < end:
        total += _properties_size(body, at + _HEAD_SIZE + load_u32_be(body, at + 16))
        at += load_u32_be(body, at)
    return total


@cython.cfunc
@cython.exceptval(check=False)
def _move_up(target: cython.uchar[::1], start: cython.Py_ssize_t, stop: cython.Py_ssize_t, distance: cython.Py_ssize_t) -> cython.int:
    """Move `target[start:stop]` up, over itself."""
    while stop > start:
        stop -= 1
        target[stop + distance] = target[stop]
    return 0


@cython.cfunc
@cython.exceptval(-2)
def _write(
    target: cython.uchar[::1],
    body: cython.const[cython.uchar][::1],
    end: cython.Py_ssize_t,
    keeper: Keeper,
    sys_flag: cython.longlong,
    born_ms: cython.longlong,
    reconsume_times: cython.longlong,
    properties: cython.const[cython.uchar][::1],
    outer_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the records of a batch whose sizes fit; -1 if some properties are too large."""
    checksum: Checksum = CHECKSUM
    generic: Generic = GENERIC
    generic_size: cython.Py_ssize_t
    flags: cython.uint
    at: cython.Py_ssize_t = 0
    source: cython.Py_ssize_t = 0
    extra: cython.Py_ssize_t
    start: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    body_size: cython.Py_ssize_t
    size: cython.Py_ssize_t
    flag: cython.longlong
    while source < end:
        body_size = load_u32_be(body, source + 16)
        size = _properties_size(body, source + _HEAD_SIZE + body_size)
        extra = at + _BEFORE_EXTRA
        start = extra + keeper.properties_at
        copy(target, start, body, source + _FIXED_SIZE + body_size, size)
        stop = start + size
        if outer_size:
            target[stop] = 2
            copy(target, stop + 1, properties, 0, outer_size)
            stop += 1 + outer_size
        stop = keeper.keep_properties(target, start, stop, False)
        if stop - start > _PROPERTIES_SIZE_MAX:
            return -1
        flags = _EXTRAS
        generic_size = keeper.generic_size
        if generic_size:
            _move_up(target, start, stop, generic_size)
            extra += generic_size
            stop += generic_size
            flags |= generic.write(target, at + 8, target, start + generic_size, stop)
        flag = load_u32_be(body, source + 12)
        keeper.write_fixed(target, extra, flag, sys_flag, born_ms, reconsume_times, checksum.body_crc(body, source + _HEAD_SIZE, body_size))
        store_u32(target, at, cython.cast(cython.uint, stop - at + body_size))
        store_u32(target, at + 4, flags << 24 | cython.cast(cython.uint, stop - at))
        store_u32(target, extra - 9, cython.cast(cython.uint, stop - extra + 5))
        target[extra - 5] = _ORIGIN
        store_u32(target, extra - 4, cython.cast(cython.uint, stop - extra))
        copy(target, stop, body, source + _HEAD_SIZE, body_size)
        at = stop + body_size
        source += load_u32_be(body, source)
    return at
