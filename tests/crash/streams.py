"""Sockets that look like simulated streams, so that the simulator's clients can talk to a real broker."""

from __future__ import annotations

import selectors
import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Poller", "SocketStream"]

# SO_LINGER with no time: closing sends a reset.
_RESET: Final = struct.pack("ii", 1, 0)


class Poller:
    """Finds out which streams can be read."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, stream: SocketStream) -> None:
        """Watch a stream."""
        self._selector.register(stream.socket, selectors.EVENT_READ, stream)

    def remove(self, stream: SocketStream) -> None:
        """Watch it no more."""
        self._selector.unregister(stream.socket)

    def wait(self, timeout_s: float) -> None:
        """Wait until a stream can be read, at most so long."""
        for key, _ in self._selector.select(timeout_s):
            key.data.readable = True


class SocketStream:
    """A client's end of a real connection; what it reads is shown to `on_receive` first."""

    def __init__(self, address: tuple[str, int], poller: Poller, on_receive: Callable[[bytes], None]) -> None:
        self.socket = socket.create_connection(address, timeout=5)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.readable = False
        self.writable = True  # a send that finds no room raises, and is tried again
        self._poller = poller
        self._on_receive = on_receive
        poller.add(self)

    @property
    def wakes_at_ns(self) -> int | None:
        """Now, if there is something to read; else nobody knows."""
        return 0 if self.readable else None

    def recv_into(self, buffer: bytearray) -> int:
        """Read what is there."""
        self.readable = False
        size = self.socket.recv_into(buffer)
        self._on_receive(bytes(buffer[:size]))
        return size

    def send(self, data: bytearray) -> int:
        """Write what fits."""
        return self.socket.send(data)

    def end_output(self) -> None:
        """Close one direction."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Hang up."""
        if self.socket.fileno() >= 0:
            self._poller.remove(self)
            self.socket.close()

    def reset(self) -> None:
        """Hang up as a machine does that has gone away."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()
