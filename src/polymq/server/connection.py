"""One connection as the pump keeps it: data, and the two rules that need nothing else.

Only `pump.py` decides about it. Unconsumed input is in `rest` (small, put in front of the next read) or in `private` (a
large command on its way: a buffer of the connection's own, filled up to `filled`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from polymq.gateways.outbox import Outbox
from polymq.limits import LAYER_NS_PER_TURN_MAX, LAYER_PIECE_SIZE_BYTES_MAX, OUTBOX_SIZE_BYTES_HIGH

if TYPE_CHECKING:
    from polymq.core.ports import Clock
    from polymq.gateways.buffers import BufferPool
    from polymq.gateways.contract import Asked, Gateway, Peer
    from polymq.server.ports import Stream
    from polymq.wire.layers import LayerStack

__all__ = ["Connection", "ConnectionState", "PumpTimer"]


class ConnectionState(enum.IntEnum):
    """Only ever advances. From CLOSING on the gateway is not called any more."""

    OPEN = 0
    CLOSING = 1  # what waits is still written
    LINGERING = 2  # all is written and said so; input is thrown away until the peer closes
    CLOSED = 3


class PumpTimer(enum.Enum):
    """The pump's own deadlines of a connection, beside those of its gateway."""

    WRITE = "write"  # the peer has taken nothing for this long
    HANDSHAKE = "handshake"
    LINGER = "linger"
    ASK = "ask"


class Connection:
    """What the pump knows about one connection."""

    __slots__ = (
        "asking",
        "blocked",
        "consumes",
        "dirty",
        "filled",
        "flooded",
        "gated",
        "gateway",
        "layers",
        "outbox",
        "paused",
        "peer",
        "private",
        "publishes",
        "question",
        "rest",
        "resuming",
        "state",
        "stream",
        "unfolding",
        "unsent",
        "upgrading",
        "wants_writable",
        "watched",
        "wire",
    )

    def __init__(self, stream: Stream, gateway: Gateway, peer: Peer, pool: BufferPool) -> None:
        self.stream = stream
        self.gateway = gateway
        self.peer = peer
        self.state = ConnectionState.OPEN
        self.rest = b""
        self.private: bytearray | None = None
        self.filled = 0
        self.outbox = Outbox(pool)
        self.layers: LayerStack | None = None
        self.wire: Outbox | None = None  # with layers: what they made of the outbox
        self.watched = (False, False)
        self.asking: int | None = None  # the token of the question that input waits for
        self.question: Asked | None = None
        self.paused = False  # by its gateway
        self.publishes = False  # is not read while the store is congested
        self.consumes = False  # deliveries have come: what it is told otherwise waits for those of the turn
        self.blocked = False  # above the high mark, its gateway knows
        self.flooded = False  # above the maximum, not read
        self.unsent = False  # the last write did not take everything: watch for room
        self.upgrading = False  # the newest layer's handshake is not over
        self.unfolding = False  # in the pump's list of those whose layers hold more input
        self.gated = False  # in the pump's list of those that wait for a commit
        self.dirty = False  # in the pump's list of those that may have something to write
        self.wants_writable = False
        self.resuming = False  # what was kept of its input is to be handled before more is read

    def reads(self, *, congested: bool) -> bool:
        """Whether input is wanted."""
        if self.state is ConnectionState.OPEN:
            return not (self.paused or self.asking is not None or self.flooded or (congested and self.publishes))
        return self.state is ConnectionState.LINGERING

    def forget_question(self) -> None:
        """Want no answer to what was asked, if it is still to come."""
        question, self.question = self.question, None
        if question is not None:
            question.cancel()

    def waiting_size_bytes(self) -> int:
        """How much output waits in all."""
        return self.outbox.size_bytes + (self.wire.size_bytes if self.wire is not None else 0)

    def encode_layers(self, wire: Outbox, clock: Clock) -> bool:
        """Put what may be sent through the layers, piece by piece, as long as time and the room below allow it.

        Returns whether there is more to do in the next turn: output that had no time, or a new layer that was come to
        and has commits waiting behind it. Raises LayerFailed.
        """
        outbox, layers = self.outbox, self.layers
        assert layers is not None
        goes_on = False
        until_ns = clock.monotonic_ns() + LAYER_NS_PER_TURN_MAX
        while wire.size_bytes <= OUTBOX_SIZE_BYTES_HIGH:
            if piece := outbox.first(LAYER_PIECE_SIZE_BYTES_MAX):
                wire.write(layers.send(piece))
                outbox.sent(len(piece))
            layer = outbox.pass_mark()
            if layer is not None:
                layers.push_output(layer)
                goes_on = goes_on or outbox.gated
            elif not outbox.ready_size_bytes:
                break
            elif clock.monotonic_ns() >= until_ns:
                goes_on = True
                break
        if layers.wants_write():
            wire.write(layers.send(b""))
        if self.state is ConnectionState.CLOSING and not outbox.size_bytes:
            wire.write(layers.close())
        return goes_on
