"""A server of a few lines on a unix socket: keeps what it is sent, and says what it is told to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from tests.unit.protocols.phpmq.streams import message

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["Server", "dispatch"]


def dispatch(content: bytes, number: int, *, ttl: int | None = 0, queue: bytes = b"q") -> bytes:
    rest = [] if ttl is None else [(5, b"%d" % ttl)]
    return message(3, (1, queue), (2, content), (3, b"%032d" % number), *rest)


class Server:
    """One at a time; `received` is everything from all connections, `greeting` is sent to each."""

    def __init__(self, folder: Path, greeting: bytes = b"") -> None:
        self.path = str(folder / "s")
        self.address = f"unix:{self.path}"
        self.greeting = greeting
        self.received = bytearray()
        self.changed = asyncio.Event()
        self.connections = 0
        self.writer: asyncio.StreamWriter | None = None
        self.closing_at_end = True
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        if self.writer is not None:
            self.writer.close()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writer = writer
        writer.write(self.greeting)
        try:
            while data := await reader.read(1 << 16):
                self.received += data
                self.changed.set()
        except ConnectionError:
            return
        if self.closing_at_end:
            writer.close()

    async def has(self, data: bytes) -> None:
        """Wait until something has been received."""
        async with asyncio.timeout(5):
            while data not in self.received:
                self.changed.clear()
                await self.changed.wait()

    def say(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    def hang_up(self) -> None:
        assert self.writer is not None
        self.writer.transport.abort()
