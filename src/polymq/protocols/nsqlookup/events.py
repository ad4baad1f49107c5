"""What a node asked for, as the decoder hands it to the gateway.

Every event is legal where it stands: the decoder knows the connection's state. Names are valid, so they are text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polymq.protocols.nsqlookup.identify import Identity

__all__ = ["Event", "Identify", "Ping", "Register", "Unregister", "Violation"]


@dataclass(frozen=True, slots=True)
class Ping:
    """The node is alive; also legal before IDENTIFY."""


@dataclass(frozen=True, slots=True)
class Identify:
    """IDENTIFY with all that has to be in it."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Register:
    """The node has a topic; with a channel, both."""

    topic: str
    channel: str = ""


@dataclass(frozen=True, slots=True)
class Unregister:
    """The node no longer has a channel; without one, the topic and its channels."""

    topic: str
    channel: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something illegal: answer `text` and close. Nothing comes after it."""

    text: bytes


Event = Ping | Identify | Register | Unregister | Violation
