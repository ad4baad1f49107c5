"""How the views of `views.py` are made from the live objects, on request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymq.core.latency import Histogram
from polymq.core.views import ConsumerView, GroupView, LatencyView, PartitionView, PeerView, ProducerView, TopicView
from polymq.core.work_group import WorkGroup

if TYPE_CHECKING:
    from polymq.core.group import Group, Subscription
    from polymq.core.session import Session
    from polymq.core.topic import Topic

__all__ = ["Latency", "consumer_view", "group_view", "peer_unknown", "producer_view", "topic_view"]


@dataclass(frozen=True, slots=True)
class Latency:
    """What is asked about latencies: which quantiles, of the window that ends at `now_ns` (monotonic clock)."""

    quantiles: tuple[float, ...]
    now_ns: int

    def view(self, histogram: Histogram | None) -> LatencyView:
        """Read the quantiles off; nothing was measured if there is no histogram."""
        if histogram is None:
            return LatencyView()
        return LatencyView(histogram.total, tuple((share, histogram.quantile(share)) for share in self.quantiles))


def peer_unknown(now_ns: int) -> PeerView:
    """Describe a peer that nobody has described."""
    return PeerView(protocol="", remote_address="", connected_at_ns=now_ns)


def topic_view(topic: Topic, *, groups: bool, consumers: bool, latency: Latency) -> TopicView:
    """Describe a topic. What its groups took is put together for it, if groups are asked for."""
    partitions = tuple(
        PartitionView(
            partition=partition.index,
            number=partition.number,
            epoch=partition.log.epoch,
            epochs=tuple(partition.log.epochs),
            start=partition.log.start,
            end=partition.log.end,
            readable=partition.log.readable,
            size_bytes=partition.log.size_bytes,
            failed=partition.log.failed,
        )
        for partition in topic.partitions
    )
    chosen = [topic.groups[name] for name in sorted(topic.groups)] if groups else []
    together = Histogram() if latency.quantiles else None
    made = tuple(group_view(group, consumers=consumers, latency=latency, together=together) for group in chosen)
    return TopicView(
        namespace=topic.namespace,
        name=topic.name,
        paused=topic.paused,
        ephemeral=topic.ephemeral,
        held=topic.held,
        scheduled=topic.scheduled,
        message_count=topic.message_count,
        message_bytes=topic.message_bytes,
        partitions=partitions,
        groups=made,
        latency=latency.view(together) if any(_measured(group) for group in chosen) else LatencyView(),
    )


def group_view(group: Group, *, consumers: bool, latency: Latency, together: Histogram | None = None) -> GroupView:
    """Describe a group. Only a work group has depth, leases and deferred messages. Its latencies are added to `together`."""
    work = group if isinstance(group, WorkGroup) else None
    took = work.latency.merged(latency.now_ns) if work and work.latency else None
    if took is not None and together is not None:
        together.merge(took)
    return GroupView(
        name=group.name,
        kind=group.kind.value,
        paused=group.paused,
        ephemeral=group.ephemeral,
        depth=work.depth if work else 0,
        leased=work.leased if work else 0,
        deferred=work.deferred_count if work else 0,
        message_count=work.message_count if work else 0,
        requeue_count=work.requeue_count if work else 0,
        timeout_count=work.timeout_count if work else 0,
        consumer_count=len(group.consumers),
        scheduled=work.scheduled if work else 0,
        dead_letter_count=work.dead_letter_count if work else 0,
        expired_count=work.expired_count if work else 0,
        dropped_count=work.dropped_count if work else 0,
        consumers=tuple(consumer_view(consumer) for consumer in group.consumers) if consumers else (),
        latency=latency.view(took),
    )


def _measured(group: Group) -> bool:
    return isinstance(group, WorkGroup) and group.latency is not None


def consumer_view(subscription: Subscription) -> ConsumerView:
    """Describe a consumer."""
    assert subscription.session is not None
    return ConsumerView(
        peer=subscription.session.peer,
        credit=subscription.credit,
        leased=subscription.leased,
        delivered=subscription.delivered,
        settled=subscription.settled,
        requeued=subscription.requeued,
        sample_percent=subscription.sample_percent,
        closing=subscription.closing,
    )


def producer_view(session: Session) -> ProducerView:
    """Describe a session that has published."""
    consumer = consumer_view(session.subscriptions[0]) if session.subscriptions else None
    return ProducerView(session.peer, tuple(session.published.items()), consumer)
