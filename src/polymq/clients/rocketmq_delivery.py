"""From what a broker stores to what a program gets: bodies unpacked, ids made, names without their namespace."""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, Final

import cramjam

from polymq.clients.rocketmq_messages import RocketMQMessage
from polymq.clients.rocketmq_naming import without_namespace
from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq import properties
from polymq.protocols.rocketmq.codes import SysFlag
from polymq.protocols.rocketmq.ids import offset_message_id
from polymq.protocols.rocketmq.stored import decode_stored

if TYPE_CHECKING:
    from polymq.clients.rocketmq_connection import Answer
    from polymq.clients.rocketmq_messages import Settler
    from polymq.clients.rocketmq_routes import MessageQueue

__all__ = ["delivered", "unpack"]

_log: Final = logging.getLogger(__name__)
# A body is at most 4 MiB before it is packed unless a broker is told otherwise; this is what unfolds of one.
_BODY_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
_FIRST_ROOM_SIZE_BYTES: Final = 1024 * 1024


def unpack(body: bytes, sys_flag: int) -> bytes:
    """Unpack a body that its sender has packed; raises RemoteProtocolError when it is not what it says, or unfolds to too much."""
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    kind = sys_flag & SysFlag.COMPRESSION_MASK
    if kind in (SysFlag.COMPRESSION_LZ4, SysFlag.COMPRESSION_ZSTD):
        return _unpack_into_room(body, lz4=kind == SysFlag.COMPRESSION_LZ4)
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(body, _BODY_SIZE_BYTES_MAX)
    except zlib.error as error:
        raise RemoteProtocolError(f"a body that does not unpack: {error}", fatal=False) from error
    if not unpacker.eof:
        raise RemoteProtocolError("a body that is cut off, or unfolds to too much", fatal=False)
    return found


def _unpack_into_room(body: bytes, *, lz4: bool) -> bytes:
    """Unpack into more and more room, so that nobody's few bytes take all of the memory."""
    room = max(_FIRST_ROOM_SIZE_BYTES, 4 * len(body))
    failure: Exception | None = None
    while room <= 4 * _BODY_SIZE_BYTES_MAX:
        target = bytearray(min(room, _BODY_SIZE_BYTES_MAX))
        try:
            size = cramjam.lz4.decompress_into(body, target) if lz4 else cramjam.zstd.decompress_into(body, target)
            return bytes(target[:size])
        except cramjam.DecompressionError as error:
            failure = error
        room *= 4
    raise RemoteProtocolError("a body that does not unpack", fatal=False) from failure


def delivered(answer: Answer, queue: MessageQueue, settler: Settler | None, namespace: str = "") -> list[RocketMQMessage]:
    """Make messages of the body of a pull's answer. One whose body does not unpack is delivered as it is, and logged.

    Raises:  RemoteProtocolError when the body is no list of messages.
    """
    found = []
    for stored in decode_stored(answer.body):
        named = properties.parse(stored.properties)
        try:
            body = unpack(stored.body, stored.sys_flag)
        except RemoteProtocolError as error:
            _log.error("%s queue %d offset %d: %s", queue.topic, queue.queue_id, stored.queue_offset, error)
            body = stored.body
        topic = named.get(properties.RETRY_TOPIC) or stored.topic
        message = RocketMQMessage(without_namespace(namespace, topic), queue, stored.queue_offset, body, named, settler)
        message.attempts = stored.reconsume_times + 1
        message.flag = stored.flag
        message.born_ms = stored.born_ms
        message.stored_ms = stored.store_ms
        message.physical_offset = stored.physical_offset
        message.offset_id = offset_message_id(stored.store_host, stored.store_port, stored.physical_offset)
        for name in ("minOffset", "maxOffset"):
            if name in answer.ext:
                named[f"{name[:3].upper()}_OFFSET"] = answer.ext[name]
        found.append(message)
    return found
