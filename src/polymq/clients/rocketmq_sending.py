"""How a message is written for its broker: fields, packed bodies, names, and which queue it goes to. Knows no connection."""

from __future__ import annotations

import functools
import os
import secrets
import socket
import time
import zlib
from typing import TYPE_CHECKING, Final

from polymq.clients.rocketmq_options import own_address
from polymq.errors import LocalProtocolError
from polymq.protocols.rocketmq import properties
from polymq.protocols.rocketmq.batches import BatchPart, join_batch
from polymq.protocols.rocketmq.codes import SysFlag
from polymq.protocols.rocketmq.ids import UniqueKeys
from polymq.protocols.rocketmq.names import AUTO_CREATE_TOPIC, send_problem, tag_hash, topic_problem
from polymq.rocketmq_limits import FRAME_SIZE_BYTES_MAX, MESSAGE_COUNT_PER_BATCH_MAX, PROPERTIES_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.clients.rocketmq_messages import OutgoingMessage
    from polymq.clients.rocketmq_routes import MessageQueue

__all__ = ["NEW_TOPIC_QUEUES", "by_key", "check_topic", "joined", "new_key", "packed", "raw_properties", "send_fields"]

# Queues of a topic that is made by the first message to it, as Java's clients ask for.
NEW_TOPIC_QUEUES: Final = 4
# What a frame has room for besides its header.
_BODY_SIZE_BYTES_MAX: Final = FRAME_SIZE_BYTES_MAX - 256 * 1024
_SIGN_BIT: Final = 31


@functools.cache
def _keys(process_id: int) -> UniqueKeys:
    """Have one source of names per process, also behind a fork."""
    return UniqueKeys(socket.inet_aton(own_address()), process_id, secrets.randbits(32))


def new_key() -> str:
    """Name a message, as Java's clients do."""
    return _keys(os.getpid()).make(time.time_ns() // 1_000_000)


def check_topic(topic: str) -> None:
    """Refuse a topic, as it is called on the wire, that no broker takes messages for; raises LocalProtocolError."""
    problem = topic_problem(topic) or send_problem(topic)
    if problem is not None:
        raise LocalProtocolError(problem)


def java_hash(key: str | int) -> int:
    """Hash as Java's String or Long does."""
    if isinstance(key, str):
        return tag_hash(key)
    mixed = (key ^ (key >> 32)) & 0xFFFFFFFF
    return mixed - (mixed >> _SIGN_BIT << 32)


def by_key(queues: Sequence[MessageQueue], key: str | int) -> MessageQueue:
    """Choose the queue for a sharding key: the one that SelectMessageQueueByHash of Java's chooses."""
    return queues[abs(java_hash(key)) % len(queues)]


def raw_properties(message: OutgoingMessage, unique_key: str) -> str:
    """Write the properties of a message; raises LocalProtocolError when there are too many."""
    raw = properties.encode(message.all_properties(unique_key))
    if len(raw) > PROPERTIES_SIZE_BYTES_MAX:
        raise LocalProtocolError(f"{len(raw)} bytes of properties; no message has more than {PROPERTIES_SIZE_BYTES_MAX}")
    return raw.decode()


def packed(body: bytes, *, above_bytes: int, level: int) -> tuple[bytes, int]:
    """Pack a large body, if that makes it smaller; returns what is sent, and the sysFlag that says so."""
    if len(body) > above_bytes:
        smaller = zlib.compress(body, level)
        if len(smaller) < len(body):
            return _sized(smaller), int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
    return _sized(body), 0


def _sized(body: bytes) -> bytes:
    if len(body) > _BODY_SIZE_BYTES_MAX:
        raise LocalProtocolError(f"{len(body)} bytes of body; no frame has room for more than {_BODY_SIZE_BYTES_MAX}")
    return body


def send_fields(
    group: str, queue: MessageQueue, *, born_ms: int, raw_properties: str, sys_flag: int = 0, flag: int = 0, is_batch: bool = False
) -> dict[str, str]:
    """Write the fields of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.

    Source: RocketMQ 4.9.8, SendMessageRequestHeaderV2, whose names they are.
    """
    return {
        "a": group,
        "b": queue.topic,
        "c": AUTO_CREATE_TOPIC,
        "d": str(NEW_TOPIC_QUEUES),
        "e": str(queue.queue_id),
        "f": str(sys_flag),
        "g": str(born_ms),
        "h": str(flag),
        "i": raw_properties,
        "j": "0",
        "k": "false",
        "m": "true" if is_batch else "false",
        "n": queue.broker_name,
    }


def joined(messages: Sequence[OutgoingMessage], unique_keys: Sequence[str], *, is_placed: bool = False) -> bytes:
    """Write the body of a batch, for a queue that has been chosen or for any; raises LocalProtocolError when these messages cannot be sent together."""
    if not messages:
        raise LocalProtocolError("a batch has at least one message")
    if len(messages) > MESSAGE_COUNT_PER_BATCH_MAX:
        raise LocalProtocolError(f"{len(messages)} messages; a batch has at most {MESSAGE_COUNT_PER_BATCH_MAX}")
    if len({each.topic for each in messages}) > 1:
        raise LocalProtocolError("the messages of a batch have one topic")
    if not is_placed and len({each.sharding_key for each in messages}) > 1:
        raise LocalProtocolError("the messages of a batch go to one queue, so they have one sharding key")
    if any(each.is_delayed for each in messages):
        raise LocalProtocolError("the messages of a batch are not delayed")
    pairs = zip(messages, unique_keys, strict=True)
    return _sized(join_batch([BatchPart(each.body, raw_properties(each, key).encode(), each.flag) for each, key in pairs]))
