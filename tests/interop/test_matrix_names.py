"""Names over protocols: a topic that some have to write otherwise is one topic; and lifetimes: what is over comes to no group."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

import polymq
from polymq.clients.phpmq import PhpmqProducer
from polymq.testing.server import PolymqServer
from tests.interop.matrix_table import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.clients.broker import Subscription

PATIENCE_S = 20
GROUP = {"nsq": "board", "nats": "", "rocketmq": "watch", "phpmq": ""}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolymqServer]:
    with PolymqServer(tmp_path_factory.mktemp("names")) as started:
        yield started


def url(server: PolymqServer, protocol: str) -> str:
    return f"{protocol}://{getattr(server, protocol)}"


async def bodies(subscription: Subscription, last: bytes = b"", *, count: int = 0) -> list[bytes]:
    """What comes, up to so many messages or to one with this body."""
    found: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        async for message in subscription:
            found.append(message.body)
            await message.done()
            if len(found) == count or message.body == last:
                break
    return found


@pytest.mark.parametrize("core", NAMES)
def test_a_name_is_one_topic(server: PolymqServer, core: str) -> None:
    """Everybody who can say it publishes to it, and hears what the others publish."""
    names = {protocol: spelt for protocol, spelt in NAMES[core].items() if spelt is not None}

    async def go() -> None:
        async with contextlib.AsyncExitStack() as stack:
            brokers = {each: await stack.enter_async_context(polymq.connect(url(server, each))) for each in names}
            # NATS comes last: a topic that is there is what it publishes to.
            readers = {
                each: await stack.enter_async_context(brokers[each].subscribe(names[each], GROUP[each]))
                for each in sorted(names, key=lambda each: each == "nats")
            }
            for each, broker in brokers.items():
                await broker.publish(names[each], each.encode())
            wanted = sorted(each.encode() for each in names)
            assert {each: sorted(await bodies(reader, count=len(names))) for each, reader in readers.items()} == dict.fromkeys(
                names, wanted
            )

    asyncio.run(go())


def test_what_is_over_comes_to_no_group(server: PolymqServer) -> None:
    """PHPMQ's TTL holds for a channel, a queue and a group of RocketMQ."""
    topic = "lifetimes"
    groups = ("phpmq", "nsq", "rocketmq")

    async def go() -> None:
        async with contextlib.AsyncExitStack() as stack:
            brokers = {each: await stack.enter_async_context(polymq.connect(url(server, each))) for each in groups}
            for each in groups:  # they are there from now on, and nobody reads
                async with brokers[each].subscribe(topic, GROUP[each]):
                    pass
            async with PhpmqProducer(server.phpmq) as producer:
                for number in range(40):
                    await producer.publish(topic, b"%d" % number, ttl_seconds=(0, 1, 3600, 1)[number % 4])
            await asyncio.sleep(1.1)
            async with PhpmqProducer(server.phpmq) as producer:
                await producer.publish(topic, b"last")
            wanted = [*(b"%d" % number for number in range(0, 40, 2)), b"last"]
            for each in groups:
                async with brokers[each].subscribe(topic, GROUP[each]) as reader:
                    assert await bodies(reader, b"last") == wanted, each

    asyncio.run(go())
