"""nats-py for tests: connections that end with the test, what they were told, and waiting for interest to get across."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nats.aio.client import Client
from nats.errors import TimeoutError as NothingCameError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from nats.aio.subscription import Subscription

    from tests.interop.nats_servers import NatsServer

__all__ = ["Connected", "connected", "drained", "eventually", "received", "settled", "shared"]

TIMEOUT_S = 10
# How long nothing must come where nothing may come.
SILENCE_S = 0.1
_SETTLING = itertools.count()


@dataclass(slots=True)
class Connected:
    """A connection, and the errors that the server has told it."""

    client: Client
    errors: list[str] = field(default_factory=list)

    async def subscribed(self, subject: str, queue: str = "") -> Subscription:
        """Subscribe, and wait until the server knows."""
        subscription = await self.client.subscribe(subject, queue=queue)
        await self.client.flush(timeout=TIMEOUT_S)
        return subscription

    async def published(self, subject: str, *bodies: bytes) -> None:
        """Publish, and wait until the server has taken everything."""
        for body in bodies:
            await self.client.publish(subject, body)
        await self.client.flush(timeout=TIMEOUT_S)


@contextlib.asynccontextmanager
async def connected(server: NatsServer, **options: Any) -> AsyncIterator[Connected]:
    """A connection to this server; it does not look for another one unless it is told to."""
    errors: list[str] = []

    async def told(error: Exception) -> None:
        errors.append(str(error))

    settings = {"allow_reconnect": False, "connect_timeout": TIMEOUT_S, "error_cb": told, **options}
    client = Client()
    try:
        await client.connect(server.url, **settings)
        yield Connected(client, errors)
    finally:
        await client.close()
        # After a connection that failed the library does not close the socket.
        transport: Any = client._transport
        if transport is not None:
            transport.close()
            with contextlib.suppress(OSError):
                await transport.wait_closed()


async def received(subscription: Subscription, count: int) -> list[bytes]:
    """The next messages, after which nothing more may come for a while."""
    found = [(await subscription.next_msg(timeout=TIMEOUT_S)).data for _ in range(count)]
    with contextlib.suppress(NothingCameError):
        found.append((await subscription.next_msg(timeout=SILENCE_S)).data)
    return found


async def settled(publisher: Connected, subscription: Subscription, subject: str) -> None:
    """Publish until something of it comes, for servers tell one another what is wanted a little later; then take all that was published so.

    Others who listen to the subject still have it: `drained` is for them.
    """
    deadline = time.monotonic() + TIMEOUT_S
    mine = b"settled? %d " % next(_SETTLING)
    for number in itertools.count():
        await publisher.published(subject, mine + b"%d" % number)
        if await _came(subscription, mine, 0.02):
            break
        assert time.monotonic() < deadline, f"nothing comes across on {subject}"
    await publisher.published(subject, mine + b"last")
    assert await _came(subscription, mine + b"last", TIMEOUT_S), f"what is known to come on {subject} does not"


async def _came(subscription: Subscription, start: bytes, timeout_s: float) -> bool:
    """Take what comes up to the first message that starts so."""
    until = time.monotonic() + timeout_s
    with contextlib.suppress(NothingCameError):
        while not (await subscription.next_msg(timeout=max(until - time.monotonic(), 0.001))).data.startswith(start):
            pass
        return True
    return False


async def drained(*subscriptions: Subscription) -> None:
    """Take all that has come, and what comes until it is silent."""
    for subscription in subscriptions:
        while await received(subscription, subscription.pending_msgs):
            pass


async def shared(subscriptions: Sequence[Subscription], count: int) -> list[list[bytes]]:
    """What each of a group gets of so many messages; nothing more may come for a while."""
    await eventually(lambda: sum(each.pending_msgs for each in subscriptions) >= count)
    return [await received(each, each.pending_msgs) for each in subscriptions]


async def eventually(check: Callable[[], bool], *, timeout_s: float = TIMEOUT_S) -> bool:
    """Wait until something is so; False if it is not in time."""
    deadline = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True
