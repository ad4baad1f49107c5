"""What a gateway wants to happen, as data. The pump (`server/`) is the only one that does it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Ticket
    from polymq.gateways.contract import Layer

__all__ = [
    "Ask",
    "Close",
    "Effect",
    "Flush",
    "Pause",
    "Resume",
    "Send",
    "SendAfter",
    "SendAfterEach",
    "SetTimer",
    "TimerName",
    "Upgrade",
    "WantWritable",
]


class TimerName(enum.Enum):
    """The timers that a connection may have; setting one again moves it."""

    HEARTBEAT = "heartbeat"
    READ_DEADLINE = "read deadline"
    WRITE_DEADLINE = "write deadline"
    FLUSH = "flush"
    HANDSHAKE = "handshake"
    RETRY = "retry"


@dataclass(slots=True)
class Send:
    """Write these bytes behind everything that the connection already has to write.

    This and `SendAfter` are not frozen: that triples the cost of making one, and every round trip makes one.
    """

    data: bytes


@dataclass(slots=True)
class SendAfter:
    """Write `data` once `ticket` is durable; later output of the connection queues behind it.

    If the commit fails, `failure(reason)` gives the bytes to write instead, and the connection is closed. `data` may be
    empty. A connection that `publishes` is not read any more while the store is congested; other changes, such as the
    start of a group, cost the disk next to nothing.
    """

    ticket: Ticket
    data: bytes
    failure: Callable[[str], bytes]
    publishes: bool = True


@dataclass(slots=True)
class SendAfterEach:
    """Do as `SendAfter` for publishes to many partitions: of `data`, the next `sizes[i]` bytes wait for `tickets[i]`.

    One of these stands for as many of the other. What belongs to tickets before one that fails is still written.
    """

    tickets: list[Ticket]
    sizes: list[int]
    data: bytes
    failure: Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection once everything before has been written; input is no longer read. `reason` is logged.

    The gateway's `ended()` is called at once, so nothing more is delivered. `at_once`: what waits to be written is dropped.
    """

    reason: str = ""
    at_once: bool = False


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
    """Put a question to the outside; input stops until `Gateway.answered(token, answer)`, with None at the deadline."""

    token: int
    request: object
    deadline_ns: int


@dataclass(frozen=True, slots=True)
class Flush:
    """Write now what `Outbox.hold_below` keeps back."""


@dataclass(frozen=True, slots=True)
class WantWritable:
    """Call `Gateway.writable()` once in a later turn, when less than the low mark waits to be written."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Put a byte layer (TLS, compression) under this gateway: around all input not yet consumed and all later output.

    Output from before stays outside the layer. A `feed()` that returns this consumes nothing behind it. `timeout_ns`: of its
    handshake, if that is not to be the usual one.
    """

    layer: Layer
    timeout_ns: int | None = None


Effect = Send | SendAfter | SendAfterEach | Close | Pause | Resume | SetTimer | Ask | Flush | WantWritable | Upgrade
