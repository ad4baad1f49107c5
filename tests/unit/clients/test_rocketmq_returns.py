"""Messages that go back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polymq.clients.rocketmq_messages import RocketMQMessage
from polymq.clients.rocketmq_options import RocketMQOptions
from polymq.clients.rocketmq_positions import QueueQuestions
from polymq.clients.rocketmq_returns import Returns
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.clients.rocketmq_session import Session
from polymq.protocols.rocketmq.properties import parse
from tests.unit.clients.rocketmq_worlds import NAME_SERVER, World, say_no
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable


def message(attempts: int = 1) -> RocketMQMessage:
    properties = {"UNIQ_KEY": "K", "TAGS": "x", "MIN_OFFSET": "0", "CLUSTER": "c", "mine": "1"}
    found = RocketMQMessage("t", MessageQueue("t", "broker-a", 2), 5, b"body", properties)
    found.attempts, found.physical_offset, found.born_ms, found.flag = attempts, 99, 123, 4
    return found


def returning(work: Callable[[World, Returns], Any]) -> None:
    async def go() -> None:
        world = World()
        world.topics.update(("t", "%RETRY%g"))
        session = Session(NAME_SERVER, RocketMQOptions(), opener=world.open)
        await session.start()
        try:
            await work(world, Returns(session, QueueQuestions(session, "g"), "g", 16))
        finally:
            await session.close()

    in_virtual_time(go())


def test_the_broker_is_asked_to_deliver_it_again() -> None:
    async def work(world: World, returns: Returns) -> None:
        assert await returns.send_back(message(), 2)
        (request,) = world.broker.asked(36)
        assert request.ext == {
            "offset": "99",
            "group": "g",
            "delayLevel": "2",
            "originMsgId": "K",
            "originTopic": "t",
            "unitMode": "false",
            "maxReconsumeTimes": "16",
            "bname": "broker-a",
        }

    returning(work)


def test_a_copy_is_what_the_broker_would_have_made() -> None:
    async def work(world: World, returns: Returns) -> None:
        world.broker.scripts[36] = say_no(1)
        assert await returns.send_back(message(attempts=3), 0)
        assert await returns.send_back(message(), 7)
        assert await returns.send_back(message(), -1)
        sent = world.broker.asked(310)
        assert [(each.ext["b"], each.ext["e"], each.ext["j"], each.ext["l"]) for each in sent] == [
            ("%RETRY%g", "0", "3", "16"),
            ("%RETRY%g", "0", "1", "16"),
            ("%RETRY%g", "0", "1", "0"),
        ]
        named = [parse(each.ext["i"].encode()) for each in sent]
        assert [each["DELAY"] for each in named[:2]] == ["5", "7"]
        rest = {name: value for name, value in named[0].items() if name != "DELAY"}
        assert rest == {"UNIQ_KEY": "K", "TAGS": "x", "mine": "1", "RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": "K"}
        assert (sent[0].body, sent[0].ext["g"], sent[0].ext["h"]) == (b"body", "123", "4")
        assert [each.body for each in world.stored["%DLQ%g", "broker-a", 0]] == [b"body"]

    returning(work)


def test_ordered_messages_go_to_the_dead_letters() -> None:
    async def work(world: World, returns: Returns) -> None:
        assert await returns.send_back(message(attempts=4), 0, is_ordered=True)
        assert world.broker.asked(36) == []
        assert len(world.stored["%DLQ%g", "broker-a", 0]) == 1

    returning(work)


def test_what_nobody_takes_is_still_ours() -> None:
    async def work(world: World, returns: Returns) -> None:
        world.broker.scripts.update({36: say_no(1), 310: say_no(1)})
        assert not await returns.send_back(message(), 0)

    returning(work)
