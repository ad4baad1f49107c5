from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.protocols.rocketmq.codes import ResponseCode
from tests.unit.core.fakes import FakeReader

from .harness import Talk, World, bodies

if TYPE_CHECKING:
    from polymq.wire.slices import Slice


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def talk(world: World) -> Talk:
    return world.connect()


def test_the_pulls_of_a_connection_go_with_it(world: World, talk: Talk) -> None:
    talk.put("T")
    for queue in range(4):
        assert talk.pull("T", 1 if queue == 0 else 0, queue=queue) is None
    assert world.house.holds.count == 4
    talk.stream.input_ended = True
    world.pump.readable(talk.connection)
    assert world.house.holds.count == 0
    assert talk.client.gone
    world.connect().put("T")
    world.wait(30)


def test_a_topic_that_goes_answers_its_pulls(world: World, talk: Talk) -> None:
    talk.put("T")
    assert talk.pull("T", 1) is None
    world.core.session.delete_topic("T")
    world.turn()
    (answer,) = talk.hear()
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_nobody_waits_without_bound(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.pulls.PULLS_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr("polymq.gateways.rocketmq.pulls.PULLS_MAX", 3)
    other = world.connect()
    talk.put("T")
    assert [talk.pull("T", 1), talk.pull("T", 1)] == [None, None]
    busy = talk.pull("T", 1)
    assert busy is not None
    assert busy.code == ResponseCode.SYSTEM_BUSY
    assert other.pull("T", 1) is None
    busy = other.pull("T", 1)
    assert busy is not None
    assert busy.code == ResponseCode.SYSTEM_BUSY
    world.connect().put("T", b"more")
    assert [bodies(answer) for answer in talk.hear() + other.hear()] == [[b"more"]] * 3


def test_what_is_on_the_disk_is_waited_for(world: World, talk: Talk) -> None:
    talk.put("T", b"cold")
    world.log("T").cold = True
    assert talk.pull("T") is None
    assert talk.put("T", queue=1).code == 0
    world.log("T").cold = False
    world.turn()
    (answer,) = talk.hear()
    assert bodies(answer) == [b"cold"]


def test_so_many_wait_for_the_disk_at_once_and_the_others_in_line(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.holds.COLD_PULLS_MAX", 2)
    for index in range(2):
        talk.put("T", b"%d" % index)
    world.log("T").cold = True
    reads = []
    take = FakeReader.take

    def note(reader: FakeReader, *most: int) -> Slice | None:
        reads.append(reader)
        return take(reader, *most)

    monkeypatch.setattr(FakeReader, "take", note)
    for group in "ABCDE":
        assert talk.pull("T", 1, group=group) is None
    assert len(set(reads)) == 2
    world.log("T").cold = False
    world.turn()
    world.turn()
    world.turn()
    assert [bodies(answer) for answer in talk.hear()] == [[b"1"]] * 5


def test_few_readers_keep_copies(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.holds.COLD_READERS_MAX", 2)
    monkeypatch.setattr("tests.unit.core.fakes.FakeReader.keeps_copy", property(lambda reader: not getattr(reader, "let_go", False)))
    let_go = []
    monkeypatch.setattr("tests.unit.core.fakes.FakeReader.seek", lambda reader, offset: let_go.append(offset))
    talk.put("T")
    for group in "ABCD":
        assert len(bodies(talk.pull("T", group=group))) == 1
    assert let_go == [1, 1]


def test_answers_wait_for_room(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.pulls.PULL_SIZE_BYTES_PER_FEED_MAX", 1000)
    monkeypatch.setattr("polymq.server.pump.OUTBOX_SIZE_BYTES_LOW", 1000)
    talk.put("T", b"x" * 400)
    talk.stream.room = 0
    talk.send(b"".join(talk.pull_frame("T") for _ in range(10)))
    assert len(talk.client.pulls) == 8
    talk.stream.room = 1 << 40
    world.pump.writable(talk.connection)
    for _ in range(10):
        world.turn()
    assert len([bodies(answer) for answer in talk.hear()]) == 10
    assert not talk.client.pulls
