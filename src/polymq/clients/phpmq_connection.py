"""One connection of a PHPMQ client: `protocols/phpmq/frames` on an asyncio transport.

Nothing is answered, so nobody waits for anything but for room to write. Writes are gathered and made once per turn of the loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymq.clients.connection import ClientConnection
from polymq.errors import ConnectFailed, ConnectionLost, DeadlineExceeded, RemoteProtocolError
from polymq.protocols.phpmq.frames import FrameReader, Violation, WireMessage

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

__all__ = ["PhpmqConnection", "PhpmqOptions", "connect"]


@dataclass(frozen=True, slots=True)
class PhpmqOptions:
    """What can be chosen about a client.

    legacy: speak the older dialect, which the reference server understands: without TTL, 005 and 006
    tls:    how to check the server, for a port that speaks TLS
    """

    legacy: bool = False
    tls: ssl.SSLContext | None = None
    tls_host_name: str | None = None
    deadline_seconds: float = 10.0
    reconnect_seconds_first: float = 0.1
    reconnect_seconds_max: float = 10.0


class PhpmqConnection(ClientConnection):
    """The protocol object under a producer or a consumer. Made by `connect`."""

    def __init__(self) -> None:
        super().__init__()
        self.on_message: Callable[[WireMessage], None] = _ignore
        self.has_received = False
        self._reader = FrameReader()
        self._finishing = False
        self._was_reset = False

    # --- Called by asyncio --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Hand on each message that is whole now."""
        if self.reason is not None:
            return
        for found in self._reader.feed(data):
            if isinstance(found, Violation):
                self.abort(RemoteProtocolError(found.reason))
                return
            self.has_received = True
            self.on_message(found)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        self._was_reset = exc is not None
        super().connection_lost(exc)

    # --- Called by producers and consumers ----------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether what is sent still reaches the server."""
        return super().is_open and not self._finishing

    def send(self, data: bytes) -> None:
        """Write something with whatever else this turn of the loop writes."""
        if data and self.is_open:
            self._gather(data)

    async def drained(self) -> None:
        """Wait until the socket has taken most of what was written; raises why the connection was lost."""
        await asyncio.sleep(0)
        await self._writable.wait()
        if self.reason is not None:
            raise self.reason

    async def finish(self, deadline_seconds: float) -> None:
        """Write what is left, say that this was all, and wait until the server closes.

        It has read everything then, unless it has closed because it does not want something. Within TLS nobody can say that this was all
        without ending it: there the connection is closed as soon as all is written.
        Raises ConnectionLost, DeadlineExceeded.
        """
        transport = self._transport
        assert transport is not None
        self._flush()
        lost_before = self.reason
        self._finishing = True
        if lost_before is None:
            if transport.can_write_eof():
                transport.write_eof()
            else:
                transport.close()
        try:
            async with asyncio.timeout(deadline_seconds):
                await asyncio.shield(self.lost)
        except TimeoutError as error:
            self.abort(ConnectionLost("the connection was closed by this client"))
            raise DeadlineExceeded("the server has not read everything in time") from error
        if lost_before is not None:
            raise lost_before
        if self._was_reset and self.reason is not None:
            raise self.reason


async def connect(address: str, options: PhpmqOptions) -> PhpmqConnection:
    """Connect `host:port` or `unix:path`; raises ConnectFailed, DeadlineExceeded."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(options.deadline_seconds):
            if address.startswith("unix:"):
                _transport, connection = await loop.create_unix_connection(PhpmqConnection, address.removeprefix("unix:"))
            else:
                name = (options.tls_host_name or host.strip("[]")) if options.tls is not None else None
                _transport, connection = await loop.create_connection(
                    PhpmqConnection, host.strip("[]"), int(port), ssl=options.tls, server_hostname=name
                )
    except TimeoutError as error:
        raise DeadlineExceeded(f"connecting to {address} took longer than {options.deadline_seconds:g} s") from error
    except OSError as error:
        raise ConnectFailed(f"{address}: {error.strerror or error}") from error
    return connection


def _ignore(_message: object) -> None:
    """Stand where nobody listens."""
