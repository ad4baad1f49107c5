"""A consumer that polls: what it commits, and how it moves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.rocketmq_options import RocketMQOptions
from polymq.clients.rocketmq_pull import PollOptions, RocketMQPullConsumer
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal
from tests.unit.clients.rocketmq_worlds import NAME_SERVER, World, say_no
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = MessageQueue("t", "broker-a", 0)


def polling(
    work: Callable[[World, RocketMQPullConsumer], Any], *, topics: Any = "t", count: int = 10, queues: int = 1, **options: Any
) -> World:
    world = World(queues=queues)
    world.topics.add("t")
    for index in range(count):
        world.put("t", b"%d" % index, index % queues)

    async def go() -> None:
        chosen = PollOptions(**{"begin_from": "first", "poll_max": 4, **options})
        consumer = RocketMQPullConsumer(NAME_SERVER, "g", topics, RocketMQOptions(), polling=chosen, opener=world.open, random=lambda: 0.5)
        async with consumer:
            await work(world, consumer)

    in_virtual_time(go())
    return world


async def bodies(consumer: RocketMQPullConsumer, timeout_seconds: float = 1.0) -> list[int]:
    return [int(each.body) for each in await consumer.poll(timeout_seconds)]


def test_polls_give_everything_and_then_nothing() -> None:
    async def work(world: World, consumer: RocketMQPullConsumer) -> None:
        found = [await bodies(consumer) for _ in range(4)]
        assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], []]
        waiting = asyncio.create_task(consumer.poll(10))
        await asyncio.sleep(1)
        with pytest.raises(LocalProtocolError, match="one task polls"):
            await consumer.poll()
        world.put("t", b"10")
        assert [each.body for each in await waiting] == [b"10"]
        (data,) = world.heartbeats[-1]["consumerDataSet"]
        assert data["consumeType"] == "CONSUME_ACTIVELY"

    world = polling(work)
    assert world.members["g"] == []


def test_only_what_earlier_polls_gave_is_committed() -> None:
    async def work(world: World, consumer: RocketMQPullConsumer) -> None:
        await asyncio.sleep(12)
        assert world.position("g", "t", 0) in (None, 0)  # all has been pulled, nothing given
        await consumer.poll()
        await asyncio.sleep(6)
        assert world.position("g", "t", 0) in (None, 0)  # given, and perhaps not handled
        await consumer.poll()
        await asyncio.sleep(6)
        assert world.position("g", "t", 0) == 4
        assert consumer.position(QUEUE) == 8

    assert polling(work).position("g", "t", 0) == 4


def test_a_commit_covers_what_was_given_and_no_more() -> None:
    async def work(world: World, consumer: RocketMQPullConsumer) -> None:
        await consumer.poll()
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 4
        await consumer.poll()
        await consumer.commit({QUEUE: 6})
        assert await consumer.committed(QUEUE) == 6
        world.broker.scripts[15] = say_no(16)
        with pytest.raises(ConnectionLost, match="1 of 1 positions of g were not kept"):
            await consumer.commit()
        with pytest.raises(Refusal):
            await consumer.commit({QUEUE: 7})
        world.broker.scripts[15] = lambda _: None
        with pytest.raises(DeadlineExceeded):
            await consumer.commit({QUEUE: 7})
        world.broker.scripts.clear()

    polling(work, commits_by_itself=False)


def test_without_commits_of_its_own_nothing_is_committed() -> None:
    async def work(world: World, consumer: RocketMQPullConsumer) -> None:
        for _ in range(4):
            await consumer.poll()
            await asyncio.sleep(6)

    assert polling(work, commits_by_itself=False).position("g", "t", 0) is None


def test_seeking() -> None:
    async def work(world: World, consumer: RocketMQPullConsumer) -> None:
        assert await bodies(consumer) == [0, 1, 2, 3]
        await consumer.seek(QUEUE, 8)
        assert consumer.position(QUEUE) == 8
        assert await bodies(consumer) == [8, 9]
        await consumer.seek_to_begin(QUEUE)
        assert await bodies(consumer) == [0, 1, 2, 3]
        await consumer.seek_to_end(QUEUE)
        assert await bodies(consumer) == []
        assert await consumer.offset_for_time(QUEUE, 5) == 2
        assert (await consumer.begin_offset(QUEUE), await consumer.end_offset(QUEUE)) == (0, 10)
        with pytest.raises(LocalProtocolError, match="is not read here"):
            await consumer.seek(MessageQueue("t", "broker-a", 7), 0)
        with pytest.raises(LocalProtocolError, match="is not read here"):
            consumer.position(MessageQueue("t", "broker-a", 7))
        with pytest.raises(LocalProtocolError, match="offset -1"):
            await consumer.seek(QUEUE, -1)

    polling(work)


def test_a_sought_position_is_not_committed_by_itself() -> None:
    async def work(world: World, consumer: RocketMQPullConsumer) -> None:
        await consumer.poll()
        await consumer.seek(QUEUE, 8)
        await asyncio.sleep(11)
        assert world.position("g", "t", 0) in (None, 0)
        await consumer.commit()
        assert world.position("g", "t", 0) == 8

    polling(work)


def test_assigned_queues_are_read_whoever_else_does() -> None:
    async def work(world: World, consumer: RocketMQPullConsumer) -> None:
        assert await consumer.poll(1) == []
        queues = await consumer.queues_of("t")
        assert [each.queue_id for each in queues] == [0, 1]
        await consumer.assign(queues[1:])
        assert consumer.queues == queues[1:]
        assert await bodies(consumer) == [1, 3, 5, 7]
        assert world.members["g"] == []
        await consumer.assign(queues[:1])
        assert await bodies(consumer) == [0, 2, 4, 6]
        await consumer.subscribe("t")
        assert len(consumer.queues) == 2
        assert world.members["g"] == [consumer.client_id]
        with pytest.raises(Refusal):
            await consumer.queues_of("unknown")

    polling(work, topics=(), queues=2)


def test_paused_queues_give_nothing() -> None:
    async def work(world: World, consumer: RocketMQPullConsumer) -> None:
        consumer.pause([QUEUE])
        assert await bodies(consumer) == [1, 3, 5, 7]
        assert await bodies(consumer) == [9]
        consumer.resume([QUEUE])
        assert await bodies(consumer) == [0, 2, 4, 6]

    polling(work, queues=2)


def test_polled_messages_are_committed_not_given_back() -> None:
    async def work(world: World, consumer: RocketMQPullConsumer) -> None:
        messages = await consumer.poll()
        messages[0].settle()
        await asyncio.sleep(6)
        assert world.position("g", "t", 0) == 1
        with pytest.raises(LocalProtocolError, match="does not come again"):
            messages[1].requeue()
        messages[2].drop()
        assert await bodies(consumer) == [2, 4, 5, 6]

    polling(work)


def test_closing_ends_a_poll() -> None:
    async def work(world: World, consumer: RocketMQPullConsumer) -> None:
        waiting = asyncio.create_task(consumer.poll(1000))
        await asyncio.sleep(1)
        await consumer.close()
        assert await waiting == []
        for call in (consumer.poll, consumer.commit):
            with pytest.raises(ConnectionLost):
                await call()

    polling(work, count=0)


def test_a_poll_that_gives_nothing_is_none() -> None:
    with pytest.raises(LocalProtocolError, match="poll_max is 0"):
        PollOptions(poll_max=0)
