"""Reading: where received bytes lie until a gateway has consumed them.

All connections are read into one buffer of the process, of which most get only the beginning. What a gateway leaves is put in front of the next read, so
that `feed` always sees one piece. A command larger than half the buffer gets a private buffer for its connection, and
is received into it directly until it has been consumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.limits import PENDING_INPUT_SIZE_BYTES_MAX, READ_BUFFER_SIZE_BYTES, READ_BULK_SIZE_BYTES, READS_MINDING_OTHERS
from polymq.wire.layers import LayerStack

if TYPE_CHECKING:
    from polymq.gateways.contract import Gateway
    from polymq.server.connection import Connection
    from polymq.wire.layers import Layer

__all__ = ["ENDED", "InputTooLarge", "Intake"]

ENDED: Final = memoryview(b"")
_SHARED_SIZE_BYTES_MAX: Final = READ_BUFFER_SIZE_BYTES // 2
_PRIVATE_SIZE_BYTES_MIN: Final = 2 * READ_BUFFER_SIZE_BYTES
# The one unused private buffer that is kept: fresh memory is paid for page by page.
_SPARE_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024


class InputTooLarge(Exception):
    """A gateway leaves more unconsumed than a connection may have."""


class Intake:
    """The shared buffer and the rules of what is kept where."""

    def __init__(self) -> None:
        # Pages that nobody has read into take no memory.
        self._bulk = memoryview(bytearray(READ_BULK_SIZE_BYTES))
        self._buffer = self._bulk[:READ_BUFFER_SIZE_BYTES]
        self._spare: bytearray | None = None
        # What the connection that was read last speaks, and for how many reads others are still minded.
        self._speech: type[Gateway] | None = None
        self._minding = READS_MINDING_OTHERS

    def read(self, connection: Connection) -> memoryview | None:
        """Receive once; return all that is unconsumed, old and new, ENDED when no more comes, None when none is there.

        The view is valid until the next call. Raises OSError, LayerFailed, InputTooLarge.
        """
        if connection.layers is not None:
            return self._read_layers(connection, connection.layers)
        private = connection.private
        try:
            if private is not None:
                at = connection.filled
                count = connection.stream.recv_into(memoryview(private)[at:])
                connection.filled = total = at + count
                return memoryview(private)[:total] if count else ENDED
            gateway = connection.gateway
            if gateway.__class__ is not self._speech:
                self._speech, self._minding = gateway.__class__, READS_MINDING_OTHERS
            elif self._minding:
                self._minding -= 1
            # Who speaks something else is not to wait until so much has been handled, turn by turn.
            buffer = self._bulk if gateway.bulky and not self._minding else self._buffer
            rest = connection.rest
            if not rest:
                count = connection.stream.recv_into(buffer)
                return buffer[:count] if count else ENDED
            at = len(rest)
            buffer[:at] = rest
            count = connection.stream.recv_into(buffer[at:])
        except BlockingIOError:
            return None
        return buffer[: at + count] if count else ENDED

    def held(self, connection: Connection) -> memoryview:
        """Return what was kept, to be fed once more."""
        if connection.private is not None:
            return memoryview(connection.private)[: connection.filled]
        return memoryview(connection.rest)

    def keep(self, connection: Connection, view: memoryview, consumed: int) -> None:
        """Keep what is left of `view`; raises InputTooLarge."""
        left = len(view) - consumed
        assert 0 <= left <= len(view)
        need = connection.gateway.need
        if need > _SHARED_SIZE_BYTES_MAX or left > _SHARED_SIZE_BYTES_MAX:
            self._keep_private(connection, view, consumed, need)
        elif connection.private is not None:
            connection.rest = bytes(view[consumed:])
            self.release(connection)
        elif not left:
            connection.rest = b""
        elif consumed or view.obj is not connection.rest:
            connection.rest = bytes(view[consumed:])

    def discard(self, connection: Connection) -> bool:
        """Receive once and throw it away; False when no more comes. Raises OSError."""
        try:
            return connection.stream.recv_into(self._buffer) > 0
        except BlockingIOError:
            return True

    def upgrade(self, connection: Connection, layer: Layer) -> None:
        """Put all unconsumed input through a new layer; raises LayerFailed."""
        raw = bytes(self.held(connection))
        self.release(connection)
        connection.rest = b""
        if connection.layers is None:
            connection.layers = LayerStack()
        connection.layers.push_input(layer)
        if raw:
            connection.rest = layer.receive(raw)

    def release(self, connection: Connection) -> None:
        """Take the private buffer back from a connection that needs it no more."""
        private = connection.private
        if private is not None:
            connection.private = None
            connection.filled = 0
            if len(private) <= _SPARE_SIZE_BYTES_MAX and (self._spare is None or len(private) > len(self._spare)):
                self._spare = private

    def _keep_private(self, connection: Connection, view: memoryview, consumed: int, need: int) -> None:
        left = len(view) - consumed
        private = connection.private
        room = len(private) if private is not None else 0
        if need > room or left == room:
            if need > PENDING_INPUT_SIZE_BYTES_MAX or left >= PENDING_INPUT_SIZE_BYTES_MAX:
                raise InputTooLarge
            grown = self._take(max(need, 2 * left))
            grown[:left] = view[consumed:]
            self.release(connection)
            connection.private = grown
        elif consumed:
            assert private is not None
            private[:left] = private[consumed : consumed + left]
        connection.filled = left
        connection.rest = b""

    def _take(self, size: int) -> bytearray:
        spare = self._spare
        if spare is not None and len(spare) >= size:
            self._spare = None
            return spare
        size = min(max(size, _PRIVATE_SIZE_BYTES_MIN), PENDING_INPUT_SIZE_BYTES_MAX)
        return bytearray(min(1 << (size - 1).bit_length(), PENDING_INPUT_SIZE_BYTES_MAX))

    def _read_layers(self, connection: Connection, layers: LayerStack) -> memoryview | None:
        """Receive through the layers; what they have received before and not given out comes first."""
        if layers.holding:
            data = b""
        else:
            try:
                count = connection.stream.recv_into(self._buffer)
            except BlockingIOError:
                return None
            if not count:
                return ENDED
            data = bytes(self._buffer[:count])
        plain = layers.receive(data)
        if plain:
            return self._join(connection, plain)
        return ENDED if layers.closing else None

    def _join(self, connection: Connection, plain: bytes) -> memoryview:
        """Put new input behind what was kept; raises InputTooLarge."""
        private = connection.private
        if private is None:
            rest = connection.rest
            return memoryview(rest + plain if rest else plain)
        at = connection.filled
        total = at + len(plain)
        if total > len(private):
            if total > PENDING_INPUT_SIZE_BYTES_MAX:
                raise InputTooLarge
            grown = self._take(total)
            grown[:at] = private[:at]
            self.release(connection)
            connection.private = private = grown
        private[at:total] = plain
        connection.filled = total
        return memoryview(private)[:total]
