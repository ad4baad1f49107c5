"""Bodies in JSON, read and written: heartbeats, routes, locks, lists. What is missing in one has its default; unknown fields do not matter.

Reading raises RemoteProtocolError (not fatal). Written JSON is compact and has its fields in the order of the real peers.
Source: RocketMQ 4.9.8 and 5.3.3 on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
    """The body of HEART_BEAT. Groups without a name are left out."""

    client_id: str
    producers: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()


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
    """Read a tag expression (`*`, `TagA || TagB`), as clients and brokers do. Raises RemoteProtocolError when it is none."""
    raise NotImplementedError


def parse_heartbeat(body: bytes) -> Heartbeat:
    """Read the body of HEART_BEAT."""
    raise NotImplementedError


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Write the body of HEART_BEAT."""
    raise NotImplementedError


def parse_client_config(body: bytes) -> tuple[str, str, Subscription]:
    """Read the body of CHECK_CLIENT_CONFIG: client, group, subscription."""
    raise NotImplementedError


def parse_lock_body(body: bytes) -> LockBody:
    """Read the body of LOCK_BATCH_MQ or UNLOCK_BATCH_MQ."""
    raise NotImplementedError


def encode_lock_body(lock: LockBody) -> bytes:
    """Write the body of LOCK_BATCH_MQ or UNLOCK_BATCH_MQ."""
    raise NotImplementedError


def parse_lock_reply(body: bytes) -> tuple[MessageQueue, ...]:
    """Read which queues are locked."""
    raise NotImplementedError


def encode_lock_reply(queues: tuple[MessageQueue, ...]) -> bytes:
    """Say which queues are locked."""
    raise NotImplementedError


def parse_consumer_list(body: bytes) -> tuple[str, ...]:
    """Read the clients of a group."""
    raise NotImplementedError


def encode_consumer_list(client_ids: tuple[str, ...]) -> bytes:
    """Name the clients of a group."""
    raise NotImplementedError


def parse_route(body: bytes) -> RouteData:
    """Read a route, of old name servers, too."""
    raise NotImplementedError


def encode_route(route: RouteData) -> bytes:
    """Write a route: standard JSON, without a blank, or Go's client dials nonsense."""
    raise NotImplementedError


def encode_cluster_info(brokers: tuple[BrokerData, ...]) -> bytes:
    """Write the body of an answer to GET_BROKER_CLUSTER_INFO."""
    raise NotImplementedError


def encode_topic_list(topics: tuple[str, ...]) -> bytes:
    """Write `{"topicList":[…]}`."""
    raise NotImplementedError


def encode_group_list(groups: tuple[str, ...]) -> bytes:
    """Write `{"groupList":[…]}`."""
    raise NotImplementedError
