"""A bad link between one producer and the broker: it can lose what the broker answers.

A batch can be in the log although its producer never saw the acknowledgement, because the network or the broker died in
between. Without help that is rare, and the proof that repeats are removed would have nothing to remove. So one of the
producers reaches the broker through this link, which goes quiet in one direction a moment before the kill.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Link"]

_CHUNK_SIZE_BYTES: Final = 64 * 1024


class Link:
    """Forwards TCP connections to a port of this machine, without the answers while it is `quiet`.

    `dropped` is set once an answer has been lost.
    """

    def __init__(self, target_port: int) -> None:
        self.quiet = False
        self.dropped = asyncio.Event()
        self.port = 0
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Link:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close everything."""
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._join(reader, writer), name="link")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward both ways until either side ends."""
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        ways = [
            asyncio.create_task(self._forward(reader, to_broker, answers=False), name="link to the broker"),
            asyncio.create_task(self._forward(from_broker, writer, answers=True), name="link from the broker"),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to_broker.close()
            writer.close()

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(_CHUNK_SIZE_BYTES):
                if answers and self.quiet:
                    self.dropped.set()
                    continue
                target.write(chunk)
                await target.drain()
