"""What a client asked for, as the decoder hands it to the gateway: the only thing that passes between the two.

Runs of like commands are one event, so the hot ones (`Publish`, `Finish`) stand for thousands of commands. Names
and bodies are raw bytes; ids are message ids of the core. Every event is legal where it stands: the decoder knows
the connection's state, so an illegal command arrives as a `Violation` and nothing comes after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polymq.protocols.nsq.states import Command
    from polymq.wire.slices import MessageBatch

__all__ = [
    "Auth",
    "Cls",
    "Event",
    "Finish",
    "ForeignId",
    "Identify",
    "Nop",
    "Publish",
    "PublishBegun",
    "Ready",
    "Requeue",
    "SilentClose",
    "Subscribe",
    "Touch",
    "Violation",
]


@dataclass(frozen=True, slots=True)
class Identify:
    """IDENTIFY with its body, not looked at. Always the last event of its feed: what follows may be TLS."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Auth:
    """AUTH with its secret, which `repr` does not show. Always the last event of its feed: the answer takes time."""

    secret: bytes

    def __repr__(self) -> str:
        return "Auth(secret=<redacted>)"


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUB with valid names. The decoder takes its success for granted, because a failure ends the connection."""

    topic: bytes
    channel: bytes


@dataclass(frozen=True, slots=True)
class Ready:
    """RDY: at most `count` messages in flight from here on."""

    count: int


@dataclass(slots=True)
class Finish:
    """A run of FINs: `ids[first + i]` for i < `count`, an int64 memoryview (format "q").

    The array belongs to the decoder and is valid until its next feed. Not frozen, because making a frozen object
    takes three times as long and a consumer with one message in flight causes one of these for each.
    """

    ids: memoryview
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Requeue:
    """REQ, its delay already brought into the range that the settings allow."""

    id: int
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Touch:
    """TOUCH: the lease of this message starts again."""

    id: int


@dataclass(frozen=True, slots=True)
class ForeignId:
    """FIN, REQ or TOUCH of an id that this server cannot have minted: it is certainly not in flight."""

    command: Command
    raw_id: bytes


@dataclass(frozen=True, slots=True)
class Cls:
    """CLS: no more messages; what is in flight may still be settled."""


@dataclass(frozen=True, slots=True)
class Nop:
    """Commands without effect (NOP, RDY after CLS), at most one event per run: the client is alive."""


@dataclass(slots=True)
class Publish:
    """PUB, a run of PUBs to one topic, an MPUB (whole or not at all), or a DPUB.

    `answers` responses are owed: one for each PUB, one for an MPUB. The batch is valid as long as the view that was
    fed. Not frozen for the same reason as `Finish`.
    """

    topic: bytes
    batch: MessageBatch
    command: Command
    answers: int
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class PublishBegun:
    """The first line of an MPUB whose body is not all there, or is wrong.

    nsqd checks the permission and creates the topic at this point, so both show even if the body never comes. Not
    sent when the whole MPUB is in one feed: then its `Publish` has the same effect.
    """

    topic: bytes


@dataclass(frozen=True, slots=True)
class Violation:
    """The client broke the protocol: `text` is the error frame it is owed, then the connection is closed.

    Always the last event: the decoder takes no more input.
    """

    text: bytes


@dataclass(frozen=True, slots=True)
class SilentClose:
    """A command line without an end: the connection is closed without a word, as nsqd does."""


Event = (
    Identify
    | Auth
    | Subscribe
    | Ready
    | Finish
    | Requeue
    | Touch
    | ForeignId
    | Cls
    | Nop
    | Publish
    | PublishBegun
    | Violation
    | SilentClose
)
