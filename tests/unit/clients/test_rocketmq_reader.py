"""Pulling one queue: one request at a time, and what is done about each kind of answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.rocketmq_options import RocketMQOptions
from polymq.clients.rocketmq_reader import PullOptions, QueueReader
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.clients.rocketmq_session import Session
from polymq.clients.rocketmq_window import QueueWindow
from polymq.errors import LocalProtocolError
from polymq.protocols.rocketmq.bodies import subscription_of
from tests.unit.clients.rocketmq_worlds import NAME_SERVER, World, say_no
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.clients.rocketmq_messages import RocketMQMessage

QUEUE = MessageQueue("t", "broker-a", 0)


class Reading:
    """An owner that takes everything at once, or nothing."""

    def __init__(self) -> None:
        self.seen: list[RocketMQMessage] = []
        self.takes = True

    def arrived(self, reader: QueueReader) -> None:
        while self.takes and (message := reader.window.take()) is not None:
            self.seen.append(message)
            message.settle()

    def settled(self, reader: QueueReader, message: RocketMQMessage) -> None:
        reader.window.settled(message)
        reader.room()

    def requeued(self, reader: QueueReader, message: RocketMQMessage, delay_level: int) -> None:
        raise AssertionError

    def let_be(self, reader: QueueReader, message: RocketMQMessage) -> None:
        raise AssertionError


def reading(work: Callable[[World, QueueReader, Reading], Any], *, first: int = 0, tags: str = "*") -> None:
    async def go() -> None:
        world = World(queues=1)
        world.topics.add("t")
        session = Session(NAME_SERVER, RocketMQOptions(), opener=world.open)
        await session.start()
        owner = Reading()
        window = QueueWindow(QUEUE, first)
        reader = QueueReader(session, "g", subscription_of("t", tags, 9), window, owner, PullOptions(), lambda: 0.5)
        reader.start()
        try:
            await work(world, reader, owner)
        finally:
            await session.close()

    in_virtual_time(go())


def test_messages_come_as_they_are_stored() -> None:
    async def work(world: World, reader: QueueReader, owner: Reading) -> None:
        for index in range(3):
            await asyncio.sleep(1)
            world.put("t", b"%d" % index)
        await asyncio.sleep(0.1)
        assert [each.body for each in owner.seen] == [b"0", b"1", b"2"]
        assert reader.window.position == 3
        ext = world.broker.asked(11)[-1].ext
        assert ext["queueOffset"] == "3"
        assert (ext["sysFlag"], ext["subscription"], ext["subVersion"], ext["suspendTimeoutMillis"]) == ("6", "*", "9", "15000")

    reading(work)


def test_a_held_pull_is_asked_again_without_a_pause() -> None:
    async def work(world: World, reader: QueueReader, owner: Reading) -> None:
        await asyncio.sleep(100)
        assert len(world.broker.asked(11)) == 7

    reading(work)


def test_a_broker_that_holds_nothing_is_asked_with_pauses() -> None:
    async def work(world: World, reader: QueueReader, owner: Reading) -> None:
        world.is_hasty = True
        await asyncio.sleep(10)
        assert 40 <= len(world.broker.asked(11)) <= 60

    reading(work)


def test_nothing_is_pulled_while_there_is_enough() -> None:
    async def work(world: World, reader: QueueReader, owner: Reading) -> None:
        owner.takes = False
        for _ in range(1500):
            world.put("t", b"")
        await asyncio.sleep(5)
        assert 1000 <= reader.window.count <= 1032
        owner.takes = True
        owner.arrived(reader)
        await asyncio.sleep(5)
        assert len(owner.seen) == 1500

    reading(work)


def test_filtered_messages_move_the_position() -> None:
    async def work(world: World, reader: QueueReader, owner: Reading) -> None:
        for tags in ("A", "B", "A", "BB", "B"):
            world.put("t", tags.encode(), properties=f"TAGS\x01{tags}\x02")
        await asyncio.sleep(1)
        assert [each.body for each in owner.seen] == [b"BB"]
        assert reader.window.position == 5

    reading(work, tags="BB || X")


def test_an_offset_that_is_not_there_is_corrected_when_all_is_settled() -> None:
    async def work(world: World, reader: QueueReader, owner: Reading) -> None:
        world.put("t", b"0")
        await asyncio.sleep(20)
        assert reader.window.position == 1
        assert [each.body for each in owner.seen] == []
        world.put("t", b"1")
        await asyncio.sleep(0.1)
        assert [each.body for each in owner.seen] == [b"1"]

    reading(work, first=100)


@pytest.mark.parametrize("code", [1, 17, 24, 25, 26])
def test_refusals_are_asked_again_after_a_while(code: int) -> None:
    async def work(world: World, reader: QueueReader, owner: Reading) -> None:
        world.broker.scripts[11] = say_no(code)
        world.put("t", b"0")
        await asyncio.sleep(20)
        assert 4 <= len(world.broker.asked(11)) <= 8
        world.broker.scripts.clear()
        await asyncio.sleep(8)
        assert [each.body for each in owner.seen] == [b"0"]

    reading(work)


def test_a_broker_that_has_too_much_to_do_is_asked_soon() -> None:
    async def work(world: World, reader: QueueReader, owner: Reading) -> None:
        world.broker.scripts[11] = say_no(215)
        await asyncio.sleep(1)
        assert 30 <= len(world.broker.asked(11)) <= 52

    reading(work)


def test_answers_that_make_no_sense_do_not_end_it() -> None:
    async def work(world: World, reader: QueueReader, owner: Reading) -> None:
        pulled = {"suggestWhichBrokerId": "0", "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}
        answers = [(0, "", {}, b""), (0, "", pulled, b"no messages"), (0, "", {**pulled, "suggestWhichBrokerId": "x"}, b"")]
        world.broker.scripts[11] = lambda _: answers.pop() if answers else (1, "", {}, b"")
        world.put("t", b"0")
        await asyncio.sleep(20)
        assert answers == []
        world.broker.scripts.clear()
        await asyncio.sleep(8)
        assert [each.body for each in owner.seen] == [b"0"]

    reading(work)


def test_a_stopped_reader_gives_nothing_more() -> None:
    async def work(world: World, reader: QueueReader, owner: Reading) -> None:
        await asyncio.sleep(1)
        reader.stop()
        world.put("t", b"0")
        await asyncio.sleep(20)
        assert owner.seen == []
        assert reader.window.is_dropped

    reading(work)


@pytest.mark.parametrize(
    "values", [{"batch_max": 0}, {"held_seconds": -1}, {"patience_seconds": 0}, {"retry_seconds_first": 2, "retry_seconds_max": 1}]
)
def test_options_that_make_no_sense(values: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        PullOptions(**values)
