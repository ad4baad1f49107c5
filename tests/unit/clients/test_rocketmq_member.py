"""Members of a group: who reads what, when that changes, and locks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.rocketmq_allocation import allocate_in_circle
from polymq.clients.rocketmq_consumer import ConsumeOptions, RocketMQConsumer
from polymq.clients.rocketmq_options import RocketMQOptions
from tests.unit.clients.rocketmq_worlds import NAME_SERVER, World, say_no
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from polymq.clients.rocketmq_messages import RocketMQMessage


def member(world: World, instance: str, **consuming: Any) -> RocketMQConsumer:
    options = ConsumeOptions(begin_from="first", **consuming)
    return RocketMQConsumer(
        NAME_SERVER, "g", "t", RocketMQOptions(instance=instance), consuming=options, opener=world.open, random=lambda: 0.5
    )


def numbers(each: RocketMQConsumer) -> list[int]:
    return [number for topic, _, number in each.queues if topic == "t"]


def world_with_topic(queues: int = 4, **options: Any) -> World:
    world = World(queues=queues, **options)
    world.topics.add("t")
    return world


def test_queues_are_divided_and_divided_again() -> None:
    async def go() -> None:
        world = world_with_topic(5)
        async with member(world, "1") as first:
            await asyncio.sleep(1)
            assert numbers(first) == [0, 1, 2, 3, 4]
            async with member(world, "2") as second:
                await asyncio.sleep(2)
                assert (numbers(first), numbers(second)) == ([0, 1, 2], [3, 4])
            await asyncio.sleep(21)  # nobody tells of a goodbye in this world
            assert numbers(first) == [0, 1, 2, 3, 4]
        async with member(world, "1", allocation=allocate_in_circle) as first:
            world.strangers = ["0"]
            await asyncio.sleep(25)
            assert numbers(first) == [1, 3]

    in_virtual_time(go())


def test_nothing_is_lost_or_handled_twice_when_a_member_joins() -> None:
    async def go() -> None:
        world = world_with_topic(4)
        seen: list[bytes] = []

        async def handle(message: RocketMQMessage) -> None:
            seen.append(message.body)

        async with member(world, "1") as first:
            tasks = [asyncio.create_task(first.run(handle))]
            for index in range(50):
                world.put("t", b"a%d" % index, index % 4)
            await asyncio.sleep(1)
            async with member(world, "2") as second:
                tasks.append(asyncio.create_task(second.run(handle)))
                for index in range(50):
                    world.put("t", b"b%d" % index, index % 4)
                    await asyncio.sleep(0.1)
        await asyncio.gather(*tasks)
        assert len(seen) == len(set(seen)) == 100
        assert world.total("g", "t") == 100

    in_virtual_time(go())


def test_several_brokers_are_one_list_of_queues() -> None:
    async def go() -> None:
        world = world_with_topic(2, brokers=2)
        async with member(world, "1") as first, member(world, "2") as second:
            await asyncio.sleep(25)
            assert {broker for topic, broker, _ in first.queues if topic == "t"} == {"broker-a"}
            assert {broker for topic, broker, _ in second.queues if topic == "t"} == {"broker-b"}
            assert all(server.asked(34) for server in world.brokers.values())

    in_virtual_time(go())


def test_while_nobody_says_who_is_there_everything_stays() -> None:
    async def go() -> None:
        world = world_with_topic(4)
        async with member(world, "1") as first:
            world.broker.scripts[38] = say_no(1)
            await asyncio.sleep(30)
            assert numbers(first) == [0, 1, 2, 3]
            assert 8 <= len(world.broker.asked(38)) <= 70  # once a second for either topic

    in_virtual_time(go())


def test_more_queues_are_found() -> None:
    async def go() -> None:
        world = world_with_topic(2)
        async with member(world, "1") as first:
            world.queues = 4
            await asyncio.sleep(60)
            assert numbers(first) == [0, 1, 2, 3]

    in_virtual_time(go())


def test_a_position_that_cannot_be_had_is_asked_for_again() -> None:
    async def go() -> None:
        world = world_with_topic(2)
        world.broker.scripts[14] = say_no(1)
        async with member(world, "1") as first:
            await asyncio.sleep(3)
            assert numbers(first) == []
            world.broker.scripts.clear()
            await asyncio.sleep(2)
            assert numbers(first) == [0, 1]

    in_virtual_time(go())


def test_ordered_queues_are_read_under_lock_only() -> None:
    async def go() -> None:
        world = world_with_topic(2)
        world.locks["g", "t", 0] = "somebody"
        async with member(world, "1", is_ordered=True) as first:
            await asyncio.sleep(3)
            assert numbers(first) == [1]
            del world.locks["g", "t", 0]
            await asyncio.sleep(2)
            assert numbers(first) == [0, 1]
            renewals = len(world.broker.asked(41))
            await asyncio.sleep(65)
            assert len(world.broker.asked(41)) - renewals == 3
            world.locks["g", "t", 0] = "somebody"
            await asyncio.sleep(25)
            assert numbers(first) == [1]
        assert world.locks == {("g", "t", 0): "somebody"}

    in_virtual_time(go())


def test_an_ordered_queue_is_not_let_go_while_a_message_is_in_hand() -> None:
    async def go() -> None:
        world = world_with_topic(1)
        for index in range(3):
            world.put("t", b"%d" % index)
        hands: list[tuple[str, bytes, str]] = []
        release = asyncio.Event()

        def handler(name: str) -> Any:
            async def handle(message: RocketMQMessage) -> None:
                hands.append((name, message.body, "begin"))
                if message.body == b"1":
                    await release.wait()
                hands.append((name, message.body, "end"))

            return handle

        async with member(world, "2", is_ordered=True) as second:
            tasks = [asyncio.create_task(second.run(handler("2")))]
            await asyncio.sleep(1)
            async with member(world, "1", is_ordered=True) as first:
                tasks.append(asyncio.create_task(first.run(handler("1"))))
                await asyncio.sleep(90)  # the lock would be over by now if it were not renewed
                assert [each for each in hands if each[1] == b"1"] == [("2", b"1", "begin")]
                assert numbers(first) == []
                assert world.locks["g", "t", 0] == second.client_id
                release.set()
                await asyncio.sleep(5)
                assert numbers(first) == [0]
                await first.flush()
        await asyncio.gather(*tasks)
        assert hands == [(who, body, what) for who, body in (("2", b"0"), ("2", b"1"), ("1", b"2")) for what in ("begin", "end")]
        assert world.position("g", "t", 0) == 3

    in_virtual_time(go())


def test_a_queue_that_flaps_is_not_handled_twice_at_once() -> None:
    async def go() -> None:
        world = world_with_topic(1)
        world.put("t", b"0")
        busy = most = 0
        seen: list[bytes] = []

        async def handle(message: RocketMQMessage) -> None:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(30)
            busy -= 1
            seen.append(message.body)

        async with member(world, "2", is_ordered=True) as each:
            task = asyncio.create_task(each.run(handle))
            for strangers in (["0"], [], ["0"], []):
                await asyncio.sleep(1)
                world.strangers = strangers
                world.broker.push(40, {"consumerGroup": "g"})
            await asyncio.sleep(60)
            assert (seen, most) == ([b"0"], 1)
        await task

    in_virtual_time(go())


def test_ordered_messages_stop_while_locks_are_not_renewed() -> None:
    async def go() -> None:
        world = world_with_topic(1)
        seen: list[bytes] = []

        async def handle(message: RocketMQMessage) -> None:
            seen.append(message.body)

        async with member(world, "1", is_ordered=True) as each:
            task = asyncio.create_task(each.run(handle))
            world.broker.scripts[41] = say_no(1)
            await asyncio.sleep(35)
            world.put("t", b"0")
            await asyncio.sleep(1)
            assert seen == []
            world.broker.scripts.clear()
            await asyncio.sleep(25)
            assert seen == [b"0"]
        await task

    in_virtual_time(go())


def test_a_reset_begins_elsewhere() -> None:
    async def go() -> None:
        world = world_with_topic(1)
        for index in range(4):
            world.put("t", b"%d" % index)
        seen: list[bytes] = []

        async def handle(message: RocketMQMessage) -> None:
            seen.append(message.body)

        async with member(world, "1") as each:
            task = asyncio.create_task(each.run(handle))
            await asyncio.sleep(6)
            assert world.position("g", "t", 0) == 4
            body = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:2}}'
            world.broker.push(220, {"topic": "t", "group": "g", "timestamp": "1", "isForce": "true"}, body)
            await asyncio.sleep(2)
            assert seen == [b"0", b"1", b"2", b"3", b"2", b"3"]
            world.broker.push(220, {"topic": "t", "group": "another"}, body)
            await asyncio.sleep(2)
            assert len(seen) == 6
        await task

    in_virtual_time(go())


@pytest.mark.parametrize(("begin_from", "expected"), [("last", "LAST_OFFSET"), ("first", "FIRST_OFFSET"), (7, "TIMESTAMP")])
def test_heartbeats_describe_the_member(begin_from: Any, expected: str) -> None:
    async def go() -> None:
        world = world_with_topic(1)
        consuming = ConsumeOptions(begin_from=begin_from)
        async with RocketMQConsumer(NAME_SERVER, "g", "t", consuming=consuming, opener=world.open):
            (data,) = world.heartbeats[0]["consumerDataSet"]
        assert (data["groupName"], data["consumeType"], data["messageModel"]) == ("g", "CONSUME_PASSIVELY", "CLUSTERING")
        assert data["consumeFromWhere"] == f"CONSUME_FROM_{expected}"
        assert {row["topic"] for row in data["subscriptionDataSet"]} == {"t", "%RETRY%g"}

    in_virtual_time(go())
