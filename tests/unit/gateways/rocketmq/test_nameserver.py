from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, cast

import orjson
import pytest

from polymq.core.access import STRANGER, Action, Permission, Principal
from polymq.core.patterns import EVERYTHING, compile_pattern
from polymq.errors import Refusal
from polymq.gateways.contract import Peer
from polymq.gateways.rocketmq import nameserver
from polymq.gateways.rocketmq.answers import Answer, RequestProblem, refused
from polymq.gateways.rocketmq.nameserver import NO_ROUTE
from polymq.gateways.rocketmq.registry import Registry
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.events import Request
from polymq.protocols.rocketmq.registration import DataVersion, TopicConfig, write_registration
from polymq.rocketmq_limits import NAMED_VERSION_SIZE_BYTES_MAX
from tests.unit.gateways.rocketmq.group_world import Caller, GroupWorld

if TYPE_CHECKING:
    from collections.abc import Iterable

SOME = Principal("some", permissions=(Permission(frozenset({Action.PUBLISH}), compile_pattern("^mine$"), (EVERYTHING,)),))


class Names:
    """Somebody who asks the name server."""

    def __init__(self, principal: Principal | None = None, *, local_host: str = "") -> None:
        self.world = GroupWorld(principal=principal)
        self.house = self.world.house
        self.house.facts.broker_name = "broker-a"
        self.caller = self.connect(local_host)

    def connect(self, local_host: str = "") -> Caller:
        caller = self.world.caller()
        caller.peer = Peer("192.0.2.9", 44472, local_host=local_host)
        caller.own_host = "127.0.0.1"  # type: ignore[attr-defined]  # what a real client has
        return caller

    def answer(self, code: int, body: bytes = b"", *, caller: Caller | None = None, **ext: str) -> Answer:
        """Ask, and give the whole answer."""
        client: Any = caller or self.caller
        try:
            found = nameserver.HANDLERS[code](client, Request(code, 1, 0, ext, body, version=409))
        except RequestProblem as problem:
            found = problem.answer
        except Refusal as refusal:
            found = refused(refusal)
        self.world.turn()
        assert found is not None
        return found

    def ask(self, code: int, body: bytes = b"", **ext: Any) -> Any:
        """Ask for something that is there."""
        found = self.answer(code, body, **ext)
        assert found.code == ResponseCode.SUCCESS, found.remark
        assert b" " not in found.body
        return orjson.loads(found.body)

    def route(self, topic: str) -> Any:
        return self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)

    def no_route(self, topic: str) -> Answer:
        found = self.answer(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        assert found.code == ResponseCode.TOPIC_NOT_EXIST
        return found

    def register(self, name: str, *topics: str, address: str = "10.0.0.2:10911", caller: Caller | None = None, **ext: str) -> Answer:
        body = write_registration([TopicConfig(topic, 2, 2) for topic in topics], DataVersion(1, 5))
        fields: dict[str, Any] = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": "C2",
            "haServerAddr": "10.0.0.2:10912",
            "brokerId": "0",
        }
        fields["bodyCrc32"] = str(zlib.crc32(body) & 0x7FFFFFFF)
        return self.answer(RequestCode.REGISTER_BROKER, body, caller=caller, **(fields | ext))

    @property
    def topics(self) -> list[str]:
        return [name for _, name in self.world.broker.catalogue.topics]


def test_a_route_is_what_java_and_go_read() -> None:
    names = Names()
    names.caller.session.create_topic("orders", partitions=4)
    found = names.answer(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
    assert found.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:20911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert found.ticket is None


def test_a_topic_is_made_when_its_route_is_asked_for() -> None:
    names = Names()
    found = names.answer(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="new")
    assert found.ticket is not None
    assert orjson.loads(found.body)["queueDatas"][0]["readQueueNums"] == names.house.facts.queues == 4
    assert names.route("%RETRY%group")["queueDatas"][0]["writeQueueNums"] == 1
    assert names.topics == ["new", "%RETRY%group"]


def test_without_the_switch_it_is_not_but_the_template_is_there() -> None:
    names = Names()
    names.house.auto_create_on_route = False
    assert names.no_route("new").remark == (
        "No topic route info in name server for the topic: new\nSee http://rocketmq.apache.org/docs/faq/ for further details."
    )
    [queues] = names.route("TBW102")["queueDatas"]
    assert (queues["perm"], queues["readQueueNums"]) == (7, 8)
    names.house.auto_create_topics = False
    names.no_route("TBW102")
    assert names.topics == []


@pytest.mark.parametrize("topic", ["", " ", "a.b", "x" * 128, "ü"])
def test_what_no_topic_can_be_called_has_no_route(topic: str) -> None:
    names = Names()
    names.no_route(topic)
    assert names.topics == []


def test_a_request_without_a_topic_is_one_for_nothing() -> None:
    names = Names()
    for found in (names.answer(RequestCode.GET_ROUTEINFO_BY_TOPIC), names.answer(RequestCode.GET_ROUTEINFO_BY_TOPIC, other="field")):
        assert (found.code, found.remark) == (ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE % "null")
    assert names.topics == []


@pytest.mark.parametrize("topic", ["SELF_TEST_TOPIC", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC", "OFFSET_MOVED_EVENT"])
def test_system_topics_have_a_route_and_are_not_made(topic: str) -> None:
    names = Names()
    assert names.route(topic)["queueDatas"][0]["readQueueNums"] == 1
    assert names.topics == []


def test_who_may_not_publish_makes_no_topic_but_is_told_where_one_is() -> None:
    names = Names(SOME)
    names.no_route("other")
    names.route("mine")
    names.house.principal = STRANGER
    stranger = names.connect()
    assert names.answer(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="mine", caller=stranger).code == ResponseCode.SUCCESS
    assert names.answer(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="other", caller=stranger).code == ResponseCode.TOPIC_NOT_EXIST
    assert names.topics == ["mine"]


@pytest.mark.parametrize(
    ("host", "local_host", "address"),
    [
        ("", "192.0.2.7", "192.0.2.7:20911"),
        ("", "", "127.0.0.1:20911"),
        ("", "::1", "[::1]:20911"),
        ("broker.invalid", "192.0.2.7", "broker.invalid:20911"),
    ],
)
def test_a_client_is_told_the_address_by_which_it_has_come_unless_the_settings_say_one(host: str, local_host: str, address: str) -> None:
    names = Names(local_host=local_host)
    names.house.facts.host = host
    assert names.route("t")["brokerDatas"][0]["brokerAddrs"] == {"0": address}


# -- other brokers -------------------------------------------------------------------------------------------------------------


def test_queues_of_several_brokers_are_one_route() -> None:
    names = Names()
    names.route("t")
    assert names.register("broker-b", "t", "only-b").code == ResponseCode.SUCCESS
    assert names.register("broker-c", "t", address="10.0.0.3:10911").code == ResponseCode.SUCCESS
    found = names.route("t")
    assert [(queues["brokerName"], queues["readQueueNums"]) for queues in found["queueDatas"]] == [
        ("broker-b", 2),
        ("broker-c", 2),
        ("broker-a", 4),
    ]
    assert [broker["brokerAddrs"]["0"] for broker in found["brokerDatas"]] == ["10.0.0.2:10911", "10.0.0.3:10911", "127.0.0.1:20911"]
    assert [queues["brokerName"] for queues in names.route("only-b")["queueDatas"]] == ["broker-b"]
    assert names.topics == ["t"]


def test_the_cluster_is_everybody() -> None:
    names = Names()
    names.register("broker-b", "t")
    names.register("broker-b", brokerId="1", brokerAddr="10.0.0.4:10911")
    found = names.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert found["clusterAddrTable"] == {"DefaultCluster": ["broker-a"], "C2": ["broker-b"]}
    assert found["brokerAddrTable"]["broker-b"] == {
        "brokerAddrs": {"0": "10.0.0.2:10911", "1": "10.0.0.4:10911"},
        "brokerName": "broker-b",
        "cluster": "C2",
    }
    assert names.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {
        "brokerAddr": "127.0.0.1:20911",
        "topicList": ["DefaultCluster", "broker-a", "C2", "broker-b"],
    }


def test_topics_of_everybody_or_of_a_cluster() -> None:
    names = Names()
    names.route("t")
    names.caller.session.create_topic("a.b")
    names.caller.session.create_topic("ü")  # nobody can ask for it
    names.register("broker-b", "t", "u")
    assert names.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"topicList": ["TBW102", "a%2Eb", "t", "u"]}
    assert names.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="C2") == {"topicList": ["t", "u"]}
    assert names.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster") == {"topicList": ["a%2Eb", "t"]}


def test_no_more_topics_in_one_answer_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.nameserver.TOPIC_LIST_MAX", 3)
    names = Names()
    for number in range(5):
        names.caller.session.create_topic(f"t{number}")
    found = names.answer(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert orjson.loads(found.body) == {"topicList": ["TBW102", "t0", "t1"]}
    assert found.remark == "only the first 3 topics: there are more"


def test_the_list_of_all_topics_is_worked_out_once_and_anew_when_there_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()
    names.caller.session.create_topic("t")
    worked_out: list[Answer] = []
    list_answer = nameserver._list_answer

    def list_and_note(found: Iterable[str]) -> Answer:
        worked_out.append(list_answer(found))
        return worked_out[-1]

    monkeypatch.setattr(nameserver, "_list_answer", list_and_note)

    def topics() -> tuple[list[str], int]:
        worked_out.clear()
        for _ in range(3):
            found = names.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
        return found, len(worked_out)

    assert topics() == (["TBW102", "t"], 1)
    assert topics() == (["TBW102", "t"], 0)
    names.caller.session.create_topic("u")
    assert topics() == (["TBW102", "t", "u"], 1)
    names.caller.session.delete_topic("t")
    assert topics() == (["TBW102", "u"], 1)
    names.register("broker-b", "v")
    assert topics() == (["TBW102", "u", "v"], 1)
    names.register("broker-b", "v", "w")
    assert topics() == (["TBW102", "u", "v", "w"], 1)
    names.answer(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="v")
    assert topics() == (["TBW102", "u", "w"], 1)
    names.house.registry.disconnected(names.caller)
    assert topics() == (["TBW102", "u"], 1)
    names.house.auto_create_topics = False
    assert topics() == (["u"], 1)


def test_lists_of_so_many_namespaces_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.nameserver.TOPIC_LISTS_REMEMBERED_MAX", 2)
    names = Names()
    for number in range(5):
        names.house.principal = Principal("somebody", f"space{number}")
        found = names.answer(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, caller=names.connect())
        assert found.body == b'{"topicList":["TBW102"]}'
        assert len(names.house.registry.told) <= 2


def test_a_broker_goes_when_it_says_so_or_says_nothing() -> None:
    names = Names()
    names.register("broker-b", "u")
    fields: dict[str, Any] = {"brokerName": "broker-b", "brokerAddr": "10.0.0.2:10911", "clusterName": "C2", "brokerId": "0"}
    assert names.answer(RequestCode.UNREGISTER_BROKER, **fields).code == ResponseCode.SUCCESS
    names.house.auto_create_on_route = False
    names.no_route("u")
    names.register("broker-b", "u", heartbeatTimeoutMillis="5000")
    names.world.clock.now_ns += 5_000_000_000
    names.route("u")
    names.world.clock.now_ns += 1
    names.no_route("u")


def test_a_version_is_asked_for_before_all_is_told_again() -> None:
    names = Names()
    fields: dict[str, Any] = {"brokerName": "broker-b", "brokerAddr": "10.0.0.2:10911", "clusterName": "C2", "brokerId": "0"}
    body = orjson.dumps(DataVersion(1, 5).fields())
    assert names.answer(RequestCode.QUERY_DATA_VERSION, body, **fields).ext == {"changed": "true"}
    names.register("broker-b", "u")
    found = names.answer(RequestCode.QUERY_DATA_VERSION, body, **fields)
    assert (found.ext, orjson.loads(found.body)) == ({"changed": "false"}, DataVersion(1, 5).fields())
    found = names.answer(RequestCode.QUERY_DATA_VERSION, b'{"counter":2,"timestamp":5}', **fields)
    assert found.ext == {"changed": "true"}
    for wrong in (b"{", b"{}" + b" " * NAMED_VERSION_SIZE_BYTES_MAX):
        assert names.answer(RequestCode.QUERY_DATA_VERSION, wrong, **fields).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("ext", "remark"),
    [
        ({"bodyCrc32": "1"}, "crc32 not match"),
        ({"brokerId": "-1"}, "the custom field <brokerId> is negative"),
        ({"brokerId": "x"}, "the custom field <brokerId> is no number"),
        ({"brokerAddr": "no address"}, "the custom field <brokerAddr> is illegal"),
        ({"brokerAddr": "a:1,b:2"}, "the custom field <brokerAddr> is illegal"),
        ({"brokerName": "x" * 256}, "the custom field <brokerName> is illegal"),
        ({"clusterName": "a\nb"}, "the custom field <clusterName> is illegal"),
        ({"bodyCrc32": "0", "compressed": "true"}, "Failed to decode RegisterBrokerBody: cannot be inflated"),
        (
            {"brokerName": "broker-a"},
            "this name server is itself the broker broker-a: give the other one a name of its own (or do not have it register here)",
        ),
    ],
)
def test_registrations_that_are_wrong(ext: dict[str, Any], remark: str) -> None:
    names = Names()
    found = names.register("broker-b", "u", **ext)
    assert (found.code, found.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert names.house.registry.brokers() == []


def test_a_topic_that_is_refused_costs_the_broker_only_that() -> None:
    names = Names()
    names.house.registry = Registry(names.world.clock.monotonic_ns, topics_max=1, brokers_max=1)
    found = names.register("broker-b", "t", "u")
    assert (found.code, found.remark) == (ResponseCode.SUCCESS, "1 topics are left out: illegal, or too many")
    assert names.register("broker-c", "t", address="h:1").remark == "this name server has as many brokers as it can keep"


def test_a_slave_is_told_of_its_master() -> None:
    names = Names()
    assert names.register("broker-b", "t").ext == {}
    assert names.register("broker-b", brokerId="1", brokerAddr="h:2").ext == {"masterAddr": "10.0.0.2:10911"}


def test_who_may_not_change_everything_registers_nobody() -> None:
    names = Names(SOME)
    assert names.register("broker-b", "t").code == ResponseCode.NO_PERMISSION
    assert names.answer(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="t").code == ResponseCode.NO_PERMISSION


def test_a_topic_is_deleted_at_other_brokers_only() -> None:
    names = Names()
    names.route("t")
    names.register("broker-b", "t")
    assert names.answer(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="t").code == ResponseCode.SUCCESS
    assert [queues["brokerName"] for queues in names.route("t")["queueDatas"]] == ["broker-a"]


def test_there_are_no_values() -> None:
    names = Names()
    found = names.answer(RequestCode.GET_KV_CONFIG, namespace="N", key="K")
    assert (found.code, found.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: N Key: K")
    found = names.answer(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="N")
    assert (found.code, found.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: N")


def test_a_connection_that_ends_takes_its_broker_along() -> None:
    names = Names()
    other = names.connect()
    names.register("broker-b", "u", caller=other)
    names.house.registry.disconnected(cast("object", other))
    assert names.house.registry.brokers() == []


def test_what_is_left_out_is_called_null() -> None:
    names = Names()
    names.caller.session.create_topic("orders")
    for code, said in ((RequestCode.GET_KV_CONFIG, " Key: null"), (RequestCode.GET_KVLIST_BY_NAMESPACE, "")):
        found = names.answer(code)
        assert (found.code, found.remark) == (ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: null{said}")
    assert orjson.loads(names.answer(RequestCode.GET_TOPICS_BY_CLUSTER).body) == {"topicList": []}
    assert orjson.loads(names.answer(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="").body) == {"topicList": []}
