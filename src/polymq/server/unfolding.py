"""Who has compressed input that is not handled yet, and how much of it is handled in one turn.

A piece of compressed input may be the size of a read and unfold to a thousand times that. It is handled piece by
piece, before anything new of that connection is read, and the others have their turns in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.limits import LAYER_NS_PER_TURN_MAX, LAYER_PIECES_PER_TURN_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Clock
    from polymq.server.connection import Connection

__all__ = ["Unfolding"]


class Unfolding:
    """The connections whose layers hold something. `handle` handles one piece, if the connection is to be read."""

    def __init__(self, clock: Clock, handle: Callable[[Connection], None]) -> None:
        self._clock = clock
        self._handle = handle
        self._connections: list[Connection] = []

    def __bool__(self) -> bool:
        """Whether there is anything to do in the next turn."""
        return bool(self._connections)

    def note(self, connection: Connection) -> None:
        """Have a connection handled; twice is once."""
        if not connection.unfolding:
            connection.unfolding = True
            self._connections.append(connection)

    def run(self) -> None:
        """Handle everybody for as long as the others can wait. Who has more is noted again meanwhile."""
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.unfolding = False
            self._unfold(connection)

    def _unfold(self, connection: Connection) -> None:
        until_ns = self._clock.monotonic_ns() + LAYER_NS_PER_TURN_MAX
        for _ in range(LAYER_PIECES_PER_TURN_MAX):
            self._handle(connection)
            if not connection.unfolding or self._clock.monotonic_ns() >= until_ns:
                return
            self._connections.remove(connection)
            connection.unfolding = False
        self.note(connection)
