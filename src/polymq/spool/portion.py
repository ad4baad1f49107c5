"""What a receiver hands to the spooler: messages that came together, encoded, with what settles them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from polymq.wire.records import HEADER_SIZE_BYTES, Message, encode_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["NO_SALT", "Portion", "Receiver", "encode_records", "nothing"]

# Of a batch whose messages have no ids that could come again.
NO_SALT: Final = -1


def nothing() -> None:
    """Stand where there is nobody to tell."""


class Portion:
    """Messages of one source: one batch of the spool, settled together once that is durable.

    `data` has room for a batch header, and then `count` records up to `end`. `received` counts what came, redeliveries
    included; those that are nothing but redeliveries have `count` 0 and are only settled.
    """

    __slots__ = ("acknowledge", "count", "data", "end", "received", "salt", "time_ns", "touch")

    def __init__(
        self,
        data: bytearray,
        end: int,
        *,
        count: int,
        received: int,
        salt: int,
        time_ns: int,
        acknowledge: Callable[[], None] = nothing,
        touch: Callable[[], None] = nothing,
    ) -> None:
        assert HEADER_SIZE_BYTES <= end <= len(data)
        assert 0 <= count <= received
        self.data = data
        self.end = end
        self.count = count
        self.received = received
        self.salt = salt
        self.time_ns = time_ns
        self.acknowledge = acknowledge
        self.touch = touch


def encode_records(messages: Sequence[Message], time_ns: int) -> tuple[bytearray, int]:
    """Encode messages behind room for a header; gives the bytes and where they end. For what is not hot."""
    data = bytearray(HEADER_SIZE_BYTES)
    for message in messages:
        data += encode_message(message, time_ns)
    return data, len(data)


class Receiver(Protocol):
    """One end of a broker's connections. All calls are made on the event loop."""

    async def open(self) -> None:
        """Connect; raises PolyMQError when the server does not let us in or there is none in time."""

    async def take(self) -> list[Portion]:
        """Wait for messages and give all that have come; empty once it is closed. Raises PolyMQError."""

    def rest(self) -> list[Portion]:
        """Give what has come and would be lost with this process; empty where the broker sends it again."""

    async def close(self) -> None:
        """Disconnect; what has not been acknowledged goes back to the broker."""

    @property
    def touch_seconds(self) -> float:
        """How often portions that are not settled yet are to be touched."""
