from __future__ import annotations

import asyncio

from examples.flights.link import Link


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data.upper())
    writer.close()


def test_a_quiet_link_loses_answers_and_nothing_else() -> None:
    async def play() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server, Link(server.sockets[0].getsockname()[1]) as link:
            reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
            writer.write(b"one")
            assert await reader.readexactly(3) == b"ONE"
            link.quiet = True
            writer.write(b"two")
            await link.dropped.wait()
            link.quiet = False
            writer.write(b"three")
            assert await reader.readexactly(5) == b"THREE"
            writer.close()
            await writer.wait_closed()

    asyncio.run(play())


def test_a_link_to_nowhere_closes() -> None:
    async def play() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        async with Link(port) as link:
            reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

    asyncio.run(play())
