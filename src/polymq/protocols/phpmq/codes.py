"""The words of PHPMQ's wire: what kinds of messages and packets there are, and which packets make a message.

    message = "H" version(2 digits) type(3) count(2), then `count` packets in any order, nothing in between
    packet  = "P" type(2 digits) length(29), then `length` bytes

There are two dialects. The older one, which the reference server and client speak, has no TTL: type 001 has two packets and
003 three. Types 005 and 006 are only in the newer one; 002 and 004 are the same in both.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PACKETS", "VERSION", "MessageType", "PacketType"]

VERSION: Final = 1


class MessageType(enum.IntEnum):
    """What a message is."""

    SEND = 1  # client to server: a message for a queue
    CONSUME = 2  # client to server: at most so many messages of a queue at a time
    DISPATCH = 3  # server to client: a message of a queue
    ACKNOWLEDGE = 4  # client to server: done with
    REQUEUE = 5  # client to server: to the end of the queue, with a new TTL
    DEAD_LETTER = 6  # client to server: away, whatever its TTL


class PacketType(enum.IntEnum):
    """What a packet holds. Numbers are decimal digits without padding."""

    QUEUE = 1
    CONTENT = 2
    ID = 3
    COUNT = 4
    TTL = 5  # seconds; 0 never ends


_SEND: Final = (PacketType.QUEUE, PacketType.CONTENT)
_DISPATCH: Final = (PacketType.QUEUE, PacketType.CONTENT, PacketType.ID)
_NAMED: Final = (PacketType.QUEUE, PacketType.ID)
# Which packets a message of a type and a count has: nothing else is one.
PACKETS: Final[Mapping[tuple[int, int], tuple[PacketType, ...]]] = MappingProxyType(
    {
        (MessageType.SEND, 2): _SEND,
        (MessageType.SEND, 3): (*_SEND, PacketType.TTL),
        (MessageType.CONSUME, 2): (PacketType.QUEUE, PacketType.COUNT),
        (MessageType.DISPATCH, 3): _DISPATCH,
        (MessageType.DISPATCH, 4): (*_DISPATCH, PacketType.TTL),
        (MessageType.ACKNOWLEDGE, 2): _NAMED,
        (MessageType.REQUEUE, 3): (*_NAMED, PacketType.TTL),
        (MessageType.DEAD_LETTER, 2): _NAMED,
    }
)
