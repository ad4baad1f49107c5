r"""What the log keeps of a message of RocketMQ's besides its body: the native extra, its layout and its hot writer.

    u8 version 1 | u8 size of the host, 4 or 16 | u16 0 | i32 flag | i32 sysFlag | i64 born, ms since 1970 | born host, i32 port
    i32 reconsume times | i64 prepared transaction offset | i32 tags code | u32 CRC of the body | properties, as they travel

Big-endian, as in stored messages, so what both have is copied. The properties are as a broker keeps them: without WAIT, and of single
sends with CLUSTER at the end. Read next: `stored.py`.
"""

from __future__ import annotations

from typing import Final

import cython

from polymq.protocols.rocketmq.generic import GENERIC
from polymq.protocols.rocketmq.names import tag_hash_bytes

if not cython.compiled:
    from polymq.protocols.rocketmq.generic import Generic
    from polymq.wire.inline import bytes_at, copy, equal_bytes, store_i64_be, store_u32_be

__all__ = ["EXTRA_VERSION", "FIXED_SIZE_BYTES", "NO_LONGER_PLAIN", "PROPERTIES_AT", "Keeper"]

EXTRA_VERSION: Final = 1
# With a host of 4 bytes; one of 16 takes 12 more.
FIXED_SIZE_BYTES: Final = 48
_FIXED_SIZE = cython.declare(cython.Py_ssize_t, 48)
PROPERTIES_AT: Final = FIXED_SIZE_BYTES
NO_LONGER_PLAIN: Final = -1
_SLOW = cython.declare(cython.Py_ssize_t, -1)
# Bits of sysFlag that are not the client's to set: hosts of 16 bytes, and what only brokers store.
_SYSTEM_BITS = cython.declare(cython.longlong, 0xF0)


@cython.final
@cython.cclass
class Keeper:
    """Writes the extras of what one client sends."""

    def __init__(self, born_host: bytes, born_port: int, cluster: str) -> None:
        assert len(born_host) in (4, 16)
        self._host = born_host
        self._port = born_port
        self._cluster = b"CLUSTER\x01" + cluster.encode()
        self._host_size, self._cluster_size = len(born_host), len(self._cluster)
        self._generic: Generic = GENERIC
        self.tags_code = self.generic_size = 0
        self.properties_at = _FIXED_SIZE - 4 + len(born_host)
        # What an extra takes beside the properties as they came.
        self.overhead = self.properties_at + len(self._cluster) + 1

    @cython.ccall
    @cython.exceptval(-2)
    def keep_properties(
        self, extras: cython.uchar[::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, single: cython.bint
    ) -> cython.Py_ssize_t:
        """Tidy the properties `extras[at:end]` as the real broker does, in place; gives where they end.

        WAIT, CLUSTER and what has no name or no value go, CLUSTER of ours comes to the end; `tags_code` is then the tags' hash, and
        `generic_size` what key and headers that everybody sees take in the record (`generic`): 0 if there are none.
        -1: one of them says that the message is more than an append (`properties.SLOW_PROPERTIES`). Those of a batch are not asked that
        (not `single`), and keep WAIT.
        """
        start: cython.Py_ssize_t = at
        stop: cython.Py_ssize_t
        colon: cython.Py_ssize_t
        kept: cython.Py_ssize_t = at
        size: cython.Py_ssize_t
        key_size: cython.Py_ssize_t = 0
        headers_size: cython.Py_ssize_t = 0
        is_kept: cython.bint
        self.tags_code = 0
        while start < end:
            stop = start
            colon = -1
            while stop < end and extras[stop] != 2:
                if extras[stop] == 1 and colon < 0:
                    colon = stop
                stop += 1
            if colon > start and colon < stop - 1:
                size = colon - start
                if single and _is_slow(extras, start, size):
                    return _SLOW
                is_kept = True
                if size == 4 and equal_bytes(b"KEYS", extras, start, 4):
                    key_size = 4 + stop - colon - 1
                elif size == 4 and equal_bytes(b"TAGS", extras, start, 4):
                    self.tags_code = hash_of(extras, colon + 1, stop)
                    headers_size += 8 + stop - start - 1
                elif size == 4 and equal_bytes(b"WAIT", extras, start, 4):
                    is_kept = not single
                elif size == 7 and equal_bytes(b"CLUSTER", extras, start, 7):
                    is_kept = False
                elif not (size == 8 and equal_bytes(b"UNIQ_KEY", extras, start, 8)) and not self._generic.is_system(extras, start, size):
                    headers_size += 8 + stop - start - 1
                if is_kept:
                    kept = _move(extras, kept, start, stop)
            start = stop + 1
        self.generic_size = key_size + (4 + headers_size if headers_size else 0)
        copy(extras, kept, self._cluster, 0, self._cluster_size)
        return kept + self._cluster_size

    @cython.ccall
    @cython.exceptval(check=False)
    def write_fixed(
        self,
        extras: cython.uchar[::1],
        at: cython.Py_ssize_t,
        flag: cython.longlong,
        sys_flag: cython.longlong,
        born_ms: cython.longlong,
        reconsume_times: cython.longlong,
        crc: cython.uint,
    ) -> cython.int:
        """Write all before the properties; the tags code is that of the properties that were tidied last."""
        size: cython.Py_ssize_t = self._host_size
        extras[at] = 1
        extras[at + 1] = size
        extras[at + 2] = 0
        extras[at + 3] = 0
        store_u32_be(extras, at + 4, cython.cast(cython.uint, flag & 0xFFFFFFFF))
        store_u32_be(extras, at + 8, cython.cast(cython.uint, sys_flag & ~_SYSTEM_BITS & 0xFFFFFFFF))
        store_i64_be(extras, at + 12, born_ms)
        copy(extras, at + 20, self._host, 0, size)
        at += 20 + size
        store_u32_be(extras, at, self._port)
        store_u32_be(extras, at + 4, cython.cast(cython.uint, reconsume_times & 0xFFFFFFFF))
        store_i64_be(extras, at + 8, 0)
        store_u32_be(extras, at + 16, cython.cast(cython.uint, self.tags_code & 0xFFFFFFFF))
        store_u32_be(extras, at + 20, crc)
        return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _move(extras: cython.uchar[::1], target: cython.Py_ssize_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Move a property down, and end it."""
    if target == start:
        target = stop
    else:
        while start < stop:
            extras[target] = extras[start]
            target += 1
            start += 1
    extras[target] = 2
    return target + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_slow(data: cython.uchar[::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    """Say whether a property of this name makes a message more than an append."""
    first: cython.int = data[at]
    # D, M, T
    if first != 68 and first != 77 and first != 84:
        return False
    if size == 5:
        return equal_bytes(b"DELAY", data, at, 5)
    if size == 8:
        return equal_bytes(b"MSG_TYPE", data, at, 8) or equal_bytes(b"TRAN_MSG", data, at, 8)
    if size < 14 or size > 16 or not equal_bytes(b"TIMER_DEL", data, at, 9):
        return False
    if size == 15:
        return equal_bytes(b"TIMER_DELAY_SEC", data, at, 15)
    if size == 14:
        return equal_bytes(b"TIMER_DELAY_MS", data, at, 14)
    return equal_bytes(b"TIMER_DELIVER_MS", data, at, 16)


@cython.ccall
@cython.exceptval(check=False)
def hash_of(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """Hash tags (`names.tag_hash`)."""
    code: cython.uint = 0
    start: cython.Py_ssize_t = at
    while at < end:
        if data[at] >= 128:
            return tag_hash_bytes(bytes_at(data, start, end - start))
        code = (31 * code + data[at]) & 0xFFFFFFFF
        at += 1
    return cython.cast(cython.longlong, code) - (0x100000000 if code >= 0x80000000 else 0)
