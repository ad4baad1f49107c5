"""A push consumer against a world of its own, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.rocketmq_consumer import ConsumeOptions, RocketMQConsumer
from polymq.clients.rocketmq_options import RocketMQOptions
from polymq.errors import DeadlineExceeded, LocalProtocolError, Refusal
from polymq.protocols.rocketmq.codes import RequestCode
from tests.unit.clients.rocketmq_worlds import NAME_SERVER, World, say_no
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from polymq.clients.rocketmq_messages import RocketMQMessage

FIRST = ConsumeOptions(begin_from="first")


def consumer(world: World, topics: Any = "t", consuming: ConsumeOptions = FIRST, **options: Any) -> RocketMQConsumer:
    return RocketMQConsumer(
        NAME_SERVER, "g", topics, RocketMQOptions(**options), consuming=consuming, opener=world.open, random=lambda: 0.5
    )


def filled(count: int = 8, **options: Any) -> World:
    """A world with messages in all queues of topic `t`."""
    world = World(**options)
    for index in range(count):
        world.put("t", b"%d" % index, index % world.queues)
    return world


async def settled(each: RocketMQConsumer, count: int) -> list[bytes]:
    """Take so many messages and settle them."""
    bodies = []
    async for message in each:
        bodies.append(message.body)
        message.settle()
        if len(bodies) == count:
            break
    return bodies


async def taken(each: RocketMQConsumer, count: int) -> list[RocketMQMessage]:
    """Take so many messages."""
    messages: list[RocketMQMessage] = []
    while len(messages) < count:
        messages += await each.take()
    assert len(messages) == count
    return messages


def running(each: RocketMQConsumer, handler: Callable[[RocketMQMessage], Awaitable[None]], concurrency: int = 4) -> asyncio.Task[None]:
    return asyncio.create_task(each.run(handler, concurrency=concurrency))


def test_everything_comes_once_and_is_committed_at_the_end() -> None:
    async def go() -> None:
        world = filled()
        async with consumer(world) as each:
            assert sorted(await settled(each, 8)) == [b"%d" % index for index in range(8)]
        assert world.total("g", "t") == 8
        assert world.members["g"] == []
        async with consumer(world) as each:
            world.put("t", b"new")
            assert await settled(each, 1) == [b"new"]

    in_virtual_time(go())


def test_commits_stop_before_what_is_not_settled() -> None:
    async def go() -> None:
        world = filled(3, queues=1)
        async with consumer(world) as each:
            messages = await taken(each, 3)
            assert [message.body for message in messages] == [b"0", b"1", b"2"]
            messages[0].settle()
            messages[2].settle()
            await asyncio.sleep(6)
            assert world.position("g", "t", 0) == 1
            messages[1].settle()
            await each.flush()
            assert world.position("g", "t", 0) == 3

    in_virtual_time(go())


def test_what_a_handler_raises_on_goes_back_and_the_rest_goes_on() -> None:
    async def go() -> None:
        world = filled(4, queues=1)

        async def handle(message: RocketMQMessage) -> None:
            if message.body == b"1":
                raise ValueError("no")

        async with consumer(world) as each:
            task = running(each, handle)
            await asyncio.sleep(1)
            (back,) = world.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
            assert back.ext["offset"] == str(world.stored["t", "broker-a", 0][1].physical)
            assert (back.ext["group"], back.ext["delayLevel"], back.ext["maxReconsumeTimes"]) == ("g", "0", "16")
        await task
        assert world.position("g", "t", 0) == 4

    in_virtual_time(go())


def test_a_broker_that_cannot_take_it_back_is_sent_it_for_the_retry_topic() -> None:
    async def go() -> None:
        world = filled(1, queues=1)
        world.broker.scripts[RequestCode.CONSUMER_SEND_MSG_BACK] = say_no(3)
        seen = []

        async def handle(message: RocketMQMessage) -> None:
            seen.append((message.topic, message.body, message.attempts))
            if message.attempts == 1:
                raise ValueError("no")

        async with consumer(world) as each:
            task = running(each, handle)
            await asyncio.sleep(2)
        await task
        assert seen == [("t", b"0", 1), ("t", b"0", 2)]
        (sent,) = world.broker.asked(RequestCode.SEND_MESSAGE_V2)
        assert (sent.ext["b"], sent.ext["j"], sent.ext["l"]) == ("%RETRY%g", "1", "16")
        assert "RETRY_TOPIC\x01t\x02" in sent.ext["i"]
        assert "DELAY\x013\x02" in sent.ext["i"]

    in_virtual_time(go())


def test_what_cannot_be_sent_back_at_all_comes_again_here() -> None:
    async def go() -> None:
        world = filled(1, queues=1)
        world.broker.scripts[RequestCode.CONSUMER_SEND_MSG_BACK] = say_no(3)
        world.broker.scripts[RequestCode.SEND_MESSAGE_V2] = say_no(1)
        times = []

        async def handle(message: RocketMQMessage) -> None:
            times.append(round(asyncio.get_running_loop().time()))
            if message.attempts == 1:
                raise ValueError("no")

        async with consumer(world) as each:
            task = running(each, handle)
            await asyncio.sleep(8)
        await task
        assert len(times) == 2
        assert times[1] - times[0] == 5
        assert world.position("g", "t", 0) == 1

    in_virtual_time(go())


def test_a_cancelled_run_gives_nothing_back_and_the_next_one_goes_on() -> None:
    async def go() -> None:
        world = filled(6, queues=2)
        begun = []

        async def hang(message: RocketMQMessage) -> None:
            begun.append(message.body)
            await asyncio.sleep(1000)

        async with consumer(world) as each:
            task = running(each, hang, concurrency=3)
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(begun) == 3
            assert sorted(await settled(each, 6)) == [b"%d" % index for index in range(6)]
        assert world.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK) == []
        assert world.total("g", "t") == 6

    in_virtual_time(go())


def test_a_handler_that_something_else_cancels_has_failed_and_its_worker_goes_on() -> None:
    async def go() -> None:
        world = filled(2, queues=1)
        seen = []

        async def handle(message: RocketMQMessage) -> None:
            seen.append(message.body)
            if message.body == b"0":
                raise asyncio.CancelledError

        async with consumer(world) as each:
            task = running(each, handle, concurrency=1)
            await asyncio.sleep(1)
            assert seen == [b"0", b"1"]
            assert len(world.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1
        await task

    in_virtual_time(go())


@pytest.mark.parametrize("answer", ["nothing", "an error"])
def test_a_handler_that_makes_something_else_of_being_cancelled(answer: str) -> None:
    async def go() -> None:
        world = filled(4, queues=1)

        async def handle(message: RocketMQMessage) -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                if answer == "an error":
                    raise ValueError("interrupted") from None

        async with consumer(world) as each:
            task = running(each, handle, concurrency=2)
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert world.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK) == []
        assert world.position("g", "t", 0) in ((None, 0) if answer == "an error" else (2,))

    in_virtual_time(go())


class Interrupted(BaseException):
    """What Ctrl-C is to a script."""


def test_what_is_no_exception_ends_the_run_and_sends_nothing_back() -> None:
    async def go() -> None:
        world = filled(4, queues=1)

        async def handle(message: RocketMQMessage) -> None:
            raise Interrupted

        with pytest.raises(Interrupted):
            async with consumer(world) as each:
                await each.run(handle, concurrency=2)
        assert world.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK) == []
        assert world.position("g", "t", 0) in (None, 0)

    in_virtual_time(go())


def test_a_handler_that_takes_too_long_has_failed() -> None:
    async def go() -> None:
        world = filled(1, queues=1)

        async def hang(message: RocketMQMessage) -> None:
            await asyncio.sleep(10_000)

        async with consumer(world, consuming=ConsumeOptions(begin_from="first", consume_seconds_max=60)) as each:
            task = running(each, hang)
            await asyncio.sleep(100)
            assert len(world.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1
        await task

    in_virtual_time(go())


def test_what_an_iterating_program_forgets_is_given_back_in_time() -> None:
    async def go() -> None:
        world = filled(1, queues=1)
        async with consumer(world, consuming=ConsumeOptions(begin_from="first", consume_seconds_max=60)) as each:
            (message,) = await each.take()
            await asyncio.sleep(100)
            assert not message.is_current
            assert world.position("g", "t", 0) == 1
            with pytest.raises(LocalProtocolError, match="settled or given back"):
                message.settle()

    in_virtual_time(go())


def test_a_handler_may_take_any_time_where_nobody_says_how_long() -> None:
    async def go() -> None:
        world = filled(1, queues=1)

        async def work(message: RocketMQMessage) -> None:
            await asyncio.sleep(10_000)

        async with consumer(world, consuming=ConsumeOptions(begin_from="first", consume_seconds_max=None)) as each:
            task = running(each, work)
            await asyncio.sleep(10_100)
            assert world.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK) == []
            assert world.position("g", "t", 0) == 1
        await task

    in_virtual_time(go())


def test_ordered_messages_come_one_at_a_time_and_wait_for_one_that_fails() -> None:
    async def go() -> None:
        world = filled(8, queues=2)
        seen: list[tuple[int, bytes, int]] = []
        busy: set[int] = set()

        async def handle(message: RocketMQMessage) -> None:
            number = message.queue.queue_id
            assert number not in busy
            busy.add(number)
            await asyncio.sleep(0.1)
            busy.remove(number)
            seen.append((number, message.body, message.attempts))
            if message.body == b"2" and message.attempts < 3:
                raise ValueError("not yet")

        async with consumer(world, consuming=ConsumeOptions(begin_from="first", is_ordered=True)) as each:
            task = running(each, handle)
            await asyncio.sleep(5)
            assert set(world.locks.values()) == {each.client_id}
        await task
        assert [(body, attempts) for number, body, attempts in seen if number == 0] == [
            (b"0", 1), (b"2", 1), (b"2", 2), (b"2", 3), (b"4", 1), (b"6", 1),
        ]  # fmt: skip
        assert [body for number, body, _ in seen if number == 1] == [b"1", b"3", b"5", b"7"]
        assert world.locks == {}
        assert world.total("g", "t") == 8

    in_virtual_time(go())


def test_an_ordered_message_that_has_failed_too_often_goes_to_the_dead_letters() -> None:
    async def go() -> None:
        world = filled(2, queues=1)

        async def handle(message: RocketMQMessage) -> None:
            if message.body == b"0":
                raise ValueError("never")

        consuming = ConsumeOptions(begin_from="first", is_ordered=True, ordered_reconsume_times_max=2)
        async with consumer(world, consuming=consuming) as each:
            task = running(each, handle)
            await asyncio.sleep(5)
        await task
        (sent,) = world.broker.asked(RequestCode.SEND_MESSAGE_V2)
        assert sent.ext["b"] == "%RETRY%g"
        assert [each.body for each in world.stored["%DLQ%g", "broker-a", 0]] == [b"0"]
        assert world.position("g", "t", 0) == 2

    in_virtual_time(go())


def test_tags_are_compared_as_text_too() -> None:
    async def go() -> None:
        world = World(queues=1)
        for body, tags in ((b"0", "Aa"), (b"1", "BB"), (b"2", "C"), (b"3", "Aa")):  # Aa and BB have the same hash
            world.put("t", body, properties=f"TAGS\x01{tags}\x02")
        async with consumer(world, {"t": "Aa || D"}) as each:
            assert await settled(each, 2) == [b"0", b"3"]
            await each.flush()
            assert world.position("g", "t", 0) == 4
        (data,) = world.heartbeats[-1]["consumerDataSet"]
        found = {row["topic"]: row for row in data["subscriptionDataSet"]}
        assert sorted(found["t"]["tagsSet"]) == ["Aa", "D"]
        assert found["%RETRY%g"]["subString"] == "*"

    in_virtual_time(go())


async def at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do what would be done in a thread, which knows nothing of virtual time."""
    return work(*arguments)


def test_broadcasts_keep_positions_in_a_file_and_drop_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.clients.rocketmq_positions._beside", at_once)

    async def go() -> None:
        world = filled(4, queues=2)
        consuming = ConsumeOptions(begin_from="first", is_broadcast=True, offsets_folder=tmp_path)

        async def handle(message: RocketMQMessage) -> None:
            if message.body == b"1":
                raise ValueError("no")

        async with consumer(world, consuming=consuming) as each:
            task = running(each, handle)
            await asyncio.sleep(1)
        await task
        codes = {request.code for request in world.broker.requests}
        assert not codes & {14, 15, 36, 38}
        async with consumer(world, consuming=consuming) as each:
            world.put("t", b"new")
            assert await settled(each, 1) == [b"new"]

    in_virtual_time(go())


def test_a_closing_consumer_waits_for_hands_as_long_as_it_is_told() -> None:
    async def go() -> None:
        world = filled(2, queues=1)

        async def handle(message: RocketMQMessage) -> None:
            await asyncio.sleep(3 if message.body == b"0" else 100)

        each = consumer(world)
        async with each:
            task = running(each, handle)
            await asyncio.sleep(1)
            begun = asyncio.get_running_loop().time()
            await each.close(grace_seconds=5)
            assert asyncio.get_running_loop().time() - begun == pytest.approx(5, abs=0.5)
        assert world.position("g", "t", 0) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    in_virtual_time(go())


def test_closing_returns_whatever_the_broker_does() -> None:
    async def go() -> None:
        world = filled(4, queues=1)
        async with consumer(world) as each:
            await settled(each, 4)
            for code in (15, 35, 34):
                world.broker.scripts[code] = lambda _: None
            begun = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - begun < 10

    in_virtual_time(go())


def test_a_handler_may_close_its_consumer() -> None:
    async def go() -> None:
        world = filled(3, queues=1)
        async with consumer(world) as each:

            async def handle(message: RocketMQMessage) -> None:
                message.settle()
                await each.close()

            await each.run(handle, concurrency=1)
        assert world.position("g", "t", 0) == 1

    in_virtual_time(go())


@pytest.mark.parametrize("code", [RequestCode.HEART_BEAT, RequestCode.GET_CONSUMER_LIST_BY_GROUP])
def test_who_may_not_consume_is_told(code: RequestCode) -> None:
    async def go() -> None:
        world = filled(1)
        world.broker.scripts[code] = say_no(1, "org.apache.rocketmq.acl.common.AclException: no such key")
        with pytest.raises(Refusal, match="AclException"):
            async with consumer(world):
                pass

    in_virtual_time(go())


def test_without_a_name_server_there_is_no_beginning() -> None:
    async def go() -> None:
        world = World()
        world.name_server.is_down = True
        with pytest.raises(DeadlineExceeded, match="no name server within 2 s"):
            async with consumer(world, deadline_seconds=2):
                pass

    in_virtual_time(go())


def test_a_lost_broker_is_found_again_and_nothing_is_lost() -> None:
    async def go() -> None:
        world = filled(2, queues=1)
        async with consumer(world) as each:
            assert await settled(each, 2) == [b"0", b"1"]
            world.broker.is_down = True
            for wire in list(world.broker.wires):
                wire.end()
            await asyncio.sleep(20)
            world.broker.is_down = False
            world.members.clear()
            world.put("t", b"2")
            assert await settled(each, 1) == [b"2"]
            await asyncio.sleep(25)
            assert world.members["g"] == [each.client_id]

    in_virtual_time(go())


def test_a_namespace_is_on_the_wire_only() -> None:
    async def go() -> None:
        world = World(queues=1)
        world.put("ns%t", b"0")
        async with consumer(world, namespace="ns") as each:
            (message,) = await each.take()
            assert message.topic == "t"
            message.requeue(3)
            await asyncio.sleep(1)
        (back,) = world.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert (back.ext["group"], back.ext["originTopic"], back.ext["delayLevel"]) == ("ns%g", "ns%t", "3")
        assert world.members["ns%g"] == []

    in_virtual_time(go())


@pytest.mark.parametrize(
    "values",
    [{"begin_from": "middle"}, {"begin_from": -1}, {"reconsume_times_max": -1}, {"suspend_seconds": 0}, {"consume_seconds_max": 0}],
)
def test_options_that_nobody_can_mean(values: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        ConsumeOptions(**values)


def test_arguments_that_nobody_can_mean() -> None:
    async def go() -> None:
        world = World()
        for group, topics in (("g", {"t": " || "}), ("g", "no such topic!"), ("bad group!", "t"), ("g", [])):
            with pytest.raises(LocalProtocolError):
                RocketMQConsumer(NAME_SERVER, group, topics, opener=world.open)
        async with consumer(world) as each:
            with pytest.raises(LocalProtocolError, match="concurrency is 0"):
                await each.run(lambda _: asyncio.sleep(0), concurrency=0)

    in_virtual_time(go())


def test_a_topic_that_appears_later_is_found_soon() -> None:
    async def go() -> None:
        world = World(queues=1)
        async with consumer(world) as each:
            await asyncio.sleep(10)
            world.put("t", b"0")
            async with asyncio.timeout(2):
                assert await settled(each, 1) == [b"0"]

    in_virtual_time(go())


def test_begins_where_it_is_told() -> None:
    async def go() -> None:
        for begin_from, expected in (("last", [b"new"]), ("first", [b"0", b"1", b"2", b"3", b"new"]), (12345, [b"2", b"3", b"new"])):
            world = filled(4, queues=1)
            async with consumer(world, consuming=ConsumeOptions(begin_from=begin_from)) as each:
                world.put("t", b"new")
                assert await settled(each, len(expected)) == expected

    in_virtual_time(go())


def test_messages_that_are_not_ours_any_more_change_nothing() -> None:
    async def go() -> None:
        world = filled(2, queues=2)
        async with consumer(world) as each:
            messages = await taken(each, 2)
            world.strangers = ["0.0.0.0@0", "9"]  # sorted before and behind us: we keep the second queue
            world.broker.push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
            await asyncio.sleep(1)
            for message in messages:
                message.requeue()
            await asyncio.sleep(1)
            back = world.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
            assert len(back) == len([queue for queue in each.queues if queue[0] == "t"]) == 1

    in_virtual_time(go())
