"""The PHPMQ receiver over a server of a few lines on a unix socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from polymq.protocols.phpmq import frames
from polymq.spool.feed import Feed
from polymq.spool.notes import read_note
from polymq.spool.receivers.phpmq import PhpmqReceiver
from polymq.spool.window import IdWindow
from polymq.wire.records import BatchHeader, read_messages, seal
from tests.unit.clients.phpmq_server import Server, dispatch

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.spool.portion import Portion

NOW_NS = 10**18


def test_dispatched_messages_are_acknowledged_later_and_repeats_dropped(tmp_path: Path) -> None:
    async def go() -> None:
        greeting = dispatch(b"one", 1) + dispatch(b"two", 2, ttl=60) + dispatch(b"one", 1) + dispatch(b"three", 3, ttl=1 << 62)
        async with Server(tmp_path, greeting) as server:
            made = PhpmqReceiver(Feed("phpmq", ("q",), (server.address,), in_flight=7), IdWindow(100), lambda: NOW_NS)
            await made.open()
            await server.has(frames.consume("q", 7))
            portions: list[Portion] = []
            while sum(portion.received for portion in portions) < 4:
                portions += await made.take()
            found = []
            for portion in portions:
                seal(portion.data, 0, portion.end, BatchHeader(count=portion.count, base_time_ns=portion.time_ns))
                found += read_messages(portion.data, 0, 0, 0, portion.count, portion.end)
            notes = [read_note(message.key or b"") for message in found]
            assert [message.body for message in found] == [b"one", b"two", b"three"]
            assert [note[1:3] for note in notes] == [(b"q", b"%032d" % n) for n in (1, 2, 3)]
            assert [note[4] for note in notes] == [None, NOW_NS // 1000 + 60_000_000, None]
            assert frames.acknowledge("q", [b"%032d" % 1]) not in server.received
            for portion in portions:
                portion.touch()
                portion.acknowledge()
            await server.has(frames.acknowledge("q", [b"%032d" % 3]))
            assert server.received.count(frames.acknowledge("q", [b"%032d" % 1])) == 2
            assert made.rest() == []
            assert made.touch_seconds > 0
            await made.close()

    asyncio.run(go())
