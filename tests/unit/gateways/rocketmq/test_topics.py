from __future__ import annotations

import orjson
import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import EVERYTHING
from polymq.errors import Refusal
from polymq.gateways.rocketmq.answers import RequestProblem
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode

from .harness import Talk, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def talk(world: World) -> Talk:
    return world.connect()


def change(talk: Talk, topic: str, queues: int, **more: object) -> int:
    ext: dict[str, object] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicSysFlag": 0,
    }
    ext["topicFilterType"] = "SINGLE_TAG"
    return talk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext | more).code


def test_topics_are_made_and_get_more_queues_but_never_fewer(world: World, talk: Talk) -> None:
    assert change(talk, "T", 8) == 0
    assert talk.put("T", queue=7).code == 0
    assert change(talk, "T", 4) == 0
    assert world.house.topics.queues(talk.client.session, "T") == 8
    assert change(talk, "T", 8, readQueueNums=10) == 0
    assert talk.put("T", queue=9).code == 0
    assert world.house.topics.queues(talk.client.session, "T") == 10
    config = orjson.loads(talk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"}).body)
    assert (config["topicName"], config["readQueueNums"], config["writeQueueNums"], config["perm"]) == ("T", 10, 10, 6)


@pytest.mark.parametrize(("topic", "queues"), [("a b", 4), ("", 4), ("TBW102", 4), ("T", 0), ("T", 1025), ("T", -1)])
def test_what_cannot_be_made(world: World, talk: Talk, topic: str, queues: int) -> None:
    assert change(talk, topic, queues) == ResponseCode.SYSTEM_ERROR
    assert not world.broker.catalogue.topics


@pytest.mark.parametrize("wrong", [{"topicFilterType": "x"}, {"perm": "x"}, {"perm": ""}, {"readQueueNums": 1 << 32}])
def test_fields_that_are_wrong(world: World, talk: Talk, wrong: dict[str, object]) -> None:
    assert change(talk, "T", 4, **wrong) == ResponseCode.SYSTEM_ERROR
    assert not world.broker.catalogue.topics


def test_the_brokers_own_names_are_no_topics_to_change(talk: Talk) -> None:
    assert change(talk, "DefaultCluster", 4) == ResponseCode.SYSTEM_ERROR
    assert change(talk, "broker-a", 4) == ResponseCode.SYSTEM_ERROR


def test_topics_go(world: World, talk: Talk) -> None:
    change(talk, "T", 1)
    assert talk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    assert not world.broker.catalogue.topics
    assert talk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    assert talk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"}).code == ResponseCode.SYSTEM_ERROR
    assert talk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_changes_are_for_who_may(world: World) -> None:
    actions = frozenset({Action.PUBLISH, Action.READ, Action.SUBSCRIBE})
    world.house.principal = Principal("x", permissions=(Permission(actions, EVERYTHING, (EVERYTHING,)),))
    talk = world.connect()
    assert change(talk, "T", 4) == ResponseCode.NO_PERMISSION
    assert talk.put("T").code == 0
    assert talk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.NO_PERMISSION
    assert talk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"}).code == 0


def test_others_make_topics_through_here(world: World, talk: Talk) -> None:
    topics, session = world.house.topics, talk.client.session
    assert topics.queues(session, "T") is None
    assert topics.ensure(session, "T") == 4
    assert topics.ensure(session, "T", 8) == 4
    assert topics.ensure(session, "U", 8) == 8
    assert topics.ensure(session, "%RETRY%G") == 1
    with pytest.raises(RequestProblem):
        topics.ensure(session, "a b")
    only = Permission(frozenset({Action.SUBSCRIBE}), EVERYTHING, (EVERYTHING,))
    consumer = world.broker.session(Principal("x", permissions=(only,)))
    with pytest.raises(Refusal):
        topics.ensure(consumer, "V")
    assert topics.ensure(consumer, "V", action=Action.SUBSCRIBE) == 4


def test_names_are_escaped_and_remembered_up_to_a_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.topics.TOPICS_REMEMBERED_MAX", 2)
    monkeypatch.setattr("polymq.gateways.rocketmq.topics.PLACES_REMEMBERED_MAX", 2)
    topics = world.house.topics
    for _ in range(2):
        assert [topics.core_name(name) for name in ("a%2Eb", "2024-orders", "c")] == ["a.b", "2024-orders", "c"]
    for queue in range(5):
        assert topics.place("T", queue, 7, b"\x7f\0\0\1").queue_id == queue
        assert topics.place("T", queue, 7, b"\x7f\0\0\1") is topics.place("T", queue, 7, b"\x7f\0\0\1")


def test_names_are_remembered_up_to_a_limit(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.topics.TOPICS_REMEMBERED_MAX", 3)
    topics = world.house.topics
    for number in range(10):
        assert topics.sent_to(f"T{number}") == (f"T{number}", 4)
        assert len(topics._sent_to) <= 3
        assert len(topics._core_names) <= 3
