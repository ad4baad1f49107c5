"""A producer against a world of its own, in virtual time."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.rocketmq_messages import OutgoingMessage
from polymq.clients.rocketmq_options import RocketMQOptions
from polymq.clients.rocketmq_producer import RocketMQProducer
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal, RefusalCode
from polymq.protocols.rocketmq.batches import split_batch
from polymq.protocols.rocketmq.ids import unique_key_time_ms
from tests.unit.clients.rocketmq_worlds import NAME_SERVER, World, ok, say_no
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.protocols.rocketmq.events import Request
    from tests.unit.clients.rocketmq_worlds import Reply

MESSAGE = OutgoingMessage("t", b"body")


def producing(work: Callable[[World, RocketMQProducer], Any], *, brokers: int = 1, **options: Any) -> None:
    async def go() -> None:
        world = World(brokers=brokers)
        world.topics.add("t")
        producer = RocketMQProducer(NAME_SERVER, RocketMQOptions(**options), group="p", opener=world.open, random=lambda: 0.5)
        async with producer:
            await work(world, producer)

    in_virtual_time(go())


def test_a_message_is_sent_to_one_queue_after_the_other() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        results = [await producer.send(MESSAGE) for _ in range(8)]
        assert sorted(each.queue.queue_id for each in results) == [0, 0, 1, 1, 2, 2, 3, 3]
        request = world.broker.asked(310)[0]
        assert (request.ext["a"], request.ext["b"], request.ext["n"], request.body) == ("p", "t", "broker-a", b"body")
        assert results[0].is_safe
        assert unique_key_time_ms(results[0].id, int(request.ext["g"])) == pytest.approx(int(request.ext["g"]), abs=2000)
        assert len(results[0].offset_id) == 32

    producing(work)


def test_a_new_topic_is_made_by_its_first_message() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        result = await producer.send(OutgoingMessage("new", b""))
        assert result.queue.topic == "new"
        assert world.broker.asked(310)[0].ext["c"] == "TBW102"

    producing(work)


def test_a_topic_that_nobody_may_make() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        world.name_server.scripts[105] = say_no(17)
        await asyncio.sleep(70)
        with pytest.raises(Refusal) as caught:
            await producer.send(OutgoingMessage("new", b""))
        assert caught.value.code is RefusalCode.TOPIC_NOT_FOUND
        with pytest.raises(Refusal):
            await producer.queues("new")

    producing(work)


def test_large_bodies_are_packed() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        await producer.send(OutgoingMessage("t", b"a" * 10_000))
        request = world.broker.asked(310)[0]
        assert request.ext["f"] == "769"
        assert zlib.decompress(request.body) == b"a" * 10_000

    producing(work)


def test_messages_of_one_key_go_to_one_queue() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        found = {(await producer.send(OutgoingMessage("t", b"", sharding_key="TagA"))).queue.queue_id for _ in range(5)}
        assert found == {2598919 % 4}
        chosen = await producer.send(MESSAGE, select=lambda queues: queues[-1])
        assert chosen.queue.queue_id == 3
        with pytest.raises(LocalProtocolError, match="not one of the queues"):
            await producer.send(MESSAGE, select=lambda _: MessageQueue("t", "nobody", 0))

    producing(work)


@pytest.mark.parametrize("code", [17, 14, 1, 16, 204, 205])
def test_what_one_broker_refuses_is_sent_to_another(code: int) -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        world.broker.scripts[310] = say_no(code)
        results = [await producer.send(MESSAGE) for _ in range(4)]
        assert {each.queue.broker_name for each in results} == {"broker-b"}
        ids = [request.ext["i"] for server in world.brokers.values() for request in server.asked(310)]
        assert len(set(ids)) == 4  # a message keeps its name

    producing(work, brokers=2)


def test_what_every_broker_refuses_is_refused_after_some_attempts() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        world.broker.scripts[310] = say_no(14, "no room")
        with pytest.raises(Refusal, match="code 14: no room") as caught:
            await producer.send(MESSAGE)
        assert caught.value.code is RefusalCode.STORE_FAILED
        assert len(world.broker.asked(310)) == 3
        with pytest.raises(Refusal):
            await producer.send(OutgoingMessage("t", b"", sharding_key=1))
        assert len(world.broker.asked(310)) == 4

    producing(work)


def test_other_refusals_are_told_at_once() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        world.broker.scripts[310] = say_no(13, "illegal")
        with pytest.raises(Refusal, match="illegal"):
            await producer.send(MESSAGE)
        assert len(world.broker.asked(310)) == 1

    producing(work, brokers=1)


def test_a_broker_that_is_not_sure_of_its_disk_has_it() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        def flawed(request: Request) -> Reply:
            return 10, "", {"msgId": "M", "queueId": "0", "queueOffset": "7"}, b""

        world.broker.scripts[310] = flawed
        result = await producer.send(MESSAGE)
        assert (result.code, result.is_safe, result.queue_offset) == (10, False, 7)

    producing(work)


def test_a_broker_that_comes_back_in_time_gets_the_message() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        world.broker.is_down = True
        sending = asyncio.create_task(producer.send(MESSAGE))
        await asyncio.sleep(1)
        world.broker.is_down = False
        assert (await sending).is_safe
        world.broker.is_down = True
        world.broker.wires[-1].end()
        with pytest.raises(DeadlineExceeded, match="sending took longer than 3 s; last failure"):
            await producer.send(MESSAGE)
        with pytest.raises(DeadlineExceeded):
            await producer.send_one_way(MESSAGE)

    producing(work)


def test_an_answer_that_is_lost_is_asked_for_again_but_not_for_a_chosen_queue() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        def lose(request: Request) -> Reply | None:
            world.broker.wires[-1].end()
            return None

        await producer.send(MESSAGE)
        world.broker.scripts[310] = lose
        with pytest.raises(ConnectionLost):
            await producer.send(OutgoingMessage("t", b"", sharding_key=1))
        with pytest.raises(ConnectionLost):
            await producer.send(MESSAGE)
        assert len(world.broker.asked(310)) == 1 + 1 + 3

    producing(work)


def test_a_silent_broker_is_waited_for_in_bounds() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        world.broker.scripts[310] = lambda _: None
        begun = asyncio.get_running_loop().time()
        with pytest.raises(DeadlineExceeded):
            await producer.send(MESSAGE)
        assert asyncio.get_running_loop().time() - begun == pytest.approx(3, abs=0.1)

    producing(work)


def test_one_way_messages_are_not_waited_for() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        await producer.send_one_way(OutgoingMessage("t", b"1", tags="x"))
        await asyncio.sleep(0.1)
        (request,) = world.broker.asked(310)
        assert request.oneway
        assert "TAGS\x01x\x02" in request.ext["i"]

    producing(work)


def test_batches_go_in_one_request() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        result = await producer.send_batch([OutgoingMessage("t", b"%d" % index, sharding_key="TagA") for index in range(3)])
        (request,) = world.broker.asked(320)
        assert request.ext["m"] == "true"
        assert [part.body for part in split_batch(request.body)] == [b"0", b"1", b"2"]
        assert len(result.id.split(",")) == 3
        assert result.queue.queue_id == 2598919 % 4
        with pytest.raises(LocalProtocolError):
            await producer.send_batch([])

    producing(work)


def test_delays_are_properties() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        await producer.send(OutgoingMessage("t", b"", delay_level=3))
        await producer.send(OutgoingMessage("t", b"", deliver_at_ms=123))
        sent = [request.ext["i"] for request in world.broker.asked(310)]
        assert "DELAY\x013\x02" in sent[0]
        assert "TIMER_DELIVER_MS\x01123\x02" in sent[1]

    producing(work)


def test_a_closed_producer_sends_nothing() -> None:
    async def go() -> None:
        world = World()
        producer = RocketMQProducer(NAME_SERVER, group="p", opener=world.open)
        async with producer:
            await producer.send(MESSAGE)
            assert [queue.queue_id for queue in await producer.queues("t")] == [0, 1, 2, 3]
        with pytest.raises((ConnectionLost, DeadlineExceeded)):
            await producer.send(MESSAGE)
        assert {request.ext.get("producerGroup") for request in world.broker.asked(35)} <= {"p", "CLIENT_INNER_PRODUCER"}

    in_virtual_time(go())


def test_the_namespace_is_on_the_wire() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        await producer.send(MESSAGE)
        assert (world.broker.asked(310)[0].ext["a"], world.broker.asked(310)[0].ext["b"]) == ("ns%p", "ns%t")

    producing(work, namespace="ns")


def test_topics_that_take_no_messages_are_refused_here() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        with pytest.raises(LocalProtocolError):
            await producer.send(OutgoingMessage("no topic", b""))
        assert world.broker.requests == []

    producing(work)


def test_a_route_without_an_address_is_asked_for_again() -> None:
    async def work(world: World, producer: RocketMQProducer) -> None:
        world.name_server.scripts[105] = lambda _: ok(
            body=b'{"brokerDatas":[],"queueDatas":[{"brokerName":"x","perm":6,"readQueueNums":1,"writeQueueNums":1}],"orderTopicConf":"x:1"}'
        )
        with pytest.raises(DeadlineExceeded, match="no address of the broker x"):
            await producer.send(OutgoingMessage("other", b""))

    producing(work)
