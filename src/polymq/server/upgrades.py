"""Byte layers that come under a connection while it runs: their handshakes, their success and their failure.

The pump says when; this file does what is to be done about it with the pump's own means. A layer is on its way
(`connection.upgrading`) from its `Upgrade` until its handshake is over; before that its failure is said without it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from polymq.gateways.contract import HANDSHAKE_TIMEOUT
from polymq.gateways.outbox import Outbox
from polymq.server.connection import PumpTimer
from polymq.server.intake import ENDED
from polymq.wire.layers import LayerFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Clock
    from polymq.gateways.buffers import BufferPool
    from polymq.gateways.effects import Effect
    from polymq.server.connection import Connection
    from polymq.server.intake import Intake
    from polymq.wire.layers import Layer

__all__ = ["PumpMeans", "Upgrades"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PumpMeans:
    """What the pump lends: each does to a connection what its name says."""

    call: Callable[[Connection, Callable[[list[Effect]], None]], None]
    soil: Callable[[Connection], None]
    feed_again: Callable[[Connection], None]
    set_timer: Callable[[Connection, PumpTimer, int | None], None]
    close: Callable[[Connection, str], None]
    drop: Callable[[Connection, str], None]


class Upgrades:
    """The upgrades of all connections of a pump."""

    def __init__(self, intake: Intake, pool: BufferPool, pump: PumpMeans, clock: Clock, *, timeout_ns: int) -> None:
        self._intake = intake
        self._pool = pool
        self._pump = pump
        self._clock = clock
        self._timeout_ns = timeout_ns

    def begin(self, connection: Connection, layer: Layer, timeout_ns: int | None = None) -> None:
        """Put a layer around all input not consumed and all later output. `timeout_ns`: of its handshake; None: the usual one."""
        connection.outbox.mark(layer)
        if connection.wire is None:
            connection.wire = Outbox(self._pool)
        self._pump.soil(connection)
        if not layer.established:
            connection.upgrading = True
            self._pump.set_timer(connection, PumpTimer.HANDSHAKE, self._clock.monotonic_ns() + (timeout_ns or self._timeout_ns))
        try:
            self._intake.upgrade(connection, layer)
        except LayerFailed as error:
            self.fail(connection, str(error))
            return
        if connection.upgrading:
            self.shake_hands(connection, None)
        else:
            self._pump.call(connection, connection.gateway.upgraded)
        self._pump.feed_again(connection)

    def shake_hands(self, connection: Connection, view: memoryview | None) -> memoryview | None:
        """See whether the handshake is over, and tell the gateway; returns what of the input is to be handled now.

        What came together with the end of the handshake is kept, and fed when the gateway has been told.
        """
        assert connection.layers is not None
        if not connection.layers.established or view is ENDED:
            return view
        self._end(connection)
        if view is not None:
            self._intake.keep(connection, view, 0)
        self._pump.call(connection, connection.gateway.upgraded)
        self._pump.feed_again(connection)
        return None

    def fail(self, connection: Connection, reason: str) -> None:
        """Give a connection up whose layer cannot go on: in the gateway's words, unless the layer was of use already."""
        layers, wire = connection.layers, connection.wire
        assert layers is not None
        assert wire is not None
        log.warning("%s: connection closed: %s", connection.peer, reason)
        if not connection.upgrading:
            self._pump.drop(connection, reason)
            return
        self._end(connection)
        layer = layers.pop()
        connection.outbox.cut(layer)
        if layer.wants_write():
            wire.write(layer.send(b""))
        self._pump.call(connection, partial(connection.gateway.upgrade_failed, reason))
        self._pump.close(connection, reason)

    def time_out(self, connection: Connection) -> None:
        """Give a handshake up that takes too long."""
        self.fail(connection, HANDSHAKE_TIMEOUT)

    def _end(self, connection: Connection) -> None:
        connection.upgrading = False
        self._pump.set_timer(connection, PumpTimer.HANDSHAKE, None)
