"""Where a group is: asked of brokers, kept in files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients import rocketmq_positions
from polymq.clients.rocketmq_options import RocketMQOptions
from polymq.clients.rocketmq_positions import BrokerPositions, FilePositions, QueueQuestions, default_folder
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.clients.rocketmq_session import Session
from polymq.errors import ConnectFailed, Refusal, RemoteProtocolError
from tests.unit.clients.rocketmq_worlds import NAME_SERVER, World, ok, say_no
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUEUE = MessageQueue("t", "broker-a", 1)


def asking(work: Callable[[World, QueueQuestions], Any]) -> None:
    async def go() -> None:
        world = World()
        for index in range(5):
            world.put("t", b"%d" % index, 1)
        session = Session(NAME_SERVER, RocketMQOptions(), opener=world.open)
        await session.start()
        try:
            await work(world, QueueQuestions(session, "g"))
        finally:
            await session.close()

    in_virtual_time(go())


def test_questions_about_a_queue() -> None:
    async def work(world: World, questions: QueueQuestions) -> None:
        assert [await questions.begin(QUEUE), await questions.end(QUEUE), await questions.at_time(QUEUE, 77)] == [0, 5, 2]
        assert world.broker.asked(29)[0].ext["timestamp"] == "77"
        assert await questions.committed(QUEUE) is None
        await questions.commit(QUEUE, 3, wait=True)
        assert await questions.committed(QUEUE) == 3
        world.broker.scripts[14] = lambda _: ok({"offset": -1})
        assert await questions.committed(QUEUE) is None
        assert world.broker.asked(15)[0].ext["bname"] == "broker-a"

    asking(work)


def test_where_a_group_begins() -> None:
    async def work(world: World, questions: QueueQuestions) -> None:
        assert [await questions.start(QUEUE, each) for each in ("first", "last", 123)] == [0, 5, 2]
        assert await questions.start(MessageQueue("%RETRY%g", "broker-a", 0), "last") == 0

    asking(work)


def test_refusals_are_raised() -> None:
    async def work(world: World, questions: QueueQuestions) -> None:
        for code in (14, 15, 29, 30, 31):
            world.broker.scripts[code] = say_no(16)
        for question in (questions.begin(QUEUE), questions.end(QUEUE), questions.at_time(QUEUE, 1), questions.committed(QUEUE)):
            with pytest.raises(Refusal, match="code 16"):
                await question
        with pytest.raises(Refusal):
            await questions.commit(QUEUE, 3, wait=True)
        with pytest.raises(ConnectFailed, match="no route to the broker nobody"):
            await questions.begin(MessageQueue("t", "nobody", 0))

    asking(work)


def test_a_broker_keeps_what_it_takes() -> None:
    async def work(world: World, questions: QueueQuestions) -> None:
        positions = BrokerPositions(questions)
        others = [MessageQueue("t", "broker-a", number) for number in range(3)]
        world.broker.scripts[15] = lambda request: (
            None if request.ext["queueId"] == "1" else world.answer(world.broker, world.broker.wires[0], request)
        )
        kept = await positions.write(dict.fromkeys(others, 4), wait=True)
        assert kept == {others[0]: 4}  # behind one that is not answered nothing is asked
        del world.broker.scripts[15]
        assert await positions.write(dict.fromkeys(others, 5), wait=False) == dict.fromkeys(others, 5)
        await asyncio.sleep(0.1)
        assert [await positions.read(queue) for queue in others] == [5, 5, 5]
        assert [request.oneway for request in world.broker.asked(15)][-3:] == [True] * 3
        world.broker.scripts[15] = say_no(16)
        assert await positions.write({QUEUE: 6}, wait=True) == {}

    asking(work)


def test_a_file_keeps_positions(tmp_path: Path) -> None:
    async def go() -> None:
        positions = FilePositions(tmp_path, "1.2.3.4@a/b", "g")
        assert await positions.read(QUEUE) is None
        assert await positions.write({}, wait=True) == {}
        assert await positions.write({QUEUE: 7}, wait=True) == {QUEUE: 7}
        again = FilePositions(tmp_path, "1.2.3.4@a/b", "g")
        await again.write({MessageQueue("t", "broker-a", 2): 1}, wait=False)
        third = FilePositions(tmp_path, "1.2.3.4@a/b", "g")
        assert await third.read(QUEUE) == 7

    asyncio.run(go())
    assert [file.relative_to(tmp_path).parts for file in tmp_path.rglob("*") if file.is_file()] == [("1.2.3.4@a_b", "g", "offsets.json")]
    assert default_folder().is_absolute()


def test_files_that_are_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        for text in ("", "[]", '{"offsets":[1]}', '{"offsets":[["t","b","x",1]]}'):
            file = tmp_path / "c" / "g" / "offsets.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            with pytest.raises(RemoteProtocolError, match="no file of positions"):
                await FilePositions(tmp_path, "c", "g").read(QUEUE)
        monkeypatch.setattr(rocketmq_positions, "_FILE_SIZE_BYTES_MAX", 3)
        with pytest.raises(RemoteProtocolError, match="too large"):
            await FilePositions(tmp_path, "c", "g").read(QUEUE)
        (tmp_path / "file").write_text("")
        with pytest.raises(ConnectFailed):
            await FilePositions(tmp_path / "file", "c", "g").read(QUEUE)

    asyncio.run(go())
