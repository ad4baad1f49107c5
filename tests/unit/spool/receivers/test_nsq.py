"""The NSQ receiver over servers without sockets."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from polymq.clients.nsq_opening import NsqOptions
from polymq.spool.feed import Feed
from polymq.spool.notes import read_note
from polymq.spool.receivers.nsq import NsqReceiver
from polymq.spool.window import IdWindow
from polymq.wire.records import HEADER_SIZE_BYTES, BatchHeader, read_messages, seal
from tests.unit.clients.worlds import Server, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.spool.portion import Portion

OPTIONS = NsqOptions(deadline_seconds=5, reconnect_seconds_first=0.1, reconnect_seconds_max=0.2, heartbeat_interval_ms=10**7)
NOW_NS = 10**18


def patient_server() -> Server:
    server = Server()
    server.settings = replace(server.settings, heartbeat_interval_ms_max=10**7)
    return server


class Servers:
    def __init__(self) -> None:
        self.at: defaultdict[str, Server] = defaultdict(patient_server)

    async def open(self, address: str, factory: Callable[[], asyncio.Protocol]) -> None:
        await self.at[address].open(address, factory)


def receiver(servers: Servers, *addresses: str) -> NsqReceiver:
    feed = Feed("nsq", ("t",), addresses, channel="c", in_flight=100, nsq=OPTIONS)
    return NsqReceiver(feed, IdWindow(1000), lambda: NOW_NS, opener=servers.open)


def messages(portion: Portion) -> list[tuple[bytes, int, bytes]]:
    seal(portion.data, 0, portion.end, BatchHeader(count=portion.count, base_time_ns=portion.time_ns))
    found = read_messages(portion.data, 0, 0, 0, portion.count, portion.end)
    return [(message.body, message.time_ns, read_note(message.key or b"")[1]) for message in found]


def test_messages_are_settled_when_they_are_acknowledged_and_not_before() -> None:
    async def go() -> None:
        servers = Servers()
        made = receiver(servers, "a:1", "b:1")
        await made.open()
        await asyncio.sleep(0.3)
        servers.at["a:1"].deliver(1, 2, 3)
        servers.at["b:1"].deliver(4)
        portions: list[Portion] = []
        while sum(portion.count for portion in portions) < 4:
            portions += await made.take()
        assert sorted(body for portion in portions for body, _, _ in messages(portion)) == [b"1", b"2", b"3", b"4"]
        assert {(time_ns, topic) for portion in portions for _, time_ns, topic in messages(portion)} == {(5, b"t")}
        assert len({portion.salt for portion in portions}) == 2
        await asyncio.sleep(0.1)
        assert servers.at["a:1"].took("FIN", "Touch") == []
        for portion in portions:
            portion.touch()
        await asyncio.sleep(0.1)
        assert sorted(servers.at["a:1"].took("Touch")) == [("Touch", 1), ("Touch", 2), ("Touch", 3)]
        for portion in portions:
            portion.acknowledge()
            portion.acknowledge()
        await asyncio.sleep(0.1)
        assert servers.at["a:1"].took("FIN") == [("FIN", 1), ("FIN", 2), ("FIN", 3)]
        assert servers.at["b:1"].took("FIN") == [("FIN", 4)]
        assert made.rest() == []
        assert 0.1 <= made.touch_seconds <= 20.0
        await made.close()

    in_virtual_time(go())


def test_redeliveries_of_one_server_are_dropped_and_settled_and_ids_of_another_are_others() -> None:
    async def go() -> None:
        servers = Servers()
        made = receiver(servers, "a:1", "b:1")
        await made.open()
        await asyncio.sleep(0.3)
        servers.at["a:1"].deliver(1)
        (first,) = await made.take()
        servers.at["a:1"].deliver(1, 2, attempts=2)
        (second,) = await made.take()
        servers.at["b:1"].deliver(1)
        (third,) = await made.take()
        assert [(each.received, each.count) for each in (first, second, third)] == [(1, 1), (2, 1), (1, 1)]
        servers.at["a:1"].deliver(2, attempts=3)
        (fourth,) = await made.take()
        assert (fourth.count, fourth.end) == (0, HEADER_SIZE_BYTES)
        fourth.acknowledge()
        await asyncio.sleep(0.1)
        assert servers.at["a:1"].took("FIN") == [("FIN", 2)]
        await made.close()

    in_virtual_time(go())


def test_what_came_over_a_lost_connection_is_not_settled_on_another() -> None:
    async def go() -> None:
        servers = Servers()
        made = receiver(servers, "a:1")
        await made.open()
        await asyncio.sleep(0.3)
        servers.at["a:1"].deliver(1)
        (portion,) = await made.take()
        servers.at["a:1"].wires[-1].end()
        await asyncio.sleep(0.5)
        portion.acknowledge()
        portion.touch()
        await asyncio.sleep(0.1)
        assert servers.at["a:1"].took("FIN", "Touch") == []
        await made.close()

    in_virtual_time(go())
