"""What the pump asks of every gateway, and what a gateway may leave to the default.

A gateway is one connection's protocol: it is handed bytes and deliveries and returns effects (`effects.py`); it does
no I/O and never sees a socket. Everything is called from one thread, and one call runs to its end before the next.
The order of a connection's life: `opened`, then any of the others, then `ended` exactly once, and nothing after it.
Read next: `outbox.py` (where deliveries are encoded), `server/pump.py` (who calls all this).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from polymq.gateways.effects import Close
from polymq.limits import OUTBOX_SIZE_BYTES_MAX
from polymq.wire.layers import Layer, LayerFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.group import Delivery
    from polymq.core.interest.targets import Target
    from polymq.gateways.effects import Effect, TimerName
    from polymq.gateways.live_sheet import LiveSheet
    from polymq.gateways.outbox import Outbox
    from polymq.wire.live import LiveBatch

    GatewayFactory = Callable[["Peer"], "Gateway"]

__all__ = ["HANDSHAKE_END", "HANDSHAKE_TIMEOUT", "Asked", "BaseGateway", "Gateway", "Layer", "LayerFailed", "Peer"]

# The reason of `upgrade_failed` when the peer did not shake hands in time.
HANDSHAKE_TIMEOUT: Final = "i/o timeout"
HANDSHAKE_END: Final = "EOF"


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end: `host` and `port` of the peer (a path and 0 for a unix socket), and where it came in.

    `host` of somebody who came by IPv4 is an address of IPv4, whatever the listener is. `local_host` is the address of ours that
    it has reached, for listeners that were told to find out.
    """

    host: str
    port: int
    listener: str = ""
    local_host: str = ""

    @property
    def remote_host(self) -> str:
        """The peer's IP address, as it is told to others: nothing for a unix socket."""
        return self.host if self.port else ""

    @property
    def address(self) -> str:
        """Host and port, as statistics and directories show them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Asked(Protocol):
    """A question that has been put."""

    def cancel(self) -> None:
        """Want no answer any more: `answered` is not called. Nothing happens once it was."""


class Gateway(Protocol):
    """One connection's protocol, as the pump sees it. Identity is its hash: it is its own subscriptions' listener."""

    unread_above: int  # input is not read while more output than this waits, in bytes
    bulky: bool  # much of what comes is large and only passed on: it had better be read in large pieces
    need: int  # feed() is not called with fewer bytes than this; at least 1, at most PENDING_INPUT_SIZE_BYTES_MAX
    ring: Callable[[], None]  # set by the pump before opened(); ask for woken() in this turn
    write_timeout_ns: int  # output waits so long and the peer takes none of it: the end; 0: as the pump's settings say
    overdue: bool  # set by the pump: that is why it ends

    def opened(self, effects: list[Effect]) -> None:
        """Say what a server says first, start timers."""

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Handle all input that can be handled; return the bytes consumed. The rest comes again, with more behind it.

        `view` is valid only during the call: no part of it may be kept, not even as a memoryview.
        After an effect that stops input (Pause, Ask, Close, Upgrade) nothing behind its cause may be consumed.
        """

    def deliver(self, delivery: Delivery, outbox: Outbox) -> None:
        """Encode a delivery for one of this gateway's subscriptions. `outbox` is the same object every time."""

    def deliver_live(self, batch: LiveBatch, target: Target, outbox: Outbox, sheet: LiveSheet | None) -> None:
        """Encode the target's pairs of a batch: valid during the call. May come while another call of this gateway runs.

        `sheet`: what another connection was just told of this batch, if there are several; a gateway may use it and put its own there.
        """

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Handle a timer set by SetTimer; it is unset already."""

    def full(self, effects: list[Effect]) -> None:
        """More than the high mark waits to be written: hold the subscriptions until writable()."""

    def writable(self, effects: list[Effect]) -> None:
        """Output has drained below the low mark, after full() or WantWritable."""

    def answered(self, token: int, answer: object, effects: list[Effect]) -> None:
        """Handle the answer to an Ask; None when the deadline passed."""

    def woken(self, effects: list[Effect]) -> None:
        """Do what ring() was called for."""

    def eof(self, effects: list[Effect]) -> None:
        """The peer will send nothing more: last words. Input that feed() did not consume is lost."""

    def upgraded(self, effects: list[Effect]) -> None:
        """The newest byte layer is of use: its handshake, if it has one, is over; no input has come through it yet."""

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        """The newest byte layer failed before it was of use; effects are sent without it, then the connection closes."""

    def stopping(self, effects: list[Effect]) -> None:
        """The server is about to stop: say what there is to say, and close."""

    def closed(self, reason: str) -> None:
        """Core's `Listener`: the topic or group of a subscription is gone."""

    def ended(self) -> None:
        """No more calls will come: unsubscribe, drop references."""


def _nobody_listens() -> None:
    """Stand in for the pump until there is one."""


class BaseGateway:
    """Defaults for what many protocols do not need. A subclass must have `feed`."""

    unread_above: int = OUTBOX_SIZE_BYTES_MAX
    bulky: bool = False
    need: int = 1
    write_timeout_ns: int = 0
    overdue: bool = False
    ring: Callable[[], None] = staticmethod(_nobody_listens)
    _closed_reason: str | None = None

    def opened(self, effects: list[Effect]) -> None:
        """Say nothing first."""

    def deliver(self, delivery: Delivery, outbox: Outbox) -> None:
        """Refuse: a gateway that never subscribes gets no deliveries."""
        raise AssertionError(f"{delivery!r} for {outbox!r} of a gateway that does not subscribe")

    def deliver_live(self, batch: LiveBatch, target: Target, outbox: Outbox, sheet: LiveSheet | None) -> None:
        """Refuse: a gateway without a target gets nothing."""
        raise AssertionError(f"{batch!r} for {target!r} and {outbox!r} of a gateway that does not listen ({sheet!r})")

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Have no timers."""

    def full(self, effects: list[Effect]) -> None:
        """Have nothing to hold."""

    def writable(self, effects: list[Effect]) -> None:
        """Have nothing to go on with."""

    def answered(self, token: int, answer: object, effects: list[Effect]) -> None:
        """Have asked nothing."""

    def woken(self, effects: list[Effect]) -> None:
        """Close if a subscription's topic or group is gone."""
        if self._closed_reason is not None:
            effects.append(Close(self._closed_reason))

    def eof(self, effects: list[Effect]) -> None:
        """Have no last words."""

    def upgraded(self, effects: list[Effect]) -> None:
        """Go on as before."""

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        """Have nothing to say about it."""

    def stopping(self, effects: list[Effect]) -> None:
        """Close."""
        effects.append(Close("shutting down"))

    def closed(self, reason: str) -> None:
        """Remember to close, in `woken`."""
        self._closed_reason = reason
        self.ring()

    def ended(self) -> None:
        """Have nothing to unsubscribe."""
