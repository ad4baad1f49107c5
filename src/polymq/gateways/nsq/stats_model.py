"""nsqd's words for the core's views: which of our figures each of its figures is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polymq.core.views import ConsumerView, GroupView, LatencyView, PeerView, ProducerView, TopicView

__all__ = [
    "PROTOCOL",
    "ChannelStats",
    "ClientStats",
    "LatencyStats",
    "TopicStats",
    "clients_of",
    "producers_of",
    "topic_stats",
]

# How the sessions of NSQ's TCP port call their protocol: only those are nsqd's "producers".
PROTOCOL: Final = "nsq"
_WORK: Final = "work"
_NS_PER_SECOND: Final = 1_000_000_000
# nsqd's numbers for what a client is doing.
_STATE_CONNECTED: Final = 0
_STATE_SUBSCRIBED: Final = 3
_STATE_CLOSING: Final = 4

Published = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class LatencyStats:
    """From publish to FIN: (quantile, ns) pairs over `count` messages."""

    count: int
    quantiles: tuple[tuple[float, int], ...]

    def json(self) -> dict[str, object]:
        """Give nsqd's object; without quantiles the list is null."""
        # Go writes the number 1.0 as 1.
        percentiles = [{"quantile": 1 if quantile == 1 else quantile, "value": value} for quantile, value in self.quantiles]
        return {"count": self.count, "percentiles": percentiles or None}


@dataclass(frozen=True, slots=True)
class ClientStats:
    """One connection of NSQ's TCP port."""

    peer: PeerView
    consumer: ConsumerView | None
    published: Published

    @property
    def state(self) -> int:
        """What the client is doing, as nsqd's number for it."""
        if self.consumer is None:
            return _STATE_CONNECTED
        return _STATE_CLOSING if self.consumer.closing else _STATE_SUBSCRIBED

    def json(self) -> dict[str, object]:
        """Give nsqd's object, its keys in nsqd's order."""
        peer, consumer = self.peer, self.consumer
        stats: dict[str, object] = {
            "client_id": peer.client_id,
            "hostname": peer.host_name,
            "version": peer.protocol_version,
            "remote_address": peer.remote_address,
            "state": self.state,
            "ready_count": consumer.credit if consumer else 0,
            "in_flight_count": consumer.leased if consumer else 0,
            "message_count": consumer.delivered if consumer else 0,
            "finish_count": consumer.settled if consumer else 0,
            "requeue_count": consumer.requeued if consumer else 0,
            "connect_ts": peer.connected_at_ns // _NS_PER_SECOND,
            "sample_rate": consumer.sample_percent if consumer else 0,
            "deflate": peer.compression == "deflate",
            "snappy": peer.compression == "snappy",
            "user_agent": peer.user_agent,
        }
        if peer.authenticated:
            stats["authed"] = True
        if peer.identity:
            stats["auth_identity"] = peer.identity
        if peer.identity_url:
            stats["auth_identity_url"] = peer.identity_url
        if self.published:
            stats["pub_counts"] = [{"topic": topic, "count": count} for topic, count in self.published]
        tls = peer.tls
        stats["tls"] = tls is not None
        stats["tls_cipher_suite"] = tls.cipher_suite if tls else ""
        stats["tls_version"] = tls.version if tls else ""
        stats["tls_negotiated_protocol"] = tls.negotiated_protocol if tls else ""
        stats["tls_negotiated_protocol_is_mutual"] = tls is not None
        return stats


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """One channel; `clients` is None if they were not asked for."""

    name: str
    depth: int
    in_flight_count: int
    deferred_count: int
    message_count: int
    requeue_count: int
    timeout_count: int
    client_count: int
    clients: list[ClientStats] | None
    paused: bool
    latency: LatencyStats


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic and its channels."""

    name: str
    channels: list[ChannelStats]
    depth: int
    message_count: int
    message_bytes: int
    paused: bool
    latency: LatencyStats

    def only(self, channels: list[ChannelStats]) -> TopicStats:
        """Give the same topic with these channels."""
        return replace(self, channels=channels)


def clients_of(published: Mapping[PeerView, Published], topic: str) -> Callable[[Iterable[ConsumerView]], list[ClientStats]]:
    """Make the function that describes the consumers of a group, who may have published as well."""

    def clients(consumers: Iterable[ConsumerView]) -> list[ClientStats]:
        return [ClientStats(consumer.peer, consumer, _chosen(published.get(consumer.peer, ()), topic)) for consumer in consumers]

    return clients


def producers_of(producers: Iterable[ProducerView], topic: str) -> list[ClientStats]:
    """Describe the connections that have published; with a topic, their counts for that one only."""
    return [
        ClientStats(producer.peer, producer.consumer, _chosen(producer.published, topic))
        for producer in producers
        if producer.peer.protocol == PROTOCOL
    ]


def topic_stats(view: TopicView, clients: Callable[[Iterable[ConsumerView]], list[ClientStats]] | None) -> TopicStats:
    """Describe a topic. `clients` is None if they were not asked for."""
    groups = [group for group in view.groups if group.kind == _WORK]
    # nsqd hands a deferred publish to the topic's channels at once, and keeps it in the topic if there are none.
    scheduled_with_topic = 0 if groups else view.scheduled
    return TopicStats(
        name=view.name,
        channels=[_channel_stats(group, clients) for group in groups],
        depth=view.held + scheduled_with_topic,
        message_count=view.message_count,
        message_bytes=view.message_bytes,
        paused=view.paused,
        latency=_latency(view.latency),
    )


def _channel_stats(group: GroupView, clients: Callable[[Iterable[ConsumerView]], list[ClientStats]] | None) -> ChannelStats:
    return ChannelStats(
        name=group.name,
        depth=group.depth,
        in_flight_count=group.leased,
        deferred_count=group.deferred + group.scheduled,
        message_count=group.message_count,
        requeue_count=group.requeue_count,
        timeout_count=group.timeout_count,
        client_count=group.consumer_count,
        clients=clients(group.consumers) if clients else None,
        paused=group.paused,
        latency=_latency(group.latency),
    )


def _latency(view: LatencyView) -> LatencyStats:
    return LatencyStats(view.count, view.quantiles)


def _chosen(published: Published, topic: str) -> Published:
    return tuple(item for item in published if not topic or item[0] == topic)
