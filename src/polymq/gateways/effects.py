"""What a gateway wants to happen, as data. The pump (`server/`) is the only one that does it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Ticket

__all__ = ["Ask", "Close", "Effect", "Pause", "Resume", "Send", "SendAfter", "SetTimer", "TimerName"]


class TimerName(enum.Enum):
    """The timers that a connection may have; setting one again moves it."""

    HEARTBEAT = "heartbeat"
    READ_DEADLINE = "read deadline"
    WRITE_DEADLINE = "write deadline"
    FLUSH = "flush"
    HANDSHAKE = "handshake"


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes behind everything that the connection already has to write."""

    data: bytes


@dataclass(frozen=True, slots=True)
class SendAfter:
    """Write `data` once `ticket` is durable; later output of the connection queues behind it.

    If the commit fails, `failure(reason)` gives the bytes to write instead, and the connection is closed.
    """

    ticket: Ticket
    data: bytes
    failure: Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection once everything before has been written; input is no longer read. `reason` is logged."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop reading this connection until `Resume`."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on reading this connection."""


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call `Gateway.timer(name)` at `due_ns` on the monotonic clock; None cancels."""

    name: TimerName
    due_ns: int | None


@dataclass(frozen=True, slots=True)
class Ask:
    """Put a question to the outside; input stops until `Gateway.answered(token, answer)` or the deadline."""

    token: int
    request: object
    deadline_ns: int


Effect = Send | SendAfter | Close | Pause | Resume | SetTimer | Ask
