from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.core.policies import Expired, Full, GroupPolicy, TopicPolicy, dead_letter_name
from polymq.errors import Refusal, RefusalCode

from .conftest import SECOND_NS, World, inbox

group_policies = st.builds(
    GroupPolicy,
    max_attempts=st.integers(0, 100),
    dead_letter=st.text(max_size=5),
    ordered=st.booleans(),
    requeue_on_close=st.none() | st.booleans(),
)
topic_policies = st.builds(
    TopicPolicy,
    ttl_ns=st.integers(0, 10),
    expired=st.sampled_from(Expired),
    messages_max=st.integers(0, 10),
    bytes_max=st.integers(0, 10),
    full=st.sampled_from(Full),
)


@given(group_policies, topic_policies)
def test_a_policy_is_what_its_journaled_fields_say(group: GroupPolicy, topic: TopicPolicy) -> None:
    assert GroupPolicy.of(group.fields()) == group
    assert TopicPolicy.of(topic.fields()) == topic
    assert GroupPolicy().fields() == TopicPolicy().fields() == {}


@given(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=80))
def test_dead_letter_names_can_be_spelt_by_everybody(topic: str, group: str) -> None:
    name = dead_letter_name(topic, group)
    assert re.fullmatch(r"[.a-zA-Z0-9_-]{1,64}", name)
    assert name.endswith(".dead")


def test_dead_letter_names_tell_where_letters_come_from() -> None:
    assert dead_letter_name("orders", "billing") == "orders.billing.dead"
    exact = dead_letter_name("t" * 29, "g" * 29)
    assert (len(exact), exact) == (64, "t" * 29 + "." + "g" * 29 + ".dead")
    long = dead_letter_name("t" * 30, "g" * 29)
    assert (len(long), long[:50]) == (64, "t" * 30 + "." + "g" * 19)
    assert long != dead_letter_name("t" * 30, "g" * 28 + "h")
    assert re.fullmatch(r"t\.g_ephemeral-[0-9a-f]{8}\.dead", dead_letter_name("t", "g#ephemeral"))


@pytest.mark.parametrize(
    "policy",
    [
        GroupPolicy(max_attempts=-1),
        GroupPolicy(max_attempts=limits.ATTEMPTS_MAX),
        GroupPolicy(dead_letter="t"),
        GroupPolicy(dead_letter="x" * (limits.NAME_SIZE_BYTES_MAX + 1)),
        TopicPolicy(ttl_ns=-1),
        TopicPolicy(messages_max=-1),
        TopicPolicy(bytes_max=limits.TIME_NS_MAX + 1),
    ],
)
def test_a_policy_that_cannot_be_is_refused(single: World, policy: GroupPolicy | TopicPolicy) -> None:
    single.consume("t", "g", 0)
    with pytest.raises(Refusal) as refused:
        if isinstance(policy, GroupPolicy):
            single.session.set_group_policy("t", "g", policy)
        else:
            single.session.set_topic_policy("t", policy)
    assert refused.value.code is RefusalCode.POLICY_INVALID
    assert single.session.group_policy("t", "g") == GroupPolicy()
    assert single.session.topic_policy("t") == TopicPolicy()


@pytest.mark.parametrize("snapshot", [False, True])
def test_policies_outlive_the_process(world: World, snapshot: bool) -> None:
    group = GroupPolicy(max_attempts=3, dead_letter="graves", ordered=True, requeue_on_close=False)
    topic = TopicPolicy(ttl_ns=5, expired=Expired.DEAD_LETTER, messages_max=7, bytes_max=9, full=Full.DROP_OLDEST)
    world.consume("t", "g", 0)
    world.session.set_group_policy("t", "g", group)
    world.session.set_topic_policy("t", topic)
    if snapshot:
        world.broker.snapshot()
    for _ in range(2):
        world.restart()
        assert world.session.group_policy("t", "g") == group
        assert world.session.topic_policy("t") == topic
    world.session.set_group_policy("t", "g", GroupPolicy())
    world.session.set_topic_policy("t", TopicPolicy())
    if snapshot:
        world.broker.snapshot()
    world.restart()
    assert world.session.group_policy("t", "g") == GroupPolicy()
    assert world.session.topic_policy("t") == TopicPolicy()


# --- Leaving ----------------------------------------------------------------------------------------------------------


def test_what_a_consumer_holds_comes_back_when_it_leaves_if_the_group_says_so(world: World) -> None:
    first = world.consume("t", "g", 5)
    for index in range(5):
        world.publish("t", b"%d" % index)
    world.turn()
    world.session.extend(first, inbox(first).ids[0], lease_ns=9 * SECOND_NS, lease_ns_max=99 * SECOND_NS)
    world.settle(first, inbox(first).ids[4])
    world.session.set_group_policy("t", "g", GroupPolicy(requeue_on_close=True))
    second = world.consume("t", "g", 10)
    world.session.unsubscribe(first)
    assert (world.view().groups[0].depth, world.view().groups[0].leased) == (4, 0)
    world.turn()
    assert sorted(inbox(second).got) == sorted((body, 2) for body in inbox(first).bodies[:4])
    assert world.view().groups[0].timeout_count == 0
    world.wait(100)
    assert len(inbox(second).got) == 8


@pytest.mark.parametrize(("setting", "policy", "at_once"), [(False, None, False), (True, None, True), (True, False, False)])
def test_the_settings_say_it_where_the_group_does_not(single: World, setting: bool, policy: bool | None, at_once: bool) -> None:
    single.broker.kernel.requeue_on_close = setting
    first = single.consume("t", "g", 5)
    single.publish("t", b"x")
    single.turn()
    single.session.set_group_policy("t", "g", GroupPolicy(requeue_on_close=policy))
    second = single.consume("t", "g", 5)
    single.session.unsubscribe(first)
    single.turn()
    assert bool(inbox(second).got) == at_once
    single.wait(60)
    assert inbox(second).got[0] == (b"x", 2)
