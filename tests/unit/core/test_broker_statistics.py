from __future__ import annotations

from typing import Any

from polymq.core.group import GroupKind
from polymq.core.policies import GroupPolicy, TopicPolicy
from polymq.core.settings import CoreSettings

from .conftest import World, inbox

SECOND_NS = 1_000_000_000
LIMITS = (
    "polymq_topic_limit_seconds",
    "polymq_topic_limit_messages",
    "polymq_topic_limit_bytes",
    "polymq_group_limit_attempts",
    "polymq_group_ordered",
)


def values(world: World) -> dict[str, Any]:
    """What each family says: its value if it has no labels, else values by the last of them."""
    found: dict[str, Any] = {}
    for family in world.broker.statistics:
        samples = list(family.collect())
        if len(samples) == 1 and not samples[0].labels:
            found[family.name] = samples[0].value
        else:
            found[family.name] = {list(sample.labels.values())[-1]: sample.value for sample in samples}
    return found


def test_the_registry_shows_topics_and_groups(single: World) -> None:
    single.consume("t", "g", 1)
    single.publish("t", b"abc", b"de")
    single.turn()
    found = {family.name: list(family.collect()) for family in single.broker.statistics}
    assert [sample.value for sample in found["polymq_topic_messages_total"]] == [2]
    assert [sample.value for sample in found["polymq_topic_message_bytes_total"]] == [5]
    (depth,) = found["polymq_group_depth_messages"]
    assert (depth.labels, depth.value) == ({"namespace": "", "topic": "t", "group": "g"}, 1)


def test_every_number_of_a_group(single: World) -> None:
    consumer = single.consume("t", "g", 3)
    single.session.create_group("t", "h")
    single.session.create_topic("other")
    single.publish("t", b"a", b"b", b"c", b"d", b"e")
    single.publish("t", b"later", delay_ns=60 * SECOND_NS)
    single.turn()
    first, second, _third = inbox(consumer).ids
    single.settle(consumer, first)
    single.session.credit(consumer, 0)
    single.session.requeue(consumer, second, delay_ns=SECOND_NS)
    single.turn()
    found = values(single)
    assert found["polymq_topics"] == 2
    assert found["polymq_groups"] == 2
    assert found["polymq_sessions"] == 1
    assert found["polymq_topic_scheduled_messages"] == {"t": 1, "other": 0}
    assert set(found["polymq_topic_log_bytes"]) == {"t", "other"}
    assert found["polymq_group_depth_messages"] == {"g": 2, "h": 5}
    assert found["polymq_group_leased_messages"] == {"g": 1, "h": 0}
    assert found["polymq_group_deferred_messages"] == {"g": 1, "h": 0}
    assert found["polymq_group_messages_total"] == {"g": 6, "h": 6}
    assert found["polymq_group_settled_total"] == {"g": 1, "h": 0}
    assert found["polymq_group_requeues_total"] == {"g": 1, "h": 0}
    assert found["polymq_group_timeouts_total"] == {"g": 0, "h": 0}
    assert found["polymq_group_consumers"] == {"g": 1, "h": 0}
    assert "polymq_group_latency_seconds" not in found


def test_latencies_are_there_when_they_are_measured(single: World) -> None:
    single.settings = CoreSettings(latency_quantiles=(1.0, 0.5))
    single.restart()
    consumer = single.consume("t", "g", 3)
    single.publish("t", b"a")
    single.turn()
    single.wait(2)
    single.settle(consumer, *inbox(consumer).ids)
    assert values(single)["polymq_group_latency_seconds"] == {"1": 2.0, "0.5": 2.0}


def test_what_was_chosen_stands_beside_what_is_counted(single: World) -> None:
    for topic in ("t", "plain"):
        single.session.create_topic(topic)
        single.session.create_group(topic, "g")
        single.session.create_group(topic, "h")
    single.session.create_group("t", "cursor", kind=GroupKind.CURSOR)
    assert all(values(single)[name] == {} for name in LIMITS)
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=1_500_000_000, messages_max=7, bytes_max=9))
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=5))
    single.session.set_group_policy("t", "h", GroupPolicy(ordered=True))
    found = values(single)
    assert [found[name] for name in LIMITS] == [{"t": 1.5}, {"t": 7}, {"t": 9}, {"g": 5}, {"h": 1}]
