from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from polymq.clients.phpmq_connection import PhpmqOptions, connect
from polymq.errors import ConnectFailed, ConnectionLost
from tests.unit.clients.phpmq_server import Server, dispatch

if TYPE_CHECKING:
    from pathlib import Path


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(ConnectFailed):
        asyncio.run(connect(f"unix:{tmp_path}/nobody", PhpmqOptions()))


def test_what_is_sent_in_one_turn_is_written_together(tmp_path: Path) -> None:
    async def run() -> None:
        async with Server(tmp_path, dispatch(b"x", 1)) as server:
            connection = await connect(server.address, PhpmqOptions())
            found: list[bytes] = []
            connection.on_message = lambda message: found.append(message.content)
            connection.send(b"a")
            connection.send(b"")
            connection.send(b"b")
            await connection.drained()
            await server.has(b"ab")
            await connection.finish(5)
            assert not connection.is_open
            connection.send(b"c")
            with pytest.raises(ConnectionLost):
                await connection.drained()
            assert (bytes(server.received), found, connection.has_received) == (b"ab", [b"x"], True)

    asyncio.run(run())


def test_a_connection_that_was_lost_says_so_at_its_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with Server(tmp_path) as server:
            connection = await connect(server.address, PhpmqOptions())
            connection.send(b"a")
            await server.has(b"a")
            server.hang_up()
            await connection.lost
            with pytest.raises(ConnectionLost):
                await connection.finish(5)

    asyncio.run(run())


def test_a_connection_that_is_reset_while_it_ends_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with Server(tmp_path) as server:
            server.closing_at_end = False
            connection = await connect(server.address, PhpmqOptions())
            connection.send(b"a")
            await server.has(b"a")
            ending = asyncio.create_task(connection.finish(5))
            await asyncio.sleep(0)
            connection.connection_lost(ConnectionResetError("reset"))
            with pytest.raises(ConnectionLost):
                await ending

    asyncio.run(run())
