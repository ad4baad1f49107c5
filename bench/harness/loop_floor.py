"""A server that does nothing but answer: how fast one message can wait for another on this event loop.

Usage: loop_floor.py HOST:PORT. It answers IDENTIFY, SUB and each PUB with OK as soon as the last byte of the command is
there, keeps nothing, and is no broker: one round trip through it is the cost of the loop, the kernel and the generator.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import cast

import uvloop

OK = struct.pack(">ii", 6, 0) + b"OK"
SETTINGS = b'{"max_rdy_count":2500,"version":"1.3.0"}'
IDENTIFIED = struct.pack(">ii", 4 + len(SETTINGS), 0) + SETTINGS


class Answerer(asyncio.Protocol):
    """One connection: cuts the stream into commands and answers each."""

    def __init__(self) -> None:
        self.buffer = bytearray(b"")
        self.greeted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport. The loop's own class is not registered as an asyncio one."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer every command that is whole."""
        self.buffer += data
        if not self.greeted and len(self.buffer) >= 4:
            del self.buffer[:4]
            self.greeted = True
        while self.greeted and self._answer_one():
            pass

    def _answer_one(self) -> bool:
        line_end = self.buffer.find(b"\n")
        if line_end < 0:
            return False
        has_body = not self.buffer.startswith((b"SUB", b"NOP", b"RDY"))
        end = line_end + 1
        if has_body:
            if len(self.buffer) < end + 4:
                return False
            end += 4 + int(struct.unpack_from(">i", self.buffer, end)[0])
        if len(self.buffer) < end:
            return False
        self.transport.write(IDENTIFIED if self.buffer.startswith(b"IDENTIFY") else OK)
        del self.buffer[:end]
        return True


async def main() -> None:
    """Listen until killed."""
    host, port = sys.argv[1].split(":")
    server = await asyncio.get_running_loop().create_server(Answerer, host, int(port))
    await server.serve_forever()


uvloop.run(main())
