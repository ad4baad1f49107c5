"""Messages as the log keeps them and as RocketMQ's clients get them: records, native extras, stored messages. Hot; compiled if possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from array import array

    from polymq.protocols.rocketmq.events import Sends
    from polymq.protocols.rocketmq.places import Place
    from polymq.wire.batch import Message
    from polymq.wire.slices import Slice

__all__ = [
    "ORIGIN_ROCKETMQ",
    "Extra",
    "StoredMessage",
    "decode_stored",
    "encode_records",
    "encode_stored",
    "encode_stored_message",
    "make_extra",
    "make_message",
    "read_extra",
    "stored_room",
]

ORIGIN_ROCKETMQ: Final = 2


@dataclass(frozen=True, slots=True)
class Extra:
    """What a message of RocketMQ's has besides its body; what the log keeps of it is `make_extra`'s."""

    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: bytes = b"\x7f\0\0\1"
    born_port: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0
    tags_code: int = 0
    body_crc: int = 0
    properties: bytes = b""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as a client gets it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    body_crc: int = 0
    born_ms: int = 0
    born_host: bytes = b"\x7f\0\0\1"
    born_port: int = 0
    store_ms: int = 0
    store_host: bytes = b"\x7f\0\0\1"
    store_port: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0


def make_extra(extra: Extra) -> bytes:
    """Write the native extra of a message."""
    raise NotImplementedError


def read_extra(data: bytes) -> Extra | None:
    """Read a native extra; None if it is none that this version knows."""
    raise NotImplementedError


def make_message(body: bytes, extra: Extra) -> Message:
    """Make the core's message of RocketMQ's: tags code and checksum of the body are worked out here."""
    raise NotImplementedError


def encode_records(sends: Sends, order: memoryview, first: int, count: int) -> memoryview:
    """Write a record for each of the sends `order[first : first + count]`, for `Session.publish_records`."""
    raise NotImplementedError


def stored_room(slice_: Slice, place: Place, size_max: int) -> int:
    """Say how much room `encode_stored` needs at most."""
    raise NotImplementedError


def encode_stored(
    target: bytearray, at: int, slice_: Slice, place: Place, wanted: array[int] | None, count_max: int, size_max: int
) -> tuple[int, int, int, int]:
    """Write the stored messages of a slice of our log whose tags code is `wanted` (None: all) into `target` from `at` on.

    Gives where they end, how many there are, the offset to go on from, and how many records have been looked at. Stops behind `count_max` messages
    and before one that would make more than `size_max` bytes, though not before the first one.
    """
    raise NotImplementedError


def encode_stored_message(message: Message, offset: int, place: Place, *, topic: bytes | None = None) -> bytes:
    """Write one message as a stored one: for queries, and for what the broker asks of a producer."""
    raise NotImplementedError


def decode_stored(view: bytes | memoryview) -> list[StoredMessage]:
    """Read the stored messages of an answer. Raises RemoteProtocolError."""
    raise NotImplementedError
