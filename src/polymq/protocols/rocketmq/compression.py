"""Bodies that their senders have packed: unpacked, with a limit.

Clients pack what is larger than 4 KiB, and the sysFlag says how. A client that receives one unpacks it; the broker does so as
well when it stores one, since other protocols' clients could not.
"""

from __future__ import annotations

import zlib
from typing import Final

import cramjam

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.codes import SysFlag

__all__ = ["unpack"]

_COMPRESSED: Final = int(SysFlag.COMPRESSED)  # looked at for every message, which an enumeration takes long for
_FIRST_ROOM_SIZE_BYTES: Final = 1024 * 1024


def unpack(body: bytes, sys_flag: int, size_max: int) -> bytes:
    """Unpack a body that its sender has packed; raises RemoteProtocolError when it is not what it says, or unfolds to more than `size_max`."""
    if not sys_flag & _COMPRESSED:
        return body
    kind = sys_flag & SysFlag.COMPRESSION_MASK
    if kind in (SysFlag.COMPRESSION_LZ4, SysFlag.COMPRESSION_ZSTD):
        return _unpack_into_room(body, size_max, lz4=kind == SysFlag.COMPRESSION_LZ4)
    unpacker = zlib.decompressobj()
    try:
        # A byte more, or it would not be known whether that was all.
        found = unpacker.decompress(body, size_max + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"a body that does not unpack: {error}", fatal=False) from error
    if not unpacker.eof or len(found) > size_max:
        raise RemoteProtocolError("a body that is cut off, or unfolds to too much", fatal=False)
    return found


def _unpack_into_room(body: bytes, size_max: int, *, lz4: bool) -> bytes:
    """Unpack into more and more room, so that nobody's few bytes take all of the memory."""
    room = max(_FIRST_ROOM_SIZE_BYTES, 4 * len(body))
    failure: Exception | None = None
    while room <= 4 * size_max or failure is None:
        target = bytearray(min(room, size_max))
        try:
            size = cramjam.lz4.decompress_into(body, target) if lz4 else cramjam.zstd.decompress_into(body, target)
            return bytes(target[:size])
        except cramjam.DecompressionError as error:
            failure = error
        room *= 4
    raise RemoteProtocolError("a body that does not unpack", fatal=False) from failure
