"""What the server can be told, typed. Where the values come from (file, environment, flags) is the caller's business."""

from __future__ import annotations

from dataclasses import dataclass, field

from polymq import limits
from polymq.server.spin import SpinSettings

__all__ = ["PumpSettings", "ShellSettings"]

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PumpSettings:
    """Times after which the pump gives up on a peer."""

    handshake_timeout_ns: int = 5 * _SECOND_NS  # of a byte layer, as nsqd has it
    write_timeout_ns: int = 60 * _SECOND_NS  # output waits and the peer takes none of it
    close_timeout_ns: int = 5 * _SECOND_NS  # the last output of a connection that is being closed
    linger_timeout_ns: int = 1 * _SECOND_NS  # the peer's side of a close; its unread input would cost it our last words


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """How the shell runs the pump."""

    spin: SpinSettings = field(default_factory=SpinSettings)
    connections_max: int = limits.CONNECTIONS_MAX
    # Beyond these: so many for each step of a listener's `room`, see `Shell.listen`.
    connections_spare: int = limits.CONNECTIONS_SPARE
    stop_timeout_ns: int = 5 * _SECOND_NS  # for connections to end when the server stops
    busy_ns: int = 2_000_000  # turns one after the other before the event loop gets its share
    backlog: int = 1024
