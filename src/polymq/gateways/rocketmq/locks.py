"""Orderly consumption: which member of a group has which queue for itself (requests 41 and 42).

A lock holds for a minute after it was asked for last; members ask again every 20 seconds, and work on for at most 30
without. So the lock of one whose connection is gone stays until it runs out: it may still be at work.

Source: RocketMQ 4.9.8, RebalanceLockManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.gateways.rocketmq.answers import Answer, RequestProblem
from polymq.gateways.rocketmq.joining import read_body, require_group
from polymq.protocols.rocketmq.bodies import LockBody, MessageQueue, encode_lock_reply, parse_lock_body
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.names import is_valid_topic
from polymq.rocketmq_limits import CLIENT_ID_SIZE_MAX, LOCKED_QUEUES_MAX, LOCKED_QUEUES_PER_REQUEST_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Request

__all__ = ["HANDLERS", "Locks"]

_HELD_NS: Final = 60_000_000_000
# Locks that have run out are looked for after so many new ones, or where there is no room; the latter once a second.
_SWEEP_AFTER: Final = 10_000
_SWEEP_NS: Final = 1_000_000_000


class Locks:
    """Queues that members have locked: (owner, end on the monotonic clock) by queue, for each group."""

    def __init__(self) -> None:
        self.count = 0
        self._groups: dict[str, dict[tuple[str, int], tuple[str, int]]] = {}
        self._fresh = 0
        self._swept_ns = 0

    def lock(self, group: str, owner: str, queues: Sequence[MessageQueue], now_ns: int) -> list[MessageQueue]:
        """Lock what is free or has been the owner's already; gives what is the owner's now."""
        crowded = self.count + len(queues) > LOCKED_QUEUES_MAX and now_ns - self._swept_ns >= _SWEEP_NS
        if crowded or self._fresh >= _SWEEP_AFTER:
            self._sweep(now_ns)
        held = self._groups.setdefault(group, {})
        locked = [queue for queue in queues if self._lock(held, owner, (queue.topic, queue.queue_id), now_ns)]
        if not held:
            del self._groups[group]
        return locked

    def _lock(self, held: dict[tuple[str, int], tuple[str, int]], owner: str, key: tuple[str, int], now_ns: int) -> bool:
        found = held.get(key)
        if found is None:
            if self.count >= LOCKED_QUEUES_MAX:
                return False
            self.count += 1
            self._fresh += 1
        elif found[0] != owner and now_ns < found[1]:
            return False
        held[key] = (owner, now_ns + _HELD_NS)
        return True

    def unlock(self, group: str, owner: str, queues: Sequence[MessageQueue]) -> None:
        """Give up what is the owner's."""
        held = self._groups.get(group, {})
        for queue in queues:
            key = (queue.topic, queue.queue_id)
            if key in held and held[key][0] == owner:
                del held[key]
                self.count -= 1
        if not held:
            self._groups.pop(group, None)

    def owner(self, group: str, topic: str, queue_id: int, now_ns: int) -> str | None:
        """Say who has a queue."""
        found = self._groups.get(group, {}).get((topic, queue_id))
        return found[0] if found is not None and now_ns < found[1] else None

    def _sweep(self, now_ns: int) -> None:
        """Forget what has run out. Cost: O(locks), at most once in so many new ones, or when there is no room."""
        self._fresh = 0
        self._swept_ns = now_ns
        for group, held in list(self._groups.items()):
            for key in [key for key, (_owner, end_ns) in held.items() if end_ns <= now_ns]:
                del held[key]
                self.count -= 1
            if not held:
                del self._groups[group]


def _read(client: RocketmqClient, request: Request) -> LockBody:
    """Read what is to be locked, and see that the group may be joined; raises RequestProblem, Refusal."""
    body = read_body(request, parse_lock_body)
    if not body.queues:
        return body
    if len(body.queues) > LOCKED_QUEUES_PER_REQUEST_MAX:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"more than {LOCKED_QUEUES_PER_REQUEST_MAX} queues in one request")
    if len(body.client_id) > CLIENT_ID_SIZE_MAX or not all(is_valid_topic(queue.topic) for queue in body.queues):
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, "that is no client's id, or no topic's name")
    require_group(client.session, body.group, {queue.topic for queue in body.queues})
    return body


def _lock(client: RocketmqClient, request: Request) -> Answer:
    body = _read(client, request)
    house = client.house
    queues: Sequence[MessageQueue] = body.queues
    if house.locks.count + len(queues) > LOCKED_QUEUES_MAX // 2:
        # A real broker locks what is not there as well; here that leaves room for what is.
        counts = {topic: house.topics.queues(client.session, topic) or 0 for topic in {queue.topic for queue in queues}}
        queues = [queue for queue in queues if queue.queue_id < counts[queue.topic]]
    locked = house.locks.lock(body.group, body.client_id, queues, house.clock.monotonic_ns())
    return Answer(body=encode_lock_reply(tuple(locked)))


def _unlock(client: RocketmqClient, request: Request) -> Answer:
    body = _read(client, request)
    client.house.locks.unlock(body.group, body.client_id, body.queues)
    return Answer()


HANDLERS: Final[dict[int, Handler]] = {RequestCode.LOCK_BATCH_MQ: _lock, RequestCode.UNLOCK_BATCH_MQ: _unlock}
