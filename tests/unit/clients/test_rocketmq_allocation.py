"""The division of queues: what Java's clients compute, number by number."""

from __future__ import annotations

import pytest

from polymq.clients.rocketmq_allocation import allocate_averagely, allocate_in_circle
from polymq.clients.rocketmq_routes import MessageQueue


def queues(count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("t", broker, number) for number in range(count)]


def java_averagely(index: int, members: int, count: int) -> list[int]:
    """AllocateMessageQueueAveragely of RocketMQ 4.9.8, told in Python."""
    mod = count % members
    average = 1 if count <= members else count // members + 1 if mod > 0 and index < mod else count // members
    start = index * average if mod > 0 and index < mod else index * average + mod
    size = min(average, count - start)
    return [(start + each) % count for each in range(size)]


@pytest.mark.parametrize("members", range(1, 8))
@pytest.mark.parametrize("count", range(12))
def test_shares_are_those_of_java(members: int, count: int) -> None:
    ids = [f"10.0.0.{index}@1" for index in range(members)]
    for index, client_id in enumerate(ids):
        found = allocate_averagely(client_id, list(reversed(ids)), list(reversed(queues(count))))
        assert [each.queue_id for each in found] == (java_averagely(index, members, count) if count else [])


def test_members_and_queues_are_sorted_as_java_sorts_text() -> None:
    # Behind U+FFFF in code points, before U+E000 in the UTF-16 units that Java compares.
    odd, even = "\U00010000", "\ue000"
    assert allocate_averagely(odd, [even, odd], queues(2)) == queues(2)[:1]
    mixed = [*queues(1, even), *queues(1, odd)]
    assert allocate_averagely("a", ["a", "b"], mixed)[0].broker_name == odd


def test_who_is_no_member_gets_nothing() -> None:
    assert allocate_averagely("c", ["a", "b"], queues(4)) == []
    assert allocate_in_circle("c", ["a", "b"], queues(4)) == []


def test_a_circle_deals_queues_out() -> None:
    assert [each.queue_id for each in allocate_in_circle("b", ["c", "b", "a"], queues(8))] == [1, 4, 7]
