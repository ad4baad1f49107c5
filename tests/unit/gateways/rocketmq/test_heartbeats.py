from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.group import GroupKind
from polymq.core.patterns import EVERYTHING, compile_pattern
from polymq.gateways.contract import Peer
from polymq.gateways.effects import Send
from polymq.gateways.rocketmq import heartbeats as heartbeats_module
from polymq.gateways.rocketmq.client import RocketmqClient
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import encode_request
from polymq.protocols.rocketmq.events import Request
from polymq.rocketmq_limits import CLIENT_ID_SIZE_MAX, EXPRESSION_SIZE_MAX, JSON_BODY_SIZE_BYTES_MAX, TAGS_PER_SUBSCRIPTION_MAX

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect

from .group_world import SECOND_NS, Caller, GroupWorld, heartbeat, subscription

BEAT = RequestCode.HEART_BEAT
LIST = RequestCode.GET_CONSUMER_LIST_BY_GROUP
NOTICE = (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "G"})


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


@pytest.fixture
def caller(world: GroupWorld) -> Caller:
    return world.caller()


def members(caller: Caller, group: str = "G") -> list[str]:
    answer = caller.ask(LIST, consumerGroup=group)
    assert answer.code == 0
    found: list[str] = orjson.loads(answer.body)["consumerIdList"]
    return found


def topics(world: GroupWorld) -> dict[str, int]:
    return {name: len(topic.partitions) for (_namespace, name), topic in world.broker.catalogue.topics.items()}


def test_a_heartbeat_makes_a_member_and_the_groups_retry_topic(world: GroupWorld, caller: Caller) -> None:
    answer = caller.ask(BEAT, heartbeat("192.0.2.2@31073#1", "G", producers=("CLIENT_INNER_PRODUCER",)))
    assert (answer.code, answer.remark, answer.ext, answer.body) == (0, None, {}, b"")
    assert caller.said == [NOTICE]
    assert topics(world) == {"%RETRY%G": 1}
    assert members(caller) == ["192.0.2.2@31073#1"]
    assert list(world.house.members.producers) == ["CLIENT_INNER_PRODUCER"]


def test_a_newcomer_is_told_before_its_heartbeat_is_answered_and_the_others_in_the_same_turn(world: GroupWorld, caller: Caller) -> None:
    caller.ask(BEAT, heartbeat("a", "G"))
    world.turn(SECOND_NS)
    caller.said.clear()
    other = world.caller()
    other.ask(BEAT, heartbeat("b", "G"))
    world.turn(SECOND_NS)
    assert (caller.said, other.said) == ([NOTICE], [NOTICE])
    assert members(caller) == ["a", "b"]


def test_over_a_connection_the_notice_comes_before_the_answer_and_the_end_of_an_old_connection_evicts_nobody(world: GroupWorld) -> None:
    """The real broker's order on the wire, with a heartbeat as a Java client has sent it."""
    beat = encode_request(BEAT, 38, body=orjson.dumps(heartbeat("192.0.2.2@31073#1075436622474", "CG1")))
    old, new = (RocketmqClient(world.house, Peer("192.0.2.2", port)) for port in (1000, 1001))
    for client in (old, new):
        effects: list[Effect] = []
        assert client.feed(memoryview(beat), effects) == len(beat)
        events: list[object] = []
        data = b"".join(effect.data for effect in effects if isinstance(effect, Send))
        Decoder(world.house.settings, server=False).feed(memoryview(data), events)  # type: ignore[arg-type]
        answers = [event for event in events if isinstance(event, Request)]
        if client is old:
            assert [(each.code, each.opaque, each.flag) for each in answers] == [(40, 1, 2), (0, 38, 1)]
            assert answers[0].ext == {"consumerGroup": "CG1"}
            assert answers[1].version == 409
    old.ended()
    assert members(world.caller(), "CG1") == ["192.0.2.2@31073#1075436622474"]
    rung: list[bool] = []
    new.ring = lambda: rung.append(True)
    world.turn(SECOND_NS)
    said: list[Effect] = []
    new.woken(said)
    assert (len(rung), len(said)) == (1, 1)
    new.ended()
    assert world.house.members.group("CG1") is None


def test_broadcasting_consumers_have_no_retry_topic(world: GroupWorld, caller: Caller) -> None:
    assert caller.ask(BEAT, heartbeat("a", "G", messageModel="BROADCASTING")).code == 0
    assert topics(world) == {}
    assert members(caller) == ["a"]


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"clientID":{}}',
        b'{"consumerDataSet":[{"groupName":"G"}],"producerDataSet":[]}',
        b'{"clientID":"a"}\n',
        b'{"clientID":"a","producerDataSet":null,"consumerDataSet":null}',
        b'{"clientID":"a","producerDataSet":[{"groupName":""}],"consumerDataSet":[{"groupName":""}],"heartbeatFingerprint":0,"withoutSub":false}',
    ],
)
def test_what_clients_leave_out_or_name_with_nothing_does_not_matter(world: GroupWorld, caller: Caller, body: bytes) -> None:
    assert caller.ask(BEAT, body).code == 0
    assert len(world.house.members) == 0


def test_a_subscription_without_a_type_is_one_by_tags(world: GroupWorld, caller: Caller) -> None:
    said = subscription("T", "TagA || TagB")
    del said["expressionType"], said["codeSet"], said["tagsSet"]
    caller.ask(BEAT, heartbeat("a", "G", subscriptionDataSet=[said]))
    found = world.house.members.subscription("G", "T")
    assert found is not None
    assert (found.codes, found.expression_type) == (frozenset({2598919, 2598920}), "TAG")


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ({"codeSet": [2598919], "tagsSet": ["TagA"], "subString": "TagA"}, frozenset({2598919})),
        ({"subString": ""}, None),
        ({"subString": "*"}, None),
        ({"subString": "TagA", "codeSet": [2598919], "classFilterMode": True}, None),
        ({"subString": "a > 1", "expressionType": "SQL92"}, None),
    ],
)
def test_which_tags_are_wanted_is_what_the_client_says(
    world: GroupWorld, caller: Caller, more: dict[str, object], codes: frozenset[int] | None
) -> None:
    caller.ask(BEAT, heartbeat("a", "G", subscriptionDataSet=[subscription("T", **more)]))  # type: ignore[arg-type]
    found = world.house.members.subscription("G", "T")
    assert found is not None
    assert found.codes == codes


@pytest.mark.parametrize("group", ["", " ", "a b", "ä", "x" * 121])
def test_groups_that_cannot_be_are_left_out_and_the_others_are_registered(world: GroupWorld, caller: Caller, group: str) -> None:
    assert caller.ask(BEAT, heartbeat("a", group, "G", producers=(group, "P"))).code == 0
    assert (list(world.house.members.groups), list(world.house.members.producers)) == (["G"], ["P"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"nonsense",
        b"{" * 100_000,
        b'{"clientID":"%b"}' % (b"x" * (CLIENT_ID_SIZE_MAX + 1)),
        b'{"clientID":"a"}' + b" " * JSON_BODY_SIZE_BYTES_MAX,
    ],
)
def test_a_heartbeat_that_is_none_is_an_error_in_words(world: GroupWorld, caller: Caller, body: bytes) -> None:
    answer = caller.ask(BEAT, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert len(answer.remark) < 500
    assert len(world.house.members) == 0


def test_a_heartbeat_names_so_many_groups_at_most(world: GroupWorld, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats_module, "GROUPS_PER_HEARTBEAT_MAX", 2)
    assert caller.ask(BEAT, heartbeat("a", "G", producers=("P",))).code == 0
    assert caller.ask(BEAT, heartbeat("b", "G", "H", producers=("P",))).code == ResponseCode.SYSTEM_ERROR
    assert members(caller) == ["a"]


def test_a_heartbeat_names_so_many_subscriptions_at_most(world: GroupWorld, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats_module, "SUBSCRIPTIONS_PER_HEARTBEAT_MAX", 4)
    assert caller.ask(BEAT, heartbeat("a", "G", "H")).code == 0
    assert caller.ask(BEAT, heartbeat("b", "G", "H", "I")).code == ResponseCode.SYSTEM_ERROR
    assert members(caller) == ["a"]


def test_a_subscription_names_so_many_tags_at_most(world: GroupWorld, caller: Caller) -> None:
    for count, code in ((TAGS_PER_SUBSCRIPTION_MAX + 1, ResponseCode.SYSTEM_ERROR), (TAGS_PER_SUBSCRIPTION_MAX, ResponseCode.SUCCESS)):
        expression = " || ".join(f"tag{number}" for number in range(count))
        assert caller.ask(BEAT, heartbeat("a", "G", subscriptionDataSet=[subscription("T", expression)])).code == code
        assert (list(world.house.members.groups), len(topics(world))) == (["G"] * (not code), not code)


@pytest.mark.parametrize("more", [{"subString": "x" * (EXPRESSION_SIZE_MAX + 1)}, {"tagsSet": ["y" * EXPRESSION_SIZE_MAX, "z"]}])
@pytest.mark.parametrize("kind", ["TAG", "SQL92"])
def test_a_subscription_is_so_long_at_most(world: GroupWorld, caller: Caller, more: dict[str, object], kind: str) -> None:
    said = {"subString": "a", "tagsSet": [], "codeSet": [1], "expressionType": kind, **more}
    answer = caller.ask(BEAT, heartbeat("a", "G", subscriptionDataSet=[subscription("T", **said)]))  # type: ignore[arg-type]
    assert (answer.code, len(world.house.members)) == (ResponseCode.SYSTEM_ERROR, 0)


@pytest.mark.parametrize("more", [{"codeSet": [0] * (TAGS_PER_SUBSCRIPTION_MAX + 1)}, {"tagsSet": [""] * (TAGS_PER_SUBSCRIPTION_MAX + 1)}])
def test_what_a_subscription_names_is_counted_before_it_is_worked_out(world: GroupWorld, caller: Caller, more: dict[str, object]) -> None:
    said = {**subscription("T", "a"), **more}
    assert caller.ask(BEAT, heartbeat("a", "G", subscriptionDataSet=[said])).code == ResponseCode.SYSTEM_ERROR
    assert len(world.house.members) == 0


def test_a_heartbeat_has_so_many_tags_hashed_at_most(world: GroupWorld, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats_module, "HASHED_SIZE_PER_HEARTBEAT_MAX", 8)
    many = [subscription("T", "TagA"), subscription("U", "TagBC")]
    assert caller.ask(BEAT, heartbeat("a", "G", subscriptionDataSet=many)).code == ResponseCode.SYSTEM_ERROR
    assert len(world.house.members) == 0
    many[1]["codeSet"] = [7]
    assert caller.ask(BEAT, heartbeat("a", "G", subscriptionDataSet=many)).code == 0


def test_what_is_only_shown_is_kept_in_part(world: GroupWorld, caller: Caller) -> None:
    caller.ask(BEAT, heartbeat("a", "G", consumeType="x" * 1000, consumeFromWhere="y" * 1000))
    group = world.house.members.group("G")
    assert group is not None
    assert (len(group.consume_type), len(group.consume_from)) == (64, 64)


def test_pulls_that_wait_for_a_newer_subscription_look_again(world: GroupWorld, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    caller.ask(BEAT, heartbeat("a", "G", version=1))
    heard: list[str] = []
    monkeypatch.setattr(world.house.members, "_on_news", heard.append)
    caller.ask(BEAT, heartbeat("a", "G", version=1))
    assert heard == []
    caller.ask(BEAT, heartbeat("a", "G", version=2))
    assert heard == ["G"]


def test_a_name_that_an_nsq_channel_has_is_refused_in_words_and_the_other_groups_are_registered(world: GroupWorld, caller: Caller) -> None:
    caller.session.create_topic("T")
    caller.session.create_group("T", "G", kind=GroupKind.WORK)
    answer = caller.ask(BEAT, heartbeat("a", "G", "H"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "group G of topic T is a work group (an NSQ channel): consumers of RocketMQ need another name"
    assert list(world.house.members.groups) == ["H"]


# -- rights ----------------------------------------------------------------------------------------------------------


def test_who_may_not_join_a_group_is_not_registered_at_all() -> None:
    retry = Permission(frozenset({Action.SUBSCRIBE}), EVERYTHING, (compile_pattern("^G$"),))
    world = GroupWorld(principal=Principal("reader", permissions=(retry,)))
    caller = world.caller()
    assert caller.ask(BEAT, heartbeat("a", "G")).code == 0
    assert topics(world) == {"%RETRY%G": 1}
    answer = caller.ask(BEAT, heartbeat("a", "G", "H", producers=("P",)))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert (list(world.house.members.groups), list(world.house.members.producers)) == (["G"], [])
    assert caller.ask(LIST, consumerGroup="H").code == ResponseCode.NO_PERMISSION


# -- leaving, asking -------------------------------------------------------------------------------------------------


def test_leaving_never_fails(world: GroupWorld, caller: Caller) -> None:
    caller.ask(BEAT, heartbeat("a", "G", producers=("P",)))
    for ext in ({}, {"clientID": "b", "consumerGroup": "G"}, {"clientID": "a", "consumerGroup": "", "producerGroup": ""}):
        assert caller.ask(RequestCode.UNREGISTER_CLIENT, said=ext).code == 0
    assert len(world.house.members) == 2
    assert caller.ask(RequestCode.UNREGISTER_CLIENT, clientID="a", consumerGroup="G", producerGroup="P").code == 0
    assert len(world.house.members) == 0


@pytest.mark.parametrize("group", ["G", "no such name", ""])
def test_a_group_without_members_is_an_error_in_the_real_brokers_words(caller: Caller, group: str) -> None:
    answer = caller.ask(LIST, consumerGroup=group)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")


def test_the_list_of_members_is_written_once_and_anew_when_there_are_others(world: GroupWorld, caller: Caller) -> None:
    bodies = []
    for client_id in ("b", "a"):
        caller.ask(BEAT, heartbeat(client_id, "G"))
        bodies += [caller.ask(LIST, consumerGroup="G").body for _ in range(2)]
    caller.ask(RequestCode.UNREGISTER_CLIENT, clientID="b", consumerGroup="G")
    bodies += [caller.ask(LIST, consumerGroup="G").body for _ in range(2)]
    assert [orjson.loads(body)["consumerIdList"] for body in bodies[::2]] == [["b"], ["a", "b"], ["a"]]
    for first, second in zip(bodies[::2], bodies[1::2], strict=True):
        assert first is second


def test_a_list_of_whom_is_an_error(caller: Caller) -> None:
    assert caller.ask(LIST).code == ResponseCode.SYSTEM_ERROR


# -- deleting --------------------------------------------------------------------------------------------------------

DELETE = RequestCode.DELETE_SUBSCRIPTIONGROUP


def groups(world: GroupWorld) -> list[tuple[str, str]]:
    return [(name, group) for (_namespace, name), topic in world.broker.catalogue.topics.items() for group in topic.groups]


@pytest.mark.parametrize("field", ["removeOffset", "cleanOffset"])
def test_a_group_is_deleted_with_its_offsets_in_every_topic_and_no_channel_of_its_name(
    world: GroupWorld, caller: Caller, field: str
) -> None:
    for topic, group, kind in (
        ("T", "G", GroupKind.CURSOR),
        ("U", "G", GroupKind.CURSOR),
        ("U", "H", GroupKind.CURSOR),
        ("V", "G", GroupKind.WORK),
    ):
        caller.session.ensure_topic(topic)
        caller.session.create_group(topic, group, kind=kind)
    for wanted in ("false", ""):
        assert caller.ask(DELETE, groupName="G", said={field: wanted}).code == 0
        assert len(groups(world)) == 4
    answer = caller.ask(DELETE, groupName="G", said={field: "true"})
    assert (answer.code, groups(world)) == (0, [("U", "H"), ("V", "G")])
    assert answer.ticket is not None
    assert caller.ask(DELETE, groupName="G", said={field: "true"}).code == 0
    assert caller.ask(DELETE, groupName="a b", said={field: "true"}).code == 0
    for wrong in ({}, {"group": "G"}):
        assert caller.ask(DELETE, said={**wrong, field: "true"}).code == ResponseCode.SYSTEM_ERROR


def test_a_group_of_many_topics_is_deleted_in_steps(world: GroupWorld, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats_module, "GROUPS_DELETED_PER_REQUEST_MAX", 2)
    for number in range(3):
        caller.session.ensure_topic(f"T{number}")
        caller.session.create_group(f"T{number}", "G", kind=GroupKind.CURSOR)
    assert caller.ask(DELETE, groupName="G", removeOffset="true").code == ResponseCode.SYSTEM_BUSY
    assert len(groups(world)) == 1
    assert caller.ask(DELETE, groupName="G", removeOffset="true").code == 0
    assert groups(world) == []


def test_who_may_not_manage_deletes_no_group() -> None:
    some = Permission(frozenset({Action.SUBSCRIBE, Action.PUBLISH}), EVERYTHING, (EVERYTHING,))
    world = GroupWorld(principal=Principal("reader", permissions=(some,)))
    caller = world.caller()
    caller.session.ensure_topic("T")
    world.house.broker.session(Principal("boss")).create_group("T", "G", kind=GroupKind.CURSOR)
    assert caller.ask(DELETE, groupName="G", removeOffset="true").code == ResponseCode.NO_PERMISSION
    assert groups(world) == [("T", "G")]


# -- locks -----------------------------------------------------------------------------------------------------------


def lock_body(client_id: str, *queue_ids: int, **more: object) -> dict[str, object]:
    queues = [{"brokerName": "broker-a", "queueId": queue_id, "topic": "T"} for queue_id in queue_ids]
    return {"clientId": client_id, "consumerGroup": "G", "mqSet": queues, **more}


def test_queues_that_are_not_there_take_no_more_than_half_of_the_room(
    world: GroupWorld, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.locks.LOCKED_QUEUES_MAX", 8)

    def locked(*queue_ids: int) -> int:
        return len(orjson.loads(caller.ask(RequestCode.LOCK_BATCH_MQ, lock_body("a", *queue_ids)).body)["lockOKMQSet"])

    assert [locked(100, 101, 102), locked(103), locked(104)] == [3, 1, 0]
    caller.session.ensure_topic("T")  # with four queues
    assert locked(0, 1, 2, 3, 4) == 4
    assert world.house.locks.count == 8


def test_queues_are_locked_and_unlocked(caller: Caller) -> None:
    answer = caller.ask(RequestCode.LOCK_BATCH_MQ, lock_body("a", 0, 1, onlyThisBroker=False))
    locked = [{"brokerName": "broker-a", "queueId": queue_id, "topic": "T"} for queue_id in (0, 1)]
    assert orjson.loads(answer.body) == {"lockOKMQSet": locked}
    assert orjson.loads(caller.ask(RequestCode.LOCK_BATCH_MQ, lock_body("b", 1, 2)).body)["lockOKMQSet"] == [{**locked[0], "queueId": 2}]
    assert caller.ask(RequestCode.UNLOCK_BATCH_MQ, lock_body("a", 1)).code == 0
    assert orjson.loads(caller.ask(RequestCode.LOCK_BATCH_MQ, lock_body("b", 0, 1)).body)["lockOKMQSet"] == locked[1:]


@pytest.mark.parametrize("body", [b"{}", b'{"clientId":"a","consumerGroup":"","mqSet":[]}'])
def test_no_queues_are_locked_for_whomever(caller: Caller, body: bytes) -> None:
    answer = caller.ask(RequestCode.LOCK_BATCH_MQ, body)
    assert (answer.code, answer.body) == (0, b'{"lockOKMQSet":[]}')
    assert caller.ask(RequestCode.UNLOCK_BATCH_MQ, body).code == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"clientId":"a","consumerGroup":"a b","mqSet":[{"topic":"T","queueId":0}]}',
        b'{"clientId":"a","consumerGroup":"G","mqSet":[{"topic":"no topic","queueId":0}]}',
        b'{"clientId":"%b","consumerGroup":"G","mqSet":[{"topic":"T","queueId":0}]}' % (b"x" * (CLIENT_ID_SIZE_MAX + 1)),
    ],
)
def test_locks_of_whom_are_an_error(caller: Caller, body: bytes) -> None:
    assert caller.ask(RequestCode.LOCK_BATCH_MQ, body).code == ResponseCode.SYSTEM_ERROR
    assert caller.ask(RequestCode.UNLOCK_BATCH_MQ, body).code == ResponseCode.SYSTEM_ERROR


def test_a_request_locks_so_many_queues_at_most(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.locks.LOCKED_QUEUES_PER_REQUEST_MAX", 2)
    assert caller.ask(RequestCode.LOCK_BATCH_MQ, lock_body("a", 0, 1)).code == 0
    assert caller.ask(RequestCode.LOCK_BATCH_MQ, lock_body("a", 0, 1, 2)).code == ResponseCode.SYSTEM_ERROR
