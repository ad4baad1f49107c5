from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq.gateways.effects import Send, WantWritable
from polymq.protocols.rocketmq import stored
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.rocketmq_limits import PULL_LOOKS_NS_PER_TURN_MAX
from tests.unit.core.fakes import FakeReader

from .harness import SECOND_NS, Members, Talk, Told, World, bodies

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect
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
    monkeypatch.setattr("polymq.gateways.rocketmq.holds.PULLS_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr("polymq.gateways.rocketmq.holds.PULLS_MAX", 3)
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


def test_an_append_wakes_so_many_in_a_turn_and_each_connection_in_its_turn(
    world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.holds.PULLS_WOKEN_PER_TURN_MAX", 3)
    talk.put("T")
    other = world.connect()
    talk.send(b"".join(talk.pull_frame("T", 1, group=f"G{index}") for index in range(10)))
    assert other.pull("T", 1) is None
    third = world.connect()
    ext: dict[str, object] = {"a": "P", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1000, "h": 0, "i": "", "j": 0, "k": False}
    third.stream.incoming.append(third.frame(RequestCode.SEND_MESSAGE_V2, ext, b"more"))
    world.pump.readable(third.connection)
    for _ in range(20):
        if other.client.pulls:
            world.pump.end_turn()
    assert len(other.hear()) == 1
    assert 0 < len(talk.client.pulls) < 10
    world.turn()
    assert not talk.client.pulls


def test_heartbeats_wake_so_many_in_a_turn(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.holds.PULLS_WOKEN_PER_TURN_MAX", 3)
    members = Members()
    world.house.members = members
    members.told["G", "T"] = Told(version=1)
    talk.put("T")
    talk.send(b"".join(talk.pull_frame("T", 0, subVersion=2) for _ in range(10)))
    assert len(talk.client.pulls) == 10
    members.told["G", "T"] = Told(version=2)
    world.house.holds.heard("G")
    for _ in range(20):
        if len(talk.client.pulls) == 10:
            world.pump.end_turn()
    assert 0 < len(talk.client.pulls) < 10
    world.turn()
    assert not talk.client.pulls


def test_what_is_there_is_given_however_many_wait(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.holds.PULLS_PER_CONNECTION_MAX", 2)
    talk.put("T")
    assert [talk.pull("T", 1), talk.pull("T", 1)] == [None, None]
    assert len(bodies(talk.pull("T"))) == 1
    busy = talk.pull("T", 1)
    assert busy is not None
    assert busy.code == ResponseCode.SYSTEM_BUSY
    assert len(talk.client.pulls) == world.house.holds.count == 2


def test_who_has_most_pulls_makes_room_for_others(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.holds.PULLS_MAX", 6)
    talk.put("T")
    other = world.connect()
    assert [talk.pull("T", 1) for _ in range(6)] == [None] * 6
    busy = talk.pull("T", 1)
    assert busy is not None
    assert busy.code == ResponseCode.SYSTEM_BUSY
    assert [other.pull("T", 1) for _ in range(3)] == [None] * 3
    assert [answer.code for answer in talk.hear()] == [ResponseCode.SYSTEM_BUSY] * 3
    busy = other.pull("T", 1)
    assert busy is not None
    assert busy.code == ResponseCode.SYSTEM_BUSY
    assert (len(talk.client.pulls), len(other.client.pulls), world.house.holds.count) == (3, 3, 6)


def test_a_turn_looks_messages_through_for_so_long(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(3):
        talk.put("T", b"%d" % index)
    looks: list[int] = []
    encode = stored.encode_stored

    def slowly(*most: Any, **more: Any) -> Any:
        looks.append(1)
        world.clock.now_ns += PULL_LOOKS_NS_PER_TURN_MAX // 2
        return encode(*most, **more)

    monkeypatch.setattr("polymq.gateways.rocketmq.pulls.encode_stored", slowly)
    pieces = [talk.pull_frame("T", 1, group=f"G{index}", flags=4, subscription="A") for index in range(10)]
    talk.stream.incoming.append(b"".join(pieces))
    world.pump.readable(talk.connection)
    counts = [len(looks)]
    for _ in range(40):
        world.pump.end_turn()
        counts.append(len(looks) - sum(counts))
    assert sum(counts) == 10
    assert max(counts) <= 4  # a turn hands out twice
    assert [answer.code for answer in talk.hear()] == [20] * 10


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


def test_readers_keep_copies_of_so_many_bytes(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.holds.COLD_COPIES_SIZE_BYTES_MAX", 2000)
    monkeypatch.setattr("tests.unit.core.fakes.FakeReader.copy_size_bytes", 1000)
    monkeypatch.setattr("tests.unit.core.fakes.FakeReader.keeps_copy", property(lambda reader: not getattr(reader, "let_go", False)))
    let_go = []
    monkeypatch.setattr("tests.unit.core.fakes.FakeReader.seek", lambda reader, offset: let_go.append(offset))
    talk.put("T")
    for group in "ABCD":
        assert len(bodies(talk.pull("T", group=group))) == 1
    assert let_go == [-1, -1]


def test_answers_wait_for_room(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.pulls.ANSWERS_SIZE_BYTES_PER_CALL_MAX", 1000)
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


def test_who_does_not_take_its_answers_gets_no_more(talk: Talk) -> None:
    talk.put("T", b"x")
    client = talk.client
    client.full([])
    effects: list[Effect] = []
    client.feed(memoryview(talk.pull_frame("T")), effects)
    assert [type(effect) for effect in effects] == [WantWritable]
    effects.clear()
    client.writable(effects)
    assert [type(effect) for effect in effects] == [Send]
    assert not client.pulls


def test_many_whose_time_is_over_are_answered_over_some_turns(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.client.PULLS_WOKEN_PER_TURN_MAX", 10)
    world.connect().put("T")
    for _ in range(35):
        assert talk.pull("T", 1, suspendTimeoutMillis=1000) is None
    world.clock.now_ns += 2 * SECOND_NS
    answered = []
    for _ in range(6):
        world.pump.end_turn()
        answered.append(len(talk.hear()))
    assert (max(answered), sum(answered)) == (10, 35)
    assert not talk.client.pulls


def test_the_times_of_answered_pulls_are_forgotten(world: World, talk: Talk) -> None:
    other = world.connect()
    other.put("T")
    for offset in range(1, 300):
        assert talk.pull("T", offset) is None
        other.put("T")
        assert len(talk.hear()) == 1
    assert len(talk.client._due) < 100
    assert talk.pull("T", 300, suspendTimeoutMillis=1000) is None
    world.wait(1.1)
    assert len(talk.hear()) == 1
