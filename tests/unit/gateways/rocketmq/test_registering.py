from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, Any

import orjson

from polymq.gateways.effects import Close, Send, SetTimer, TimerName
from polymq.gateways.rocketmq import registering
from polymq.gateways.rocketmq.registering import NodeIdentity, OwnTopics, RegisteringGateway
from polymq.protocols.rocketmq.codes import RequestCode
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import encode_response
from polymq.protocols.rocketmq.events import Request
from polymq.protocols.rocketmq.registration import TopicConfig, parse_registration
from polymq.protocols.rocketmq.settings import RocketmqSettings
from tests.unit.gateways.rocketmq.group_world import SECOND_NS, GroupWorld

if TYPE_CHECKING:
    import pytest

    from polymq.protocols.rocketmq.events import Event

INTERVAL_NS = 30 * SECOND_NS
IDENTITY = NodeIdentity("polymq-a", "C", "10.0.0.1:10911", (TopicConfig("TBW102", 8, 8, 7),))


class Keeper:
    def __init__(self) -> None:
        self.settled = 0
        self.reasons: list[str] = []

    def settle(self) -> None:
        self.settled += 1

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)


class Story:
    """One node, and its connection to one name server, which answers when the test says so."""

    def __init__(self, *topics: str) -> None:
        self.world = GroupWorld()
        self.session = self.world.house.session()
        for topic in topics:
            self.session.create_topic(topic)
        self.own = OwnTopics(self.world.broker, self.world.clock, IDENTITY)
        self.keeper = Keeper()
        self.gateway = RegisteringGateway(self.own, RocketmqSettings(), self.keeper, self.world.clock, interval_ns=INTERVAL_NS)
        self.rung = 0
        self.gateway.ring = self._ring
        self.effects: list[Any] = []
        self.gateway.opened(self.effects)

    def _ring(self) -> None:
        self.rung += 1

    def sent(self) -> list[Request]:
        """What has been sent since, decoded as a name server does."""
        events: list[Event] = []
        data = b"".join(effect.data for effect in self.effects if isinstance(effect, Send))
        self.effects = [effect for effect in self.effects if not isinstance(effect, Send)]
        Decoder(RocketmqSettings()).feed(memoryview(data), events)
        return [event for event in events if isinstance(event, Request)]

    def answer(self, request: Request, code: int = 0, remark: str | None = None) -> None:
        data = encode_response(code, request.opaque, remark=remark)
        assert self.gateway.feed(memoryview(data), self.effects) == len(data)

    def wake(self) -> None:
        if self.rung:
            self.rung = 0
            self.gateway.woken(self.effects)

    def beat(self) -> None:
        self.gateway.timer(TimerName.HEARTBEAT, self.effects)

    def timers(self) -> dict[TimerName, int | None]:
        return {effect.name: effect.due_ns for effect in self.effects if isinstance(effect, SetTimer)}

    def closed(self) -> list[str]:
        return [effect.reason for effect in self.effects if isinstance(effect, Close)]


def topics_of(request: Request) -> dict[str, int]:
    assert request.code == RequestCode.REGISTER_BROKER
    return {topic.name: topic.read_queues for topic in parse_registration(request.body).topics}


def test_everything_is_told_first() -> None:
    story = Story("t", "a.b", "ü")
    [request] = story.sent()
    assert topics_of(request) == {"TBW102": 8, "a%2Eb": 4, "t": 4}
    assert request.ext == {
        "brokerName": "polymq-a",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "C",
        "brokerId": "0",
        "haServerAddr": "10.0.0.1:10911",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(request.body) & 0x7FFFFFFF),
    }
    assert not request.oneway
    story.answer(request)
    assert story.keeper.settled == 1


def test_new_topics_are_told_at_once_and_together_and_one_request_at_a_time() -> None:
    story = Story()
    [first] = story.sent()
    story.session.create_topic("t")
    story.session.create_topic("u", partitions=2)
    story.wake()
    assert story.sent() == []
    story.answer(first)
    [request] = story.sent()
    assert topics_of(request) == {"t": 4, "u": 2}
    assert parse_registration(request.body).version.counter > parse_registration(first.body).version.counter
    story.answer(request)
    assert story.sent() == []


def test_all_is_told_again_from_time_to_time_and_its_version_says_whether_it_is_the_same() -> None:
    story = Story("t")
    [first] = story.sent()
    story.answer(first)
    story.beat()
    [again] = story.sent()
    assert again.body == first.body
    story.answer(again)
    story.session.add_partitions("t", 2)
    story.beat()
    [more] = story.sent()
    assert topics_of(more)["t"] == 6
    assert parse_registration(more.body).version != parse_registration(first.body).version
    story.answer(more)
    story.session.delete_topic("t")
    story.wake()
    assert story.sent() == []
    story.beat()
    assert "t" not in topics_of(story.sent()[0])


def test_no_more_than_a_name_server_takes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(registering, "REGISTRATION_TOPICS_MAX", 2)
    story = Story("c", "a", "b")
    assert topics_of(story.sent()[0]) == {"TBW102": 8, "a": 4, "b": 4}
    story.own.everything()
    assert caplog.messages == ["name servers elsewhere are told of the first 2 topics, by name: there are more"]


def test_many_new_topics_are_told_as_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "_FEW", 1)
    story = Story("old")
    [first] = story.sent()
    story.session.create_topic("t")
    story.session.create_topic("u")
    story.answer(first)
    assert topics_of(story.sent()[0]) == {"TBW102": 8, "old": 4, "t": 4, "u": 4}


def test_a_refusal_is_said_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    story = Story()
    for _ in range(2):
        [request] = story.sent()
        story.answer(request, 1, "no")
        story.beat()
    assert caplog.messages == ["a name server does not register this node as polymq-a: code 1: no"]
    story.answer(story.sent()[0])
    assert caplog.messages[1:] == ["registered as polymq-a at 10.0.0.1:10911"]
    assert story.closed() == []


def test_a_name_server_that_does_not_answer_is_left() -> None:
    story = Story()
    assert story.timers() == {
        TimerName.READ_DEADLINE: story.world.clock.now_ns + 6 * SECOND_NS,
        TimerName.HEARTBEAT: story.world.clock.now_ns + INTERVAL_NS,
    }
    story.gateway.timer(TimerName.READ_DEADLINE, story.effects)
    assert story.closed() == ["no answer within 6 s"]
    story.gateway.ended()
    assert story.keeper.reasons == ["no answer within 6 s"]
    story.session.create_topic("t")
    assert story.rung == 0


def test_an_answer_ends_the_wait() -> None:
    story = Story()
    story.answer(story.sent()[0])
    assert story.timers()[TimerName.READ_DEADLINE] is None
    story.gateway.timer(TimerName.READ_DEADLINE, story.effects)
    assert story.closed() == []


def test_nonsense_is_no_answer() -> None:
    story = Story()
    data = b"\xff" * 64
    assert story.gateway.feed(memoryview(data), story.effects) == len(data)
    assert story.closed() == ["it sends what is no answer of a name server's"]
    story = Story()
    [request] = story.sent()
    request.opaque += 1
    story.answer(request)  # of somebody else's question
    assert story.keeper.settled == 0


def test_a_node_that_stops_says_goodbye() -> None:
    story = Story()
    story.sent()
    story.gateway.stopping(story.effects)
    [request] = story.sent()
    assert request.code == RequestCode.UNREGISTER_BROKER
    assert request.ext == {"brokerName": "polymq-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"}
    assert story.closed() == ["shutting down"]
    story.gateway.ended()
    assert story.keeper.reasons == []


def test_a_name_server_that_is_no_longer_wanted_is_told() -> None:
    story = Story()
    story.sent()
    story.gateway.leave()
    story.wake()
    assert [request.code for request in story.sent()] == [RequestCode.UNREGISTER_BROKER]
    assert story.closed() == ["no longer wanted"]


def test_the_version_is_json_as_brokers_write_it() -> None:
    story = Story("t")
    wrapper = orjson.loads(story.sent()[0].body)["topicConfigSerializeWrapper"]
    assert sorted(wrapper["dataVersion"]) == ["counter", "stateVersion", "timestamp"]
