"""What a bridge carries, and what it has to do with at its two ends. Read next: `bridge.py`, which drives them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from polymq.errors import PolyMQError

__all__ = ["BridgeSource", "BridgeTarget", "Carried", "Tally"]


@dataclass(slots=True, eq=False)
class Carried:
    """A message on its way: what every protocol's messages are made of, and `place`, which only its source understands.

    Messages of one `order` came in order. Not frozen: making a frozen object takes three times as long.
    Units:  expiry_ns is nanoseconds since 1970, behind which nobody wants the message; None for ever.
    """

    body: bytes = field(repr=False)
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes]] = ()
    expiry_ns: int | None = None
    order: str | int | None = None
    place: object = None

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return _OBJECTS_SIZE_BYTES + len(self.body) + sum(len(name) + len(value) for name, value in self.headers)


# The objects around a body, about.
_OBJECTS_SIZE_BYTES = 500


@dataclass(slots=True)
class Tally:
    """What a bridge has done so far, for whoever watches it.

    moved:     acknowledged by the target, or as near to that as its protocol comes
    skipped:   refused by the target, and left out because that was wanted
    expired:   not moved because its time was over
    gone:      removed from the source by its retention before it could be read
    again:     sent once more, or more often, because nobody knew whether the target had them; each message counts once
    dropped:   what the target cannot carry: field → how often
    """

    moved: int = 0
    size_bytes: int = 0
    skipped: int = 0
    expired: int = 0
    gone: int = 0
    again: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out that somebody could have wanted."""
        return not (self.skipped or self.gone)


class BridgeSource(Protocol):
    """Where messages come from."""

    async def open(self) -> None:
        """Connect, and find out where to begin; raises PolyMQError."""

    async def read(self) -> list[Carried] | None:
        """Wait for messages; none when the wait was long enough to call it idle, None at the end.

        A wait that is cancelled loses nothing. Raises PolyMQError; a TransportError is followed by another call.
        """

    def is_wanted(self, message: Carried) -> bool:
        """Tell whether it is still to be moved: not if the source will give it again anyway."""

    async def settle(self, messages: Sequence[Carried]) -> None:
        """Be done with messages, in the order of `read`: the target has them."""

    async def keep(self, *, moved: int, is_last: bool = False) -> None:
        """Write down how far it is settled, if that is due."""

    def left(self) -> int | None:
        """Say how many messages are still to be read, about; None where nobody knows."""

    async def close(self) -> None:
        """Disconnect; what was settled is on its way before that."""


class BridgeTarget(Protocol):
    """Where messages go."""

    @property
    def repeated(self) -> Collection[int]:
        """The places of those messages of the last `send` that were sent more than once in it, to find out which of them is refused."""

    async def open(self) -> None:
        """Connect; raises PolyMQError."""

    async def send(self, messages: Sequence[Carried]) -> list[PolyMQError | None]:
        """Send messages in their order, and say of each what went wrong: None when the target has it."""

    async def close(self) -> None:
        """Disconnect."""
