"""Which numbers the core keeps about itself: one family for each, collected when somebody asks.

Collecting goes over a list made when it began, so that it can be interrupted between two samples: topics and groups
that come and go meanwhile do no harm. Read next: `statistics.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.core.policies import NO_GROUP_POLICY, NO_TOPIC_POLICY
from polymq.core.statistics import Family, Kind, Sample
from polymq.core.work_group import WorkGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polymq.core.broker import Broker
    from polymq.core.group import Group
    from polymq.core.policies import GroupPolicy, TopicPolicy
    from polymq.core.topic import Topic

__all__ = ["register_statistics"]

_NS_PER_S = 1_000_000_000


def register_statistics(broker: Broker) -> None:
    """Register everything that the core can tell."""
    _register_totals(broker)
    _register_topics(broker)
    _register_groups(broker)
    _register_policies(broker)
    if broker.settings.latency_quantiles:
        text = "Time from publish to settle, over a window of the past."
        broker.statistics.register(Family("polymq_group_latency_seconds", Kind.GAUGE, text, lambda: _latencies(broker)))


def _register_totals(broker: Broker) -> None:
    topics = broker.catalogue.topics

    def total(name: str, text: str, count: Callable[[], int]) -> None:
        broker.statistics.register(Family(name, Kind.GAUGE, text, lambda: [Sample({}, count())]))

    total("polymq_topics", "Topics that there are.", lambda: len(topics))
    total("polymq_groups", "Groups that there are, of all topics.", lambda: sum(len(topic.groups) for topic in topics.values()))
    total("polymq_sessions", "Sessions, one per connection or port.", lambda: len(broker.sessions))


def _register_topics(broker: Broker) -> None:
    def register(name: str, kind: Kind, text: str, attribute: str) -> None:
        def collect() -> Iterator[Sample]:
            for topic in list(broker.catalogue.topics.values()):
                yield Sample({"namespace": topic.namespace, "topic": topic.name}, getattr(topic, attribute))

        broker.statistics.register(Family(name, kind, text, collect))

    register("polymq_topic_messages_total", Kind.COUNTER, "Messages published since the start.", "message_count")
    register("polymq_topic_message_bytes_total", Kind.COUNTER, "Bytes of bodies published.", "message_bytes")
    register("polymq_topic_held_messages", Kind.GAUGE, "Messages that no group may have yet.", "held")
    register("polymq_topic_scheduled_messages", Kind.GAUGE, "Messages that wait for their due time.", "scheduled")
    register("polymq_topic_log_bytes", Kind.GAUGE, "Bytes of the topic's log on the disk.", "log_size_bytes")


def _register_groups(broker: Broker) -> None:
    def register(name: str, kind: Kind, text: str, attribute: str) -> None:
        def collect() -> Iterator[Sample]:
            for topic, group in _groups(broker):
                value = getattr(group, attribute, None)
                if value is not None:
                    yield Sample(_labels(topic, group), value)

        broker.statistics.register(Family(name, kind, text, collect))

    register("polymq_group_depth_messages", Kind.GAUGE, "Messages that wait for a consumer.", "depth")
    register("polymq_group_leased_messages", Kind.GAUGE, "Messages that consumers have out.", "leased")
    register("polymq_group_deferred_messages", Kind.GAUGE, "Messages given back for later.", "deferred_count")
    register("polymq_group_messages_total", Kind.COUNTER, "Messages that became the group's since the start.", "message_count")
    register("polymq_group_settled_total", Kind.COUNTER, "Messages settled since the start.", "settled_count")
    register("polymq_group_dead_letters_total", Kind.COUNTER, "Messages moved to a dead-letter topic.", "dead_letter_count")
    register("polymq_group_expired_total", Kind.COUNTER, "Messages that were too old to be delivered.", "expired_count")
    register("polymq_group_dropped_total", Kind.COUNTER, "Messages dropped because there were too many.", "dropped_count")
    register("polymq_group_requeues_total", Kind.COUNTER, "Messages given back.", "requeue_count")
    register("polymq_group_timeouts_total", Kind.COUNTER, "Leases that ran out.", "timeout_count")

    def consumers() -> Iterator[Sample]:
        for topic, group in _groups(broker):
            yield Sample(_labels(topic, group), len(group.consumers))

    broker.statistics.register(Family("polymq_group_consumers", Kind.GAUGE, "Consumers of the group.", consumers))


def _register_policies(broker: Broker) -> None:
    """Register what has been chosen, so that it can be seen beside what is counted; nothing is said of what was not."""

    def of_topics(name: str, text: str, chosen: Callable[[TopicPolicy], float]) -> None:
        def collect() -> Iterator[Sample]:
            for topic in list(broker.catalogue.topics.values()):
                if topic.policy is not NO_TOPIC_POLICY and (value := chosen(topic.policy)):
                    yield Sample({"namespace": topic.namespace, "topic": topic.name}, value)

        broker.statistics.register(Family(name, Kind.GAUGE, text, collect))

    def of_groups(name: str, text: str, chosen: Callable[[GroupPolicy], float]) -> None:
        def collect() -> Iterator[Sample]:
            # Few have a policy; the others are passed over without a pause, so quickly (0.1 us each).
            for topic in list(broker.catalogue.topics.values()):
                for group in list(topic.groups.values()):
                    if isinstance(group, WorkGroup) and group.policy is not NO_GROUP_POLICY and (value := chosen(group.policy)):
                        yield Sample(_labels(topic, group), value)

        broker.statistics.register(Family(name, Kind.GAUGE, text, collect))

    of_topics("polymq_topic_limit_seconds", "Age above which messages are not delivered.", lambda policy: policy.ttl_ns / _NS_PER_S)
    of_topics("polymq_topic_limit_messages", "Unfinished messages that there may be.", lambda policy: policy.messages_max)
    of_topics("polymq_topic_limit_bytes", "Unfinished bytes that there may be.", lambda policy: policy.bytes_max)
    of_groups("polymq_group_limit_attempts", "Deliveries after which a message is a dead letter.", lambda policy: policy.max_attempts)
    of_groups("polymq_group_ordered", "1: one message of each key at a time.", lambda policy: int(policy.ordered))


def _latencies(broker: Broker) -> Iterator[Sample]:
    now_ns = broker.kernel.monotonic_ns()
    for topic, group in _groups(broker):
        if isinstance(group, WorkGroup) and group.latency is not None:
            histogram = group.latency.merged(now_ns)
            for share in broker.settings.latency_quantiles:
                yield Sample({**_labels(topic, group), "quantile": f"{share:g}"}, histogram.quantile(share) / _NS_PER_S)


def _groups(broker: Broker) -> Iterator[tuple[Topic, Group]]:
    for topic in list(broker.catalogue.topics.values()):
        for group in list(topic.groups.values()):
            yield topic, group


def _labels(topic: Topic, group: Group) -> dict[str, str]:
    return {"namespace": topic.namespace, "topic": topic.name, "group": group.name}
