"""What the broker looks like at one moment, as plain frozen values for statistics and for the log's door.

A view is made on request and is never kept up to date: nothing in the broker reads one. Names, times and counters
are the core's own (ns since 1970, groups, credit, leases); what a protocol's statistics call them is decided where
they are rendered. Read next: `Session.topics()` and `Session.topic()`, which make them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polymq.wire.records import Message

__all__ = [
    "ConsumerView",
    "DeferredView",
    "GroupView",
    "LatencyView",
    "PartitionView",
    "PeekedView",
    "PeerView",
    "ProducerView",
    "QueuedView",
    "ScheduledView",
    "TlsView",
    "TopicView",
]


@dataclass(frozen=True, slots=True)
class TlsView:
    """What a connection's TLS handshake agreed on, in the words of the TLS library."""

    version: str
    cipher_suite: str
    negotiated_protocol: str = ""


@dataclass(frozen=True, slots=True)
class PeerView:
    """Who is at the other end of a session: what its gateway learned, mostly what the peer said of itself.

    The gateway hands one to `Session.describe()` when the connection opens and again whenever it learns more.
    `protocol` and `protocol_version` are text for people and statistics; nothing decides by them. `identity` is
    what an authorizer called the peer ("" if nobody did); `sample_percent` is the share of messages that it wants.
    """

    protocol: str
    remote_address: str
    connected_at_ns: int
    protocol_version: str = ""
    client_id: str = ""
    host_name: str = ""
    user_agent: str = ""
    compression: str = ""
    tls: TlsView | None = None
    authenticated: bool = False
    identity: str = ""
    identity_url: str = ""
    sample_percent: int = 0


@dataclass(frozen=True, slots=True)
class LatencyView:
    """How long settled messages took from being published, as (quantile in 0 … 1, nanoseconds) over `count`."""

    count: int = 0
    quantiles: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """One subscription of one group.

    `leased` is how many messages it holds now, `credit` how many it may hold. `delivered`, `settled` and `requeued`
    count since it subscribed; `delivered` counts a message once per attempt. `closing` is set once it has said that
    it takes no new messages.
    """

    peer: PeerView
    credit: int
    leased: int
    delivered: int
    settled: int
    requeued: int
    sample_percent: int = 0
    closing: bool = False


@dataclass(frozen=True, slots=True)
class ProducerView:
    """One session that has published: how many messages to which topic, in order of first use.

    `consumer` is its subscription, if the same session has one.
    """

    peer: PeerView
    published: tuple[tuple[str, int], ...]
    consumer: ConsumerView | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group of a topic.

    `depth` counts messages that wait to be delivered: neither leased nor deferred, and not those that the topic
    holds back (`TopicView.held`). `message_count` counts messages that became the group's since it exists,
    redeliveries not included, the topic's deferred publishes included (`scheduled` of them wait); `requeue_count` and
    `timeout_count` are redeliveries asked for and leases that ran out. `dead_letter_count`, `expired_count` and
    `dropped_count` are messages that were not delivered (any more), since this process started. `consumers` is empty if they were not asked for; `consumer_count` is right either way.
    """

    name: str
    kind: str
    paused: bool
    ephemeral: bool
    depth: int
    leased: int
    deferred: int
    message_count: int
    requeue_count: int
    timeout_count: int
    consumer_count: int
    scheduled: int = 0
    dead_letter_count: int = 0
    expired_count: int = 0
    dropped_count: int = 0
    consumers: tuple[ConsumerView, ...] = ()
    latency: LatencyView = field(default_factory=LatencyView)


@dataclass(frozen=True, slots=True)
class ScheduledView:
    """One deferred publish that waits. `id` is its own: in the topic it gets another. `time_ns`: when it was published."""

    id: int
    due_ns: int
    size_bytes: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class DeferredView:
    """One message that a consumer has given back for later."""

    id: int
    due_ns: int
    attempts: int


@dataclass(frozen=True, slots=True)
class PeekedView:
    """One message, looked at without being given out. `partition` is the index within the topic, `attempts` those so far."""

    id: int
    partition: int
    offset: int
    attempts: int
    message: Message


@dataclass(frozen=True, slots=True)
class QueuedView:
    """One message that a work group is not done with. `is_out`: a consumer has it; `is_deferred`: it waits for its time."""

    id: int
    is_out: bool
    is_deferred: bool
    message: Message


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition: `partition` is its index within the topic, `number` its name in the data folder.

    `epochs` lists (epoch, first offset), oldest first. Offsets `start` … `readable` - 1 can be read; `end` is where
    the next message goes.
    """

    partition: int
    number: int
    epoch: int
    epochs: tuple[tuple[int, int], ...]
    start: int
    end: int
    readable: int
    size_bytes: int = 0
    failed: str = ""


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic with its partitions and groups, groups sorted by name.

    `held` counts the messages that no group has been given: all of them while there is no group, and those that
    were published since it was paused while the topic is paused. `message_count` and `message_bytes` (bodies only)
    count everything ever published to it, deferred publishes from the moment that they were accepted; `scheduled`
    counts those whose time has not come. `groups` is empty if they were not asked for.
    """

    namespace: str
    name: str
    paused: bool
    ephemeral: bool
    held: int
    scheduled: int
    message_count: int
    message_bytes: int
    partitions: tuple[PartitionView, ...]
    groups: tuple[GroupView, ...] = ()
    latency: LatencyView = field(default_factory=LatencyView)
