"""From what a broker stores to what a program gets: bodies unpacked, ids made, names without their namespace."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from polymq.clients.rocketmq_messages import RocketMQMessage
from polymq.clients.rocketmq_naming import without_namespace
from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq import properties
from polymq.protocols.rocketmq.compression import unpack
from polymq.protocols.rocketmq.ids import offset_message_id
from polymq.protocols.rocketmq.stored import decode_stored

if TYPE_CHECKING:
    from polymq.clients.rocketmq_connection import Answer
    from polymq.clients.rocketmq_messages import Settler
    from polymq.clients.rocketmq_routes import MessageQueue

__all__ = ["delivered"]

_log: Final = logging.getLogger(__name__)
# A body is at most 4 MiB before it is packed unless a broker is told otherwise; this is what unfolds of one.
_BODY_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024


def delivered(answer: Answer, queue: MessageQueue, settler: Settler | None, namespace: str = "") -> list[RocketMQMessage]:
    """Make messages of the body of a pull's answer. One whose body does not unpack is delivered as it is, and logged.

    Raises:  RemoteProtocolError when the body is no list of messages.
    """
    found = []
    for stored in decode_stored(answer.body):
        named = properties.parse(stored.properties)
        try:
            body = unpack(stored.body, stored.sys_flag, _BODY_SIZE_BYTES_MAX)
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
