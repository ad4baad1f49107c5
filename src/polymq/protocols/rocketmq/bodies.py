"""Bodies in JSON, read and written: heartbeats, routes, locks, lists. What is missing in one has its default; unknown fields do not matter.

Reading raises RemoteProtocolError (not fatal). Written JSON is compact and has its fields in the order of the real peers.
Source: RocketMQ 4.9.8 and 5.3.3 on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.header import dump_json
from polymq.protocols.rocketmq.names import tag_hash
from polymq.protocols.rocketmq.relaxed_json import loads_object

__all__ = [
    "BrokerData",
    "ConsumerData",
    "Heartbeat",
    "LockBody",
    "MessageQueue",
    "QueueData",
    "RouteData",
    "Subscription",
    "encode_cluster_info",
    "encode_consumer_list",
    "encode_group_list",
    "encode_heartbeat",
    "encode_lock_body",
    "encode_lock_reply",
    "encode_route",
    "encode_topic_list",
    "parse_client_config",
    "parse_consumer_list",
    "parse_heartbeat",
    "parse_lock_body",
    "parse_lock_reply",
    "parse_route",
    "subscription_of",
]


_Value = TypeVar("_Value", str, int, bool)

EVERYTHING: Final = "*"
_BY_TAG: Final = "TAG"
_I64_MAX: Final = 2**63 - 1
_I32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class MessageQueue:
    """One queue, as peers name it."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one group wants of one topic."""

    topic: str
    expression: str = "*"
    expression_type: str = "TAG"
    version: int = 0
    tags: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    class_filter: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """One group of consumers, as one client tells of it."""

    group: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: tuple[Subscription, ...] = ()
    unit_mode: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The body of HEART_BEAT. Groups whose name is empty are left out."""

    client_id: str
    producers: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    without_sub: bool = False  # of 5.x: the subscriptions have not changed


@dataclass(frozen=True, slots=True)
class LockBody:
    """The body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    group: str
    client_id: str
    queues: tuple[MessageQueue, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueData:
    """How many queues of a topic a broker has, and what they are for (bits: 4 read, 2 write, 1 inherit)."""

    broker_name: str
    read_queues: int = 4
    write_queues: int = 4
    permission: int = 6
    system_flag: int = 0


@dataclass(frozen=True, slots=True)
class BrokerData:
    """A broker's addresses by its number: 0 is the one to send to."""

    broker_name: str
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RouteData:
    """The body of an answer to GET_ROUTEINFO_BY_TOPIC."""

    brokers: tuple[BrokerData, ...] = ()
    queues: tuple[QueueData, ...] = ()
    order_conf: str | None = None


def subscription_of(topic: str, expression: str, version: int = 0) -> Subscription:
    """Read a tag expression (`*`, `TagA || TagB`), as clients and brokers do. Raises RemoteProtocolError (not fatal) when it is none."""
    text = expression.strip() or EVERYTHING
    if text == EVERYTHING:
        return Subscription(topic, version=version)
    tags = tuple(dict.fromkeys(tag for part in text.split("||") if (tag := part.strip())))
    if not tags:
        raise RemoteProtocolError("subString split error", fatal=False)
    return Subscription(topic, text, version=version, tags=tags, codes=tuple(dict.fromkeys(map(tag_hash, tags))))


def _get(found: dict[Any, Any], name: str, default: _Value) -> _Value:
    """Read a field of the default's type, from whatever the peers write for it; the default if it is missing or something else."""
    value = found.get(name)
    if isinstance(default, bool):
        return value if isinstance(value, bool) else value in ("true", "1", 1) if value is not None else default
    if isinstance(default, int):
        if isinstance(value, str) and value.lstrip("-").isdecimal() and value.isascii() and len(value) < 20:
            value = int(value)
        return value if type(value) is int and -_I64_MAX <= value <= _I64_MAX else default
    return value if isinstance(value, str) else str(value) if isinstance(value, int) and not isinstance(value, bool) else default


def _objects(found: dict[Any, Any], name: str) -> list[dict[Any, Any]]:
    """Read a list of objects; what is none is left out."""
    value = found.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _groups(found: dict[Any, Any], name: str) -> list[dict[Any, Any]]:
    """Read the groups of a heartbeat; raises RemoteProtocolError (not fatal) for what the real broker cannot read or register."""
    if not isinstance(found.get(name, []), list | None):
        raise RemoteProtocolError(f"{name} is no list", fatal=False)
    groups = _objects(found, name)
    if any(group.get("groupName") is None for group in groups):
        raise RemoteProtocolError(f"a group of {name} has no name", fatal=False)
    return groups


def _strings(found: dict[Any, Any], name: str) -> tuple[str, ...]:
    value = found.get(name)
    return tuple([item for item in value if isinstance(item, str)]) if isinstance(value, list) else ()


def _read_subscription(found: dict[Any, Any]) -> Subscription:
    codes = found.get("codeSet")
    return Subscription(
        _get(found, "topic", ""),
        _get(found, "subString", EVERYTHING),
        _get(found, "expressionType", _BY_TAG) or _BY_TAG,
        _get(found, "subVersion", 0),
        _strings(found, "tagsSet"),
        tuple([code for code in codes if type(code) is int and -_I32_MAX - 1 <= code <= _I32_MAX]) if isinstance(codes, list) else (),
        _get(found, "classFilterMode", False),
    )


def _write_subscription(subscription: Subscription) -> dict[str, object]:
    return {
        "classFilterMode": subscription.class_filter,
        "codeSet": subscription.codes,
        "expressionType": subscription.expression_type,
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": subscription.tags,
        "topic": subscription.topic,
    }


def parse_heartbeat(body: bytes) -> Heartbeat:
    """Read the body of HEART_BEAT."""
    found = loads_object(body)
    producers = [_get(item, "groupName", "") for item in _groups(found, "producerDataSet")]
    consumers = [
        ConsumerData(
            _get(item, "groupName", ""),
            _get(item, "consumeType", "CONSUME_PASSIVELY"),
            _get(item, "messageModel", "CLUSTERING"),
            _get(item, "consumeFromWhere", "CONSUME_FROM_LAST_OFFSET"),
            tuple([_read_subscription(each) for each in _objects(item, "subscriptionDataSet") if _get(each, "topic", "")]),
            _get(item, "unitMode", False),
        )
        for item in _groups(found, "consumerDataSet")
    ]
    return Heartbeat(
        _get(found, "clientID", ""),
        tuple([group for group in producers if group]),
        tuple([consumer for consumer in consumers if consumer.group]),
        _get(found, "withoutSub", False),
    )


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Write the body of HEART_BEAT."""
    consumers = [
        {
            "consumeFromWhere": consumer.consume_from_where,
            "consumeType": consumer.consume_type,
            "groupName": consumer.group,
            "messageModel": consumer.message_model,
            "subscriptionDataSet": [_write_subscription(each) for each in consumer.subscriptions],
            "unitMode": consumer.unit_mode,
        }
        for consumer in heartbeat.consumers
    ]
    producers = [{"groupName": group} for group in heartbeat.producers]
    return dump_json({"clientID": heartbeat.client_id, "consumerDataSet": consumers, "producerDataSet": producers})


def parse_client_config(body: bytes) -> tuple[str, str, Subscription]:
    """Read the body of CHECK_CLIENT_CONFIG: client, group, subscription."""
    found = loads_object(body)
    data = found.get("subscriptionData")
    return _get(found, "clientId", ""), _get(found, "group", ""), _read_subscription(data if isinstance(data, dict) else {})


def _read_queues(found: dict[Any, Any], name: str) -> tuple[MessageQueue, ...]:
    queues = [
        MessageQueue(_get(item, "topic", ""), _get(item, "brokerName", ""), _get(item, "queueId", -1)) for item in _objects(found, name)
    ]
    return tuple([queue for queue in queues if queue.topic and queue.queue_id >= 0])


def _write_queues(queues: tuple[MessageQueue, ...]) -> list[dict[str, object]]:
    return [{"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic} for queue in queues]


def parse_lock_body(body: bytes) -> LockBody:
    """Read the body of LOCK_BATCH_MQ or UNLOCK_BATCH_MQ."""
    found = loads_object(body)
    return LockBody(_get(found, "consumerGroup", ""), _get(found, "clientId", ""), _read_queues(found, "mqSet"))


def encode_lock_body(lock: LockBody) -> bytes:
    """Write the body of LOCK_BATCH_MQ or UNLOCK_BATCH_MQ."""
    return dump_json({"clientId": lock.client_id, "consumerGroup": lock.group, "mqSet": _write_queues(lock.queues)})


def parse_lock_reply(body: bytes) -> tuple[MessageQueue, ...]:
    """Read which queues are locked."""
    return _read_queues(loads_object(body), "lockOKMQSet")


def encode_lock_reply(queues: tuple[MessageQueue, ...]) -> bytes:
    """Say which queues are locked."""
    return dump_json({"lockOKMQSet": _write_queues(queues)})


def parse_consumer_list(body: bytes) -> tuple[str, ...]:
    """Read the clients of a group."""
    return _strings(loads_object(body), "consumerIdList")


def encode_consumer_list(client_ids: tuple[str, ...]) -> bytes:
    """Name the clients of a group."""
    return dump_json({"consumerIdList": client_ids})


def parse_route(body: bytes) -> RouteData:
    """Read a route, of old name servers, too."""
    found = loads_object(body)
    order_conf = _get(found, "orderTopicConf", "")
    queues = [
        QueueData(
            _get(item, "brokerName", ""),
            _get(item, "readQueueNums", 0),
            _get(item, "writeQueueNums", 0),
            _get(item, "perm", 0),
            _get(item, "topicSysFlag", 0) or _get(item, "topicSynFlag", 0),
        )
        for item in _objects(found, "queueDatas")
    ]
    return RouteData(tuple(_read_brokers(_objects(found, "brokerDatas"))), tuple(queues), order_conf or None)


def _read_brokers(items: list[dict[Any, Any]]) -> list[BrokerData]:
    brokers = []
    for item in items:
        addresses = item.get("brokerAddrs")
        numbered = {
            int(number): address
            for number, address in (addresses.items() if isinstance(addresses, dict) else ())
            if isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) < 20 and isinstance(address, str)
        }
        brokers.append(BrokerData(_get(item, "brokerName", ""), _get(item, "cluster", ""), numbered))
    return brokers


def _write_broker(broker: BrokerData) -> dict[str, object]:
    addresses = {str(number): address for number, address in broker.addresses.items()}
    return {"brokerAddrs": addresses, "brokerName": broker.broker_name, "cluster": broker.cluster}


def encode_route(route: RouteData) -> bytes:
    """Write a route: standard JSON, without a blank, or Go's client dials nonsense."""
    found: dict[str, object] = {"brokerDatas": [_write_broker(broker) for broker in route.brokers], "filterServerTable": {}}
    if route.order_conf is not None:
        found["orderTopicConf"] = route.order_conf
    found["queueDatas"] = [
        {
            "brokerName": queue.broker_name,
            "perm": queue.permission,
            "readQueueNums": queue.read_queues,
            "topicSysFlag": queue.system_flag,
            "writeQueueNums": queue.write_queues,
        }
        for queue in route.queues
    ]
    return dump_json(found)


def encode_cluster_info(brokers: tuple[BrokerData, ...]) -> bytes:
    """Write the body of an answer to GET_BROKER_CLUSTER_INFO."""
    clusters: dict[str, list[str]] = {}
    for broker in brokers:
        clusters.setdefault(broker.cluster, []).append(broker.broker_name)
    addresses = {broker.broker_name: _write_broker(broker) for broker in brokers}
    return dump_json({"brokerAddrTable": addresses, "clusterAddrTable": clusters})


def encode_topic_list(topics: tuple[str, ...]) -> bytes:
    """Write `{"topicList":[…]}`."""
    return dump_json({"topicList": topics})


def encode_group_list(groups: tuple[str, ...]) -> bytes:
    """Write `{"groupList":[…]}`."""
    return dump_json({"groupList": groups})
