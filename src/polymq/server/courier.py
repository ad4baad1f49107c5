"""Bringing live messages from the connection that publishes them to those that listen, while they lie in the read buffer.

The core says who gets what (`core/live.py`) in the middle of a gateway's `feed`; this finds the connections, lets their
gateways encode, and has the pump write at the end of the turn.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polymq.core.live import Taker
from polymq.gateways.live_sheet import LiveSheet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.core.interest.targets import Target
    from polymq.gateways.effects import Effect
    from polymq.server.connection import Connection
    from polymq.wire.live import LiveBatch

__all__ = ["CourierMeans", "LiveCourier"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CourierMeans:
    """What the pump lends: each does to a connection what its name says."""

    apply: Callable[[Connection, list[Effect]], None]
    soil: Callable[[Connection], None]
    flush: Callable[[Connection], None]
    crash: Callable[[Connection, Exception], None]


class LiveCourier:
    """The core's `Courier` over the pump's connections."""

    def __init__(self, connections: Mapping[Any, Connection], pump: CourierMeans) -> None:
        self._connections = connections
        self._pump = pump
        # Who is being fed, and what it has said so far: what it gets of its own messages comes behind that.
        self._fed: Connection | None = None
        self._said: list[Effect] = []

    def begin(self, connection: Connection, effects: list[Effect]) -> None:
        """A connection is being fed; its gateway puts what it says into `effects`."""
        self._fed = connection
        self._said = effects

    def end(self) -> None:
        """It is not being fed any more."""
        self._fed = None

    def waiting_size_bytes(self, gateway: Any) -> int:
        """Say how much waits to be written to the connection of a gateway."""
        connection = self._connections.get(gateway)
        return 0 if connection is None else connection.waiting_size_bytes()

    def deliver(self, batch: LiveBatch, targets: list[Target], *, more: bool) -> None:
        """Have each target's gateway encode its pairs; see `core.live.Courier`."""
        connections, soil = self._connections, self._pump.soil
        afterwards: list[Callable[[], None]] = []
        sheet = LiveSheet() if len(targets) > 1 else None
        try:
            for target in targets:
                connection = connections.get(target.owner)
                if connection is None:
                    if isinstance(target.owner, Taker):
                        self._have_taken(batch, target, target.owner, afterwards)
                else:
                    try:
                        if connection is self._fed and self._said:
                            self._pump.apply(connection, self._said)
                            self._said.clear()
                        connection.gateway.deliver_live(batch, target, connection.outbox, sheet)
                    except Exception as error:
                        self._pump.crash(connection, error)
                    connection.consumes = True
                    soil(connection)
                    if more:
                        self._pump.flush(connection)
                target.clear()
        except BaseException:
            # Nobody may be left with pairs that would be looked up in the next batch.
            for target in targets:
                target.clear()
            raise
        finally:
            if sheet is not None:
                sheet.close()
        for then in afterwards:
            try:
                then()
            except Exception:
                log.exception("what was taken within the broker is lost: internal error")

    def _have_taken(self, batch: LiveBatch, target: Target, owner: Taker, afterwards: list[Callable[[], None]]) -> None:
        """Let something within the broker take its share; a bug of ours there costs nobody else anything."""
        try:
            then = owner.take(batch, target)
        except Exception:
            log.exception("messages for %r are lost: internal error", owner)
        else:
            if then is not None:
                afterwards.append(then)
