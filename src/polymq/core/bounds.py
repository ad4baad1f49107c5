"""How much a topic may hold that is not done with, and what happens when it is more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.core.policies import Full
from polymq.core.retiring import apportion
from polymq.core.work_group import WorkGroup
from polymq.errors import Refusal, RefusalCode

if TYPE_CHECKING:
    from polymq.core.topic import Topic

__all__ = ["admit", "shed"]


def admit(topic: Topic, *, messages: int, size_bytes: int) -> None:
    """Raise Refusal if the topic has no room for a publish, and its policy is to say so. Cost: O(groups, partitions)."""
    policy = topic.policy
    if policy.full is not Full.REJECT or not policy.bounded:
        return
    held = max((group.unfinished for group in _work_groups(topic)), default=0) + topic.held + topic.scheduled
    held += sum(partition.log.end - partition.log.readable for partition in topic.partitions)
    if policy.messages_max and held + messages > policy.messages_max:
        raise Refusal(RefusalCode.TOPIC_FULL, f"topic {topic.name} holds {held} of {policy.messages_max} messages")
    if policy.bytes_max and held * _mean_size_bytes(topic) + size_bytes > policy.bytes_max:
        raise Refusal(RefusalCode.TOPIC_FULL, f"topic {topic.name} holds about {policy.bytes_max} bytes")


def shed(topic: Topic) -> bool:
    """Let every group leave out its oldest messages until the topic holds what it may; True if it held them itself."""
    policy = topic.policy
    if policy.full is not Full.DROP_OLDEST or not policy.bounded:
        return False
    most = policy.messages_max or 1 << 62
    if policy.bytes_max:
        mean = _mean_size_bytes(topic)
        most = min(most, int(policy.bytes_max / mean)) if mean else most
    for group in _work_groups(topic):
        excess = group.unfinished + topic.held - most
        if excess > 0:
            group.retire().shed(excess)
    excess = topic.held - most
    if excess <= 0 or topic.has_work_group:
        return False
    parts = apportion(excess, [partition.held for partition in topic.partitions])
    for partition, part in zip(topic.partitions, parts, strict=True):
        if partition.held_from is not None:
            partition.held_from = max(partition.held_from, partition.log.start) + part
    return True


def _work_groups(topic: Topic) -> list[WorkGroup]:
    return [group for group in topic.groups.values() if isinstance(group, WorkGroup)]


def _mean_size_bytes(topic: Topic) -> float:
    """Say how large a message is on the disk, on the average of what the log holds."""
    size_bytes = sum(partition.log.size_bytes for partition in topic.partitions)
    count = sum(partition.log.end - partition.log.start for partition in topic.partitions)
    return size_bytes / count if count else 0.0
