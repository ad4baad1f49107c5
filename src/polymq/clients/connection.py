"""One connection of a client: what those of NSQ, RocketMQ and PHPMQ have in common, on an asyncio transport.

What is written is gathered and written once per turn of the loop. This file knows no protocol: who makes a protocol's
connection of it says how data are read, and who waits for what. Read next: `nsq_connection.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Final

from polymq.errors import ConnectionLost

if TYPE_CHECKING:
    from polymq.errors import PolyMQError

__all__ = ["ClientConnection", "notice_vanished"]

# Written and not yet taken by the socket; who has to wait for room does so above it.
_WRITE_BUFFER_SIZE_BYTES_HIGH: Final = 1024 * 1024

# A server whose machine has vanished is noticed within two minutes, also by who only listens. Where the system has a name for it.
_KEPT_ALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 120_000))


def notice_vanished(transport: asyncio.BaseTransport) -> None:
    """Have the system end a connection whose peer has vanished: one of TCP, no other.

    So ends one, too, whose peer takes nothing of what was written for two minutes.
    """
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    with contextlib.suppress(OSError):  # it has ended already
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEPT_ALIVE:
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class ClientConnection(asyncio.Protocol):
    """The protocol object of one connection. `lost` is done when it has ended, and `reason` says why."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.reason: PolyMQError | None = None
        self._transport: asyncio.Transport | None = None
        self._output: list[bytes] = []
        self._flush_planned = False
        self._writable = asyncio.Event()
        self._writable.set()

    # --- Called by asyncio --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and notice when nobody is behind it any more."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        notice_vanished(transport)
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_SIZE_BYTES_HIGH)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        self._writable.set()
        if self.reason is None:
            self.reason = ConnectionLost(f"the server closed the connection: {exc}" if exc else "the server closed the connection")
        self._give_up(self.reason)
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The socket takes more again."""
        self._writable.set()

    # --- Called by clients --------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether what is sent still reaches the server."""
        return self._transport is not None and self.reason is None and not self._transport.is_closing()

    async def close(self) -> None:
        """Write what is left and close; returns when the connection has ended."""
        if self._transport is None:
            return
        self._flush()
        if not self._transport.is_closing():
            self._take_leave(self._transport)
        self.reason = self.reason or ConnectionLost("the connection was closed by this client")
        self._transport.close()
        await self.lost

    def abort(self, reason: PolyMQError) -> None:
        """Close at once; everybody who waits gets the reason."""
        if self.reason is None:
            self.reason = reason
        if self._transport is not None:
            self._transport.abort()

    # --- What protocols have of their own -----------------------------------------------------------------------------

    def _give_up(self, reason: PolyMQError) -> None:
        """Tell whoever waits for an answer that none will come."""

    def _take_leave(self, transport: asyncio.Transport) -> None:
        """Write what stands at the end of a connection."""

    def _folded(self, data: bytes) -> bytes:
        """Give what is written in place of data: something else within TLS or compression."""
        return data

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _gather(self, data: bytes) -> None:
        """Write something with whatever else this turn of the loop writes."""
        self._output.append(data)
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._output and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._folded(b"".join(self._output)))
        self._output.clear()
