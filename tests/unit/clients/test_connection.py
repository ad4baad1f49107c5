from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from polymq.clients.connection import ClientConnection, notice_vanished
from polymq.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from polymq.errors import PolyMQError


class Wire(asyncio.Transport):
    """What is written, and how it ended."""

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.ends: list[str] = []
        self._connection = connection
        connection.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high
        assert high > 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return bool(self.ends)

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def _end(self, how: str) -> None:
        self.ends.append(how)
        if len(self.ends) == 1:
            self._connection.connection_lost(None)


class Marked(ClientConnection):
    """Writes everything in brackets, and a stop at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.given_up: list[PolyMQError] = []

    def say(self, data: bytes) -> None:
        self._gather(data)

    async def room(self) -> None:
        await self._writable.wait()

    def _give_up(self, reason: PolyMQError) -> None:
        assert not self.lost.done()
        self.given_up.append(reason)

    def _take_leave(self, transport: asyncio.Transport) -> None:
        transport.write(b".")

    def _folded(self, data: bytes) -> bytes:
        return b"[" + data + b"]"


def run(story: Coroutine[object, object, None]) -> None:
    asyncio.run(story)


def test_what_a_turn_says_is_one_write() -> None:
    async def story() -> None:
        connection = Marked()
        assert not connection.is_open
        wire = Wire(connection)
        assert connection.is_open
        connection.say(b"a")
        connection.say(b"b")
        await asyncio.sleep(0)
        connection.say(b"c")
        await asyncio.sleep(0)
        assert wire.writes == [b"[ab]", b"[c]"]

    run(story())


def test_a_close_writes_what_is_left_and_takes_leave() -> None:
    async def story() -> None:
        connection = Marked()
        wire = Wire(connection)
        connection.say(b"last")
        await connection.close()
        assert (wire.writes, wire.ends[0]) == ([b"[last]", b"."], "closed")
        assert [str(each) for each in connection.given_up] == ["the connection was closed by this client"]
        connection.say(b"too late")
        await asyncio.sleep(0)
        await connection.close()
        assert wire.writes == [b"[last]", b"."]

    run(story())


def test_one_that_was_never_made_closes_at_once() -> None:
    async def story() -> None:
        connection = Marked()
        await connection.close()
        connection.abort(ConnectionLost("never mind"))
        assert str(connection.reason) == "never mind"

    run(story())


def test_the_first_reason_stays() -> None:
    async def story() -> None:
        connection = Marked()
        wire = Wire(connection)
        connection.abort(ConnectionLost("first"))
        connection.abort(ConnectionLost("second"))
        assert wire.ends == ["aborted", "aborted"]
        assert not connection.is_open
        assert connection.lost.done()
        assert str(connection.given_up[0]) == "first"

    run(story())


def test_a_server_that_goes_is_the_reason() -> None:
    async def story(error: Exception | None, words: str) -> None:
        connection = Marked()
        Wire(connection)
        connection.connection_lost(error)
        assert isinstance(connection.reason, ConnectionLost)
        assert str(connection.reason) == words

    run(story(None, "the server closed the connection"))
    run(story(OSError("broken"), "the server closed the connection: broken"))


def test_who_waits_for_room_goes_on_when_there_is_some_or_never_will_be() -> None:
    async def story() -> None:
        for ends in (False, True):
            connection = Marked()
            Wire(connection)
            connection.pause_writing()
            waiting = asyncio.ensure_future(connection.room())
            await asyncio.sleep(0)
            assert not waiting.done()
            if ends:
                connection.connection_lost(None)
            else:
                connection.resume_writing()
            await waiting

    run(story())


def test_the_system_notices_a_machine_that_has_vanished() -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp:
            wire = Wire(Marked())
            wire._extra = {"socket": tcp}  # type: ignore[attr-defined]
            Marked().connection_made(wire)
            assert tcp.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            set_to = [tcp.getsockopt(socket.IPPROTO_TCP, each) for each in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)]
            assert set_to == [60, 15, 4]
            assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000
        Marked().connection_made(wire)  # one that has ended already is no trouble

    run(story())


def test_other_than_tcp_is_left_alone() -> None:
    class Local:
        family = socket.AF_UNIX

    async def story() -> None:
        notice_vanished(Wire(Marked()))
        wire = Wire(Marked())
        wire._extra = {"socket": Local()}  # type: ignore[attr-defined]
        notice_vanished(wire)  # setting anything would raise

    run(story())
