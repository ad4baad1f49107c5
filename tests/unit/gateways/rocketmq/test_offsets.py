from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import EVERYTHING
from polymq.limits import NAME_SIZE_BYTES_MAX, OFFSET_MAX
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.wire.tickets import TicketState

from .harness import Talk, World

if TYPE_CHECKING:
    from polymq.protocols.rocketmq.events import Request

QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def talk(world: World) -> Talk:
    talk = world.connect()
    for _ in range(5):
        talk.put("T")
    return talk


def commit(talk: Talk, offset: int, *, group: str = "G", topic: str = "T", queue: int = 0) -> Request:
    return talk.ask(UPDATE, {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset})


def query(talk: Talk, *, group: str = "G", topic: str = "T", queue: int = 0, **more: object) -> Request:
    return talk.ask(QUERY, {"consumerGroup": group, "topic": topic, "queueId": queue} | more)


@pytest.mark.parametrize(("offset", "kept"), [(3, 3), (0, 0), (5, 5), (9, 9), ((1 << 63) - 1, OFFSET_MAX)])
def test_what_is_committed_is_found_again(talk: Talk, offset: int, kept: int) -> None:
    assert commit(talk, offset).code == 0
    assert query(talk).ext["offset"] == str(kept)


def test_the_last_commit_counts_even_if_it_is_less(talk: Talk) -> None:
    commit(talk, 4)
    commit(talk, 1)
    assert query(talk).ext["offset"] == "1"


def test_who_has_committed_what_is_not_there_yet_is_told_where_the_end_is(talk: Talk) -> None:
    commit(talk, 9)
    answer = talk.pull("T", 9)
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "5")
    for _ in range(5):
        talk.put("T")
    assert query(talk).ext["offset"] == "9"
    commit(talk, 3)
    assert query(talk).ext["offset"] == "3"


def test_a_commit_below_the_first_message_is_of_the_first(world: World, talk: Talk) -> None:
    world.log("T").start = 2
    commit(talk, 1)
    assert query(talk).ext["offset"] == "2"


def test_a_new_group_starts_at_0_while_the_queue_is_young(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert query(talk).ext["offset"] == "0"
    assert query(talk, setZeroIfNotFound="false").code == ResponseCode.QUERY_NOT_FOUND
    world.log("T").size_bytes = 1000
    monkeypatch.setattr("polymq.gateways.rocketmq.offsets.YOUNG_QUEUE_SIZE_BYTES_MAX", 999)
    assert query(talk).code == ResponseCode.QUERY_NOT_FOUND
    monkeypatch.undo()
    world.log("T").start = 1
    assert query(talk).code == ResponseCode.QUERY_NOT_FOUND


def test_a_queue_that_is_not_there_begins_and_ends_at_0(talk: Talk) -> None:
    for answer in (query(talk, topic="U"), query(talk, queue=9)):
        assert (answer.code, answer.ext["offset"]) == (0, "0")
    assert query(talk, topic="U", setZeroIfNotFound="false").code == ResponseCode.QUERY_NOT_FOUND
    for answer in (commit(talk, 1, topic="U"), commit(talk, 1, queue=9)):
        assert answer.code == 0
    assert talk.world.house.topics.queues(talk.client.session, "U") is None


def test_an_unknown_offset_can_be_committed(world: World, talk: Talk) -> None:
    assert commit(talk, -1).code == 0
    assert not world.broker.catalogue.topics["", "T"].groups
    world.log("T").start = 1
    commit(talk, 3)
    assert commit(talk, -1).code == 0
    assert query(talk).code == ResponseCode.QUERY_NOT_FOUND


def test_a_group_without_a_name_is_none(world: World, talk: Talk) -> None:
    assert commit(talk, 3, group="").code == 0
    assert commit(talk, 3, group="g" * (NAME_SIZE_BYTES_MAX + 1)).code == 0
    assert not world.broker.catalogue.topics["", "T"].groups
    assert query(talk, group="").ext["offset"] == "0"
    assert talk.ask(UPDATE, {"topic": "", "queueId": 0, "commitOffset": 1}).code == 0


def test_a_topic_has_so_many_groups_and_they_go_on(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.offsets.GROUP_OFFSETS_PER_TOPIC_MAX", 3 * 4)
    for group in ("A", "B", "C"):
        assert commit(talk, 1, group=group).code == 0
    refused = commit(talk, 1, group="D")
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "topic T has as many groups as it can keep: 3")
    assert commit(talk, 2, group="C").code == 0
    world.core.session.delete_group("T", "A")
    assert commit(talk, 1, group="D").code == 0


def test_a_group_of_another_kind_is_refused_in_words(world: World, talk: Talk) -> None:
    world.core.session.create_group("T", "G")
    for answer in (commit(talk, 3), query(talk)):
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "G is not a cursor group")


def test_a_commit_is_answered_when_it_is_journaled(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = world.core.session.journaled()
    ticket.state = TicketState.PENDING  # type: ignore[misc]
    monkeypatch.setattr(world.core.store.journal, "ticket", lambda **_sync: ticket)
    talk.send(talk.frame(UPDATE, {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 1}))
    assert talk.hear() == []
    ticket.state = TicketState.DONE  # type: ignore[misc]
    world.turn()
    (answer,) = talk.hear()
    assert answer.code == 0


def test_a_commit_that_wants_no_answer_gets_none(world: World, talk: Talk) -> None:
    talk.send(talk.frame(UPDATE, {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 2}, oneway=True))
    assert talk.hear() == []
    assert query(talk).ext["offset"] == "2"


def test_where_a_queue_begins_and_ends(world: World, talk: Talk) -> None:
    world.log("T").start = 2
    ext: dict[str, object] = {"topic": "T", "queueId": 0}
    assert talk.ask(RequestCode.GET_MAX_OFFSET, ext).ext["offset"] == "5"
    assert talk.ask(RequestCode.GET_MIN_OFFSET, ext).ext["offset"] == "2"
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
        for other in ({"topic": "U"}, {"topic": "a b"}, {"queueId": 9}):
            assert talk.ask(code, ext | other).ext["offset"] == "0"
        assert talk.ask(code, ext | {"queueId": "x"}).code == ResponseCode.SYSTEM_ERROR


def test_offsets_by_time(world: World, talk: Talk) -> None:
    first_ms = world.clock.now_ns // 1_000_000
    world.wait(10)
    talk.put("T")
    ext: dict[str, object] = {"topic": "T", "queueId": 0}
    assert talk.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, ext).ext["timestamp"] == str(world.log("T").last_time_ns // 1_000_000 - 10_000)
    assert talk.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, ext | {"queueId": 1}).ext["timestamp"] == "-1"
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert talk.ask(search, ext | {"timestamp": 0}).ext["offset"] == "0"
    later = world.log("T").last_time_ns // 1_000_000
    assert later >= first_ms
    assert talk.ask(search, ext | {"timestamp": later - 5000}).ext["offset"] == "5"
    assert talk.ask(search, ext | {"timestamp": later - 5000, "boundaryType": "UPPER"}).ext["offset"] == "4"
    assert talk.ask(search, ext | {"timestamp": later + 99}).ext["offset"] == "6"
    assert talk.ask(search, ext | {"timestamp": -5}).ext["offset"] == "0"
    assert talk.ask(search, ext | {"timestamp": 0, "boundaryType": "UPPER"}).ext["offset"] == "0"
    assert talk.ask(search, ext | {"timestamp": 0, "topic": "U"}).ext["offset"] == "0"
    assert talk.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, ext | {"topic": "U"}).ext["timestamp"] == "-1"


def test_times_on_the_disk_are_waited_for(world: World, talk: Talk) -> None:
    log = world.log("T")
    log.cold = True
    talk.send(talk.frame(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "T", "queueId": 0, "timestamp": 0}))
    talk.send(talk.frame(RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "T", "queueId": 0}))
    assert talk.hear() == []
    log.cold = False
    world.turn()
    assert [set(answer.ext) for answer in talk.hear()] == [{"offset"}, {"timestamp"}]
    log.failed = "damaged"
    answer = talk.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "T", "queueId": 0, "timestamp": 0})
    assert (answer.code, answer.remark) == (1, "damaged")


def test_whoever_may_not_consume_is_told(world: World, talk: Talk) -> None:
    only = frozenset({Action.PUBLISH})
    world.house.principal = Principal("x", permissions=(Permission(only, EVERYTHING, (EVERYTHING,)),))
    other = world.connect()
    for answer in (commit(other, 1), query(other), other.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})):
        assert answer.code == ResponseCode.NO_PERMISSION
