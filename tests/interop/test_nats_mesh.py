"""Five servers, polymq and real ones, while messages flow: clients come and go, and so does a server; nobody else notices.

What is published is numbered. Who listens all the time gets every number of every publisher once, in order; who comes and goes gets
all from its first one to its last; of a queue group one member gets each, and of one whose members come and go at most one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.nats_clients import TIMEOUT_S, connected, eventually, settled
from tests.interop.nats_secrets import tls_block, tls_context
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, NatsOptions, NatsServer, await_mesh, ending

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from nats.aio.msg import Msg

    from tests.interop.nats_clients import Connected
    from tests.unit.wire.authority import Authority

NEW, OLD = NATS_KINDS
# The last one joins, and is killed, while messages flow.
MESHES = ((POLYMQ, NEW, OLD, POLYMQ, NEW), (NEW, POLYMQ, POLYMQ, OLD, POLYMQ))
GUESTS = 4
STAYS_S = 0.1
PAUSE_S = 0.01
PER_PAUSE = 5
NUMBERS_MAX = 50_000


class Listener:
    """Numbers, as they came, by publisher."""

    def __init__(self) -> None:
        self.got: dict[str, list[int]] = {}

    async def take(self, message: Msg) -> None:
        """Note one."""
        self.got.setdefault(message.subject, []).append(int(message.data))

    def assert_unbroken(self) -> None:
        """From each publisher's first to its last none is missing, and none is there twice."""
        for subject, numbers in self.got.items():
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), (subject, _odd(numbers))


def _odd(numbers: list[int]) -> list[tuple[int, int]]:
    """Where a list does not go on as it should."""
    return [(one, other) for one, other in itertools.pairwise(numbers) if other != one + 1][:10]


class Flow:
    """A publisher at each server, until it is told to end."""

    def __init__(self) -> None:
        self.ending = asyncio.Event()
        self.counts: dict[str, int] = {}

    async def publish(self, connection: Connected, name: str) -> None:
        """Publish numbers; each comes under two subjects."""
        number = 0
        while not self.ending.is_set() and number < NUMBERS_MAX:
            for _ in range(PER_PAUSE):
                await connection.client.publish(f"flow.{name}", b"%d" % number)
                await connection.client.publish(f"guests.{name}", b"%d" % number)
                number += 1
            await asyncio.sleep(PAUSE_S)
        await connection.client.flush(timeout=TIMEOUT_S)
        self.counts[f"flow.{name}"] = number


class Party:
    """Everybody at the servers that stay."""

    def __init__(self, members: list[NatsServer], secrets: dict[str, Any]) -> None:
        self.members = members
        self.secrets = secrets
        self.flow = Flow()
        self.steady = [Listener() for _ in members]
        self.group = [Listener() for _ in members]
        self.guests: list[Listener] = []
        self.changing: list[Listener] = []

    async def play(self, stack: contextlib.AsyncExitStack, visit: Coroutine[Any, Any, None]) -> None:
        """Let messages flow as long as the visit takes, with guests coming and going."""
        connections = [await stack.enter_async_context(connected(member, **self.secrets)) for member in self.members]
        for connection, steady, group in zip(connections, self.steady, self.group, strict=True):
            await connection.client.subscribe("flow.*", cb=steady.take)
            await connection.client.subscribe("flow.>", queue="all", cb=group.take)
            known = await connection.subscribed("known")
            for source in connections:
                if source is not connection:
                    await settled(source, known, "known")
        sources = [await stack.enter_async_context(connected(member, **self.secrets)) for member in self.members]
        publishing = [asyncio.create_task(self.flow.publish(source, f"p{number}")) for number, source in enumerate(sources)]
        visiting = [asyncio.create_task(self.come_and_go(number)) for number in range(GUESTS)]
        try:
            await visit
        finally:
            self.flow.ending.set()
            await asyncio.gather(*publishing, *visiting)
        await eventually(self.complete)
        await asyncio.sleep(0.1)

    def complete(self) -> bool:
        """Whether everybody who stayed has so many as were published."""
        whole = sum(self.flow.counts.values())
        return all(sum(map(len, each.got.values())) >= whole for each in self.steady)

    async def come_and_go(self, number: int) -> None:
        """Connect to one server after the other, for a moment each."""
        for turn in range(NUMBERS_MAX):
            if self.flow.ending.is_set():
                return
            listener, shared = Listener(), Listener()
            async with connected(self.members[(number + turn) % len(self.members)], **self.secrets) as connection:
                # A group of its own: the interest in it comes and goes with this one alone.
                await connection.client.subscribe("guests.*", queue=f"guest-{number}-{turn}", cb=listener.take)
                await connection.client.subscribe("guests.*", queue="changing", cb=shared.take)
                await asyncio.sleep(STAYS_S)
                await connection.client.drain()
            self.guests.append(listener)
            self.changing.append(shared)

    def judge(self) -> None:
        """See that everybody has what was due."""
        wanted = {subject: list(range(count)) for subject, count in self.flow.counts.items()}
        assert all(wanted.values())
        for listener in self.steady:
            assert {subject: _odd(numbers) for subject, numbers in listener.got.items()} == {key: [] for key in wanted}
            assert listener.got == wanted
        for subject, numbers in wanted.items():
            assert sorted(number for listener in self.group for number in listener.got.get(subject, [])) == numbers
        assert len(self.guests) > GUESTS
        assert sum(bool(guest.got) for guest in self.guests) > GUESTS
        for guest in self.guests:
            guest.assert_unbroken()
        shared = Counter((subject, number) for each in self.changing for subject, numbers in each.got.items() for number in numbers)
        assert shared
        assert set(shared.values()) == {1}


async def visit(newcomer: NatsServer, members: list[NatsServer], secrets: dict[str, Any]) -> None:
    """A server joins, of which only the first one is told; it has a listener, and is killed."""
    await asyncio.to_thread(newcomer.start)
    await asyncio.to_thread(await_mesh, [*members, newcomer])
    listener = Listener()
    async with connected(newcomer, **secrets) as connection:
        await connection.client.subscribe("flow.*", cb=listener.take)
        assert await eventually(lambda: len(listener.got) == len(members))
        await asyncio.sleep(0.2)
        newcomer.kill()
    await asyncio.sleep(0.5)
    listener.assert_unbroken()


@pytest.mark.parametrize(
    ("kinds", "mode"), [(MESHES[0], "plain"), (MESHES[1], "secrets"), (MESHES[0], "TLS")], ids=["plain", "secrets", "TLS"]
)
def test_nobody_notices_who_comes_and_goes(kinds: tuple[str, ...], mode: str, tmp_path: Path, authority: Authority) -> None:
    options = NatsOptions()
    secrets: dict[str, Any] = {}
    if mode == "secrets":
        options = NatsOptions(authorization='user: "me", password: "pass"', route_user="route:r0ute")
        secrets = {"user": "me", "password": "pass"}
    elif mode == "TLS":
        options = NatsOptions(tls=tls_block(authority, "localhost"), route_tls=tls_block(authority, "localhost", verify=True))
        secrets = {"tls": tls_context(authority), "tls_hostname": "localhost"}
    servers = [NatsServer(kind, f"member-{number}", tmp_path, options) for number, kind in enumerate(kinds)]
    for server in servers:
        server.clustered = True
        server.routes = [each for each in servers[:1] if each is not server]
    *members, newcomer = servers
    party = Party(members, secrets)

    async def play() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await party.play(stack, visit(newcomer, members, secrets))

    with ending(servers):
        for member in members:
            member.start()
        await_mesh(members)
        asyncio.run(play())
    party.judge()
