"""A server is killed with -9 while messages flow: what is lost, in clusters of real servers, of polymq, and of both.

The roles are played one after the other. Whoever has nothing to do with the victim loses nothing. Who was connected to it, and connects
to another server or to the same one when it is back, loses what was published meanwhile, in one piece, and gets nothing twice. How
long that was is no matter of right or wrong: it is reported at the end of the run, one kind of cluster beside the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import Error

from tests.interop.nats_clients import TIMEOUT_S, connected, eventually, settled
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, await_mesh, nats_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from nats.aio.msg import Msg

    from tests.interop.nats_clients import Connected
    from tests.interop.nats_servers import NatsServer

NEW, OLD = NATS_KINDS
# The victim is the one in the middle.
CLUSTERS = ((NEW, NEW, OLD), (NEW, POLYMQ, OLD), (POLYMQ, NEW, POLYMQ), (POLYMQ, POLYMQ, POLYMQ))
EVERY_S = 0.001
SOME = 200
GAP_S_MAX = 30


class Numbers:
    """What was published, and when; what was received, in order."""

    def __init__(self) -> None:
        self.published_at: list[float] = []
        self.got: list[int] = []

    async def take(self, message: Msg) -> None:
        """Note one."""
        self.got.append(int(message.data))

    async def publish(self, until: asyncio.Event, *servers: NatsServer) -> None:
        """Publish a number every millisecond, each when the server has the last one; when it is gone, at the next server."""
        for server in servers:
            gone = asyncio.Event()
            async with connected(server, closed_cb=noting(gone)) as one:
                leaving = asyncio.create_task(gone.wait())
                while not until.is_set() and not gone.is_set():
                    number = len(self.published_at)
                    self.published_at.append(time.monotonic())
                    known = asyncio.create_task(said(one, b"%d" % number))
                    await asyncio.wait({known, leaving}, return_when=asyncio.FIRST_COMPLETED)
                    known.cancel()
                    await asyncio.sleep(EVERY_S)
                leaving.cancel()

    def judge(self) -> tuple[int, float]:
        """See that nothing came twice, and that what is missing is in one piece; give how many, and for how long."""
        assert self.got == sorted(set(self.got))
        gaps = [(one, other) for one, other in zip(self.got, self.got[1:], strict=False) if other != one + 1]
        assert len(gaps) <= 1, gaps
        for one, other in gaps:
            return other - one - 1, self.published_at[other] - self.published_at[one + 1]
        return 0, 0.0


def noting(event: asyncio.Event) -> Callable[[], Coroutine[Any, Any, None]]:
    """What nats-py is to call when something has happened."""

    async def note() -> None:
        event.set()

    return note


async def said(one: Connected, body: bytes) -> None:
    """Publish, and wait until the server has it, or is gone."""
    with contextlib.suppress(Error, OSError):
        await one.client.publish("numbers", body)
        await one.client.flush(timeout=TIMEOUT_S)


@contextlib.asynccontextmanager
async def listening(server: NatsServer, source: NatsServer, numbers: Numbers) -> AsyncIterator[Connected]:
    """Somebody who hears what is published at the other server."""
    async with connected(server) as one, connected(source) as other:
        await one.client.subscribe("numbers", cb=numbers.take)
        await settled(other, await one.subscribed("known"), "known")
        yield one


async def later(numbers: Numbers, count: int) -> None:
    """Wait until so many more have come."""
    wanted = len(numbers.got) + count
    assert await eventually(lambda: len(numbers.got) >= wanted, timeout_s=GAP_S_MAX), "the gap does not end"


@contextlib.asynccontextmanager
async def flowing(numbers: Numbers, *servers: NatsServer) -> AsyncIterator[None]:
    """Numbers are published; the first have come."""
    ending = asyncio.Event()
    publishing = asyncio.create_task(numbers.publish(ending, *servers))
    try:
        await later(numbers, SOME)
        yield
    finally:
        ending.set()
        await publishing
        await eventually(lambda: numbers.got[-1] == len(numbers.published_at) - 1)


async def bystanders(members: list[NatsServer]) -> Numbers:
    """Publisher and listener are at the other two."""
    source, victim, target = members
    numbers = Numbers()
    async with listening(target, source, numbers), flowing(numbers, source):
        victim.kill()
        await later(numbers, 2 * SOME)
    assert numbers.judge() == (0, 0.0)
    assert numbers.got == list(range(len(numbers.published_at)))
    return numbers


async def listener_moves(members: list[NatsServer]) -> Numbers:
    """The listener is at the victim, and connects to the third server as soon as it knows."""
    source, victim, target = members
    numbers = Numbers()
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(listening(victim, source, numbers))
        await stack.enter_async_context(flowing(numbers, source))
        victim.kill()
        assert await eventually(lambda: not one.client.is_connected)
        # Not settled first: the gap is to be no longer than it is.
        moved = await stack.enter_async_context(connected(target))
        await moved.client.subscribe("numbers", cb=numbers.take)
        await later(numbers, SOME)
    return numbers


async def listener_waits(members: list[NatsServer]) -> Numbers:
    """The listener is at the victim, which is started again at once, and connects when it is back."""
    source, victim, _ = members
    numbers = Numbers()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(listening(victim, source, numbers))
        await stack.enter_async_context(flowing(numbers, source))
        victim.kill()
        await asyncio.to_thread(victim.start)
        back = await stack.enter_async_context(connected(victim))
        await back.client.subscribe("numbers", cb=numbers.take)
        await later(numbers, SOME)
    return numbers


async def publisher_moves(members: list[NatsServer]) -> Numbers:
    """The publisher is at the victim, and goes on at the third server."""
    target, victim, other = members
    numbers = Numbers()
    async with listening(target, victim, numbers), flowing(numbers, victim, other):
        victim.kill()
        await later(numbers, SOME)
    return numbers


ROLES: dict[str, Callable[[list[NatsServer]], Any]] = {
    "beside it": bystanders,
    "listener moves to another": listener_moves,
    "listener waits for it": listener_waits,
    "publisher moves to another": publisher_moves,
}


@pytest.mark.parametrize("kinds", CLUSTERS, ids="+".join)
def test_only_who_was_at_the_victim_loses_something(
    kinds: tuple[str, ...], tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    """Each role in turn, with the victim back in the mesh before the next one."""
    with nats_cluster(kinds, tmp_path) as members:
        for role, play in ROLES.items():
            numbers = asyncio.run(play(members))
            lost, seconds = numbers.judge()
            record_property("gap", f"{role:<28} {lost:>6} lost in {seconds:7.3f} s   {' + '.join(kinds)}")
            if members[1].process is None:
                members[1].start()
            await_mesh(members)
