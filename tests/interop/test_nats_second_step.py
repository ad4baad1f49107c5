"""A message for a queue group reaches a server whose last member has just left: it is sent on to another one, so that the group does not lose it.

Whoever else listens there has had it from where it came from. Real servers give it to them once more; servers of ours tell each
other that it is for the group alone, and prefer a server where nobody else listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_clients import TIMEOUT_S, Connected, connected, eventually, settled
from tests.interop.nats_route_peer import HELLO, Talk
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, nats_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.msg import Msg

    from tests.interop.nats_servers import NatsServer

NEW, OLD = NATS_KINDS
LEAVES = 40
COUNT = 50


class Group:
    """Numbers by who got them."""

    def __init__(self) -> None:
        self.got: list[int] = []

    async def take(self, message: Msg) -> None:
        """Note one."""
        self.got.append(int(message.data))


async def everywhere(connections: list[Connected]) -> None:
    """Wait until each server knows what was wanted at each other one so far."""
    for target in connections:
        known = await target.subscribed("known")
        for source in connections:
            if source is not target:
                await settled(source, known, "known")
        await known.unsubscribe()


async def visited(server: NatsServer) -> list[int]:
    """Be a member for a moment, leave, and take what was on the way: nats-py throws away what comes when it has left."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    try:
        writer.write(b'CONNECT {"verbose":false}\r\nSUB work q 1\r\n')
        await asyncio.sleep(0.02)
        writer.write(b"UNSUB 1\r\nPING\r\n")
        heard = await asyncio.wait_for(reader.readuntil(b"PONG\r\n"), TIMEOUT_S)
    finally:
        writer.close()
        await writer.wait_closed()
    return [int(body) for body in re.findall(rb"MSG work 1 \d+\r\n(\d+)\r\n", heard)]


@pytest.mark.parametrize("kinds", [(NEW, NEW), (OLD, OLD), (POLYMQ, NEW), (NEW, POLYMQ), (POLYMQ, POLYMQ)], ids="+".join)
def test_it_is_sent_on_to_where_a_member_is(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """Brought by a peer that the second server does not know; a plain listener there hears of it unless both are ours."""

    async def play(first: NatsServer, second: NatsServer) -> None:
        async with connected(first) as near, connected(second) as far:
            member, plain = await far.subscribed("work", queue="q"), await far.subscribed("work")
            await everywhere([near, far])
            with contextlib.closing(Talk(first.route_port)) as peer:
                peer.caught_up(HELLO)
                peer.caught_up(b"".join(b"RMSG $G work | q 2\r\n%02d\r\n" % number for number in range(COUNT)))
                assert await eventually(lambda: member.pending_msgs == COUNT)
                await asyncio.sleep(0.1)
                ours = set(kinds) == {POLYMQ}
                assert (member.pending_msgs, plain.pending_msgs) == (COUNT, 0 if ours else COUNT)

    with nats_cluster(kinds, tmp_path) as (first, second):
        asyncio.run(play(first, second))


def test_a_server_where_nobody_else_listens_is_preferred(tmp_path: Path) -> None:
    """Of two real ones: the one with more members has a plain listener as well, and gets none."""

    async def play(first: NatsServer, others: list[NatsServer]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            near, one, other = [await stack.enter_async_context(connected(server)) for server in (first, *others)]
            busy = [await one.subscribed("work", queue="q") for _ in range(3)]
            plain, quiet = await one.subscribed("work"), await other.subscribed("work", queue="q")
            await everywhere([near, one, other])
            with contextlib.closing(Talk(first.route_port)) as peer:
                peer.caught_up(HELLO)
                peer.caught_up(b"".join(b"RMSG $G work | q 2\r\n%02d\r\n" % number for number in range(COUNT)))
                assert await eventually(lambda: quiet.pending_msgs == COUNT)
                await asyncio.sleep(0.1)
                assert [each.pending_msgs for each in (*busy, plain, quiet)] == [0, 0, 0, 0, COUNT]

    with nats_cluster((POLYMQ, NEW, OLD), tmp_path) as (first, *others):
        asyncio.run(play(first, others))


@pytest.mark.parametrize("kinds", [(NEW, NEW, NEW), (POLYMQ, POLYMQ, POLYMQ), (POLYMQ, NEW, POLYMQ), (NEW, POLYMQ, NEW)], ids="+".join)
def test_a_group_loses_nothing_while_members_leave(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """One member stays; others come and go, each when all that is on the way to it has come. The group has every message once.

    Plain listeners have every message; among servers of ours alone once.
    """

    async def flow(source: Connected, published: list[int], ending: asyncio.Event) -> None:
        for number in itertools.count():
            await source.client.publish("work", b"%d" % number)
            published.append(number)
            if number % 20 == 0:
                await asyncio.sleep(0.002)
                if ending.is_set():
                    break
        await source.client.flush()

    async def play(members: list[NatsServer]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(connected(member)) for member in members]
            group, plain, published, ending = Group(), [Group() for _ in members], list[int](), asyncio.Event()
            for connection, each in zip(connections, plain, strict=True):
                await connection.client.subscribe("work", cb=each.take)
            await connections[2].client.subscribe("work", queue="q", cb=group.take)
            await everywhere(connections)
            source = await stack.enter_async_context(connected(members[0]))
            flowing = asyncio.create_task(flow(source, published, ending))
            for _ in range(LEAVES):
                group.got += await visited(members[1])
                await asyncio.sleep(0.01)
            ending.set()
            await flowing
            await eventually(lambda: all(len(each.got) >= len(published) for each in (group, *plain)))
            await asyncio.sleep(0.2)
            assert sorted(group.got) == published
            for each in plain:
                assert sorted(set(each.got)) == published
                if set(kinds) == {POLYMQ}:
                    assert [number for number, count in Counter(each.got).items() if count > 1] == []

    with nats_cluster(kinds, tmp_path) as servers:
        asyncio.run(play(servers))
