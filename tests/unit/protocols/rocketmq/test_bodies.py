"""Bodies are read from whatever the peers write, and written as they read them."""

from __future__ import annotations

import json

import pytest

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq import bodies
from polymq.protocols.rocketmq.bodies import (
    BrokerData,
    ConsumerData,
    Heartbeat,
    LockBody,
    MessageQueue,
    QueueData,
    RouteData,
    Subscription,
)
from polymq.protocols.rocketmq.names import tag_hash
from polymq.rocketmq_limits import JSON_BODY_SIZE_BYTES_MAX

QUEUES = (MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 3))


def test_tag_expressions() -> None:
    assert bodies.subscription_of("T", "*", 7) == Subscription("T", version=7)
    assert bodies.subscription_of("T", "  ") == Subscription("T")
    found = bodies.subscription_of("T", " TagA||TagB || TagA|| ", 5)
    assert (found.tags, found.codes, found.version) == (("TagA", "TagB"), (2598919, 2598920), 5)
    with pytest.raises(RemoteProtocolError) as raised:
        bodies.subscription_of("T", "||")
    assert not raised.value.fatal


def test_a_heartbeat_with_everything() -> None:
    subscription = Subscription("T", "A", "TAG", 9, ("A",), (tag_hash("A"),), class_filter=True)
    consumer = ConsumerData("G", "CONSUME_ACTIVELY", "BROADCASTING", "CONSUME_FROM_TIMESTAMP", (subscription,), unit_mode=True)
    beat = Heartbeat("client", ("P", "Q"), (consumer,))
    assert bodies.parse_heartbeat(bodies.encode_heartbeat(beat)) == beat


@pytest.mark.parametrize("groups", [b"{}", b"7", b"[{}]", b'[{"groupName":null}]'])
@pytest.mark.parametrize("name", [b"producerDataSet", b"consumerDataSet"])
def test_groups_of_a_heartbeat_are_a_list_and_have_names(name: bytes, groups: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        bodies.parse_heartbeat(b'{"clientID":"c","%b":%b}' % (name, groups))


def test_heartbeats_of_all_kinds_of_peers() -> None:
    assert bodies.parse_heartbeat(b"{}") == Heartbeat("")
    assert bodies.parse_heartbeat(b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[]}\n') == Heartbeat("c")
    found = bodies.parse_heartbeat(
        b'{"clientID":"c","withoutSub":true,"producerDataSet":[{"groupName":""},{"groupName":"P"},5],"consumerDataSet":[{"groupName":"G",'
        b'"subscriptionDataSet":[{"topic":"T","subVersion":"5","codeSet":[1,"x",true,9999999999],"tagsSet":["a",1],"classFilterMode":"true"},'
        b'{"subString":"no topic"},{"$ref":"$.x"}],"unitMode":null},{"groupName":""}]}'
    )
    subscription = Subscription("T", "*", "TAG", 5, ("a",), (1,), class_filter=True)
    assert found == Heartbeat("c", ("P",), (ConsumerData("G", subscriptions=(subscription,)),), without_sub=True)
    assert bodies.parse_heartbeat(b'{clientID:"c",consumerDataSet:[{groupName:"G"}]}').consumers == (ConsumerData("G"),)


def test_numbers_that_do_not_fit_have_their_default() -> None:
    body = b'{"subscriptionData":{"topic":"T","subVersion":%d},"clientId":5,"group":true}'
    assert bodies.parse_client_config(body % 10**30) == ("5", "", Subscription("T"))
    assert bodies.parse_client_config(body % 10) == ("5", "", Subscription("T", version=10))
    assert bodies.parse_client_config(b'{"clientId":"c","group":"G"}') == ("c", "G", Subscription(""))
    assert bodies.parse_client_config(b'{"subscriptionData":{"topic":"T","subVersion":"9999999999999999999"}}')[2].version == 0


def test_locks() -> None:
    lock = LockBody("G", "c", QUEUES)
    written = bodies.encode_lock_body(lock)
    assert bodies.parse_lock_body(written) == lock
    assert json.loads(written)["mqSet"][0] == {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
    assert bodies.parse_lock_body(b'{"consumerGroup":"G","mqSet":[{"topic":"T","queueId":"1"},{"topic":"T"},{"queueId":1}]}') == LockBody(
        "G", "", (MessageQueue("T", "", 1),)
    )
    assert bodies.parse_lock_reply(bodies.encode_lock_reply(QUEUES)) == QUEUES
    assert bodies.encode_lock_reply(()) == b'{"lockOKMQSet":[]}'


def test_lists() -> None:
    assert bodies.encode_consumer_list(("a", "b")) == b'{"consumerIdList":["a","b"]}'
    assert bodies.parse_consumer_list(b'{"consumerIdList":["a",5,"b"]}') == ("a", "b")
    assert bodies.parse_consumer_list(b'{"consumerIdList":"a"}') == ()
    assert bodies.encode_topic_list(("T",)) == b'{"topicList":["T"]}'
    assert bodies.encode_group_list(("G",)) == b'{"groupList":["G"]}'


def test_routes() -> None:
    route = RouteData(
        (BrokerData("broker-a", "C", {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}),), (QueueData("broker-a", 8, 4, 7, 1),), "broker-a:4"
    )
    written = bodies.encode_route(route)
    assert bodies.parse_route(written) == route
    assert b" " not in written
    assert bodies.parse_route(written.replace(b'"0":', b"0:").replace(b'"1":', b"1:")) == route
    assert bodies.parse_route(b"{}") == RouteData()
    strange = b'{"brokerDatas":[{"brokerAddrs":{"x":"a","5":6}},{"brokerAddrs":[]}],"queueDatas":[{"perm":"6","topicSynFlag":2}]}'
    assert bodies.parse_route(strange) == RouteData((BrokerData("", "", {}),) * 2, (QueueData("", 0, 0, 6, 2),))


def test_cluster_info() -> None:
    written = bodies.encode_cluster_info((BrokerData("broker-a", "C", {0: "h:1"}), BrokerData("broker-b", "C", {0: "h:2"})))
    assert written == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"h:1"},"brokerName":"broker-a","cluster":"C"},'
        b'"broker-b":{"brokerAddrs":{"0":"h:2"},"brokerName":"broker-b","cluster":"C"}},"clusterAddrTable":{"C":["broker-a","broker-b"]}}'
    )


@pytest.mark.parametrize("body", [b"", b"[]", b"5", b"{", b"\xff", b" " * (JSON_BODY_SIZE_BYTES_MAX + 1)])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    for parse in (
        bodies.parse_heartbeat,
        bodies.parse_lock_body,
        bodies.parse_route,
        bodies.parse_consumer_list,
        bodies.parse_client_config,
    ):
        with pytest.raises(RemoteProtocolError) as raised:
            parse(body)
        assert not raised.value.fatal
