"""Who of a group reads which queues. Every member computes it by itself, so it must be what Java computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from polymq.clients.rocketmq_routes import java_order, queue_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.clients.rocketmq_routes import MessageQueue

__all__ = ["Allocation", "allocate_averagely", "allocate_in_circle"]


class Allocation(Protocol):
    """How the queues of a topic are divided: every member of a group must have the same."""

    def __call__(self, client_id: str, client_ids: Sequence[str], queues: Sequence[MessageQueue], /) -> list[MessageQueue]:
        """Say which queues this client reads."""


def _sorted(client_ids: Sequence[str], queues: Sequence[MessageQueue]) -> tuple[list[str], list[MessageQueue]]:
    return sorted(client_ids, key=java_order), sorted(queues, key=queue_order)


def allocate_averagely(client_id: str, client_ids: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Give each member neighbouring queues, the first ones one more where they do not divide evenly.

    As Java's AllocateMessageQueueAveragely, the default of its clients. A client that is not a member gets none.
    """
    members, rows = _sorted(client_ids, queues)
    if client_id not in members:
        return []
    index = members.index(client_id)
    share, left = divmod(len(rows), len(members))
    start = index * share + min(index, left)
    return rows[start : start + share + (index < left)]


def allocate_in_circle(client_id: str, client_ids: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Deal the queues out like cards, as Java's AllocateMessageQueueAveragelyByCircle."""
    members, rows = _sorted(client_ids, queues)
    if client_id not in members:
        return []
    return rows[members.index(client_id) :: len(members)]
