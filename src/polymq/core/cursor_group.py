"""A cursor group: its consumers read from an offset and commit an offset; the log does the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.core import journal_entries
from polymq.core.group import Delivery, GroupKind, Subscription
from polymq.errors import Refusal, RefusalCode
from polymq.limits import OFFSET_MAX

if TYPE_CHECKING:
    from polymq.core.kernel import Kernel
    from polymq.core.ports import Listener
    from polymq.core.topic import Partition, Topic

__all__ = ["NOT_COMMITTED", "CursorGroup"]

# In the place of an offset: nobody has committed one for this partition.
NOT_COMMITTED: Final = -1


class CursorGroup:
    """One committed offset per partition. Its consumers pull; nothing is handed out by itself."""

    kind = GroupKind.CURSOR
    ephemeral = False

    def __init__(self, kernel: Kernel, topic: Topic, name: str, *, group_id: int, starts: list[int]) -> None:
        self.id = group_id
        self.name = name
        self.topic = topic
        self.paused = False
        self.consumers: list[Subscription] = []
        self.committed = list(starts)
        self._kernel = kernel
        self._owners = 0

    def commit(self, partition_index: int, offset: int, *, ahead: bool = False) -> None:
        """Note where the group goes on, or NOT_COMMITTED; raises Refusal if that is outside the log. Going back is allowed.

        `ahead`: so is going on behind its end, which is kept until a restart finds the log shorter than that.
        """
        if offset == self.committed[partition_index]:
            return
        log = self.topic.partitions[partition_index].log
        if offset != NOT_COMMITTED and not log.start <= offset <= (OFFSET_MAX if ahead else log.end):
            raise Refusal(RefusalCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is outside {log.start} … {log.end}")
        self.committed[partition_index] = offset
        self._kernel.journal(journal_entries.cursor(self.id, log.number, offset))

    def subscribe(self, listener: Listener, *, lease_ns: int, sample_percent: int) -> Subscription:
        """Register a consumer, so that it is counted and told when the topic goes."""
        self._owners += 1
        subscription = Subscription(self, listener, owner=self._owners, lease_ns=lease_ns, sample_percent=sample_percent)
        self.consumers.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a consumer."""
        if subscription.open:
            subscription.open = False
            self.consumers.remove(subscription)

    def dispatch(self, deliveries: list[Delivery]) -> bool:
        """Hand out nothing."""
        return False

    def expire(self, subscription: Subscription, now_ns: int) -> None:
        """Do nothing: a cursor group has no leases."""

    def released(self, partition: Partition, base_offset: int, runs: bytes) -> None:
        """Do nothing: they are read like all others."""

    def empty(self) -> None:
        """Commit the end of every partition."""
        for partition in self.topic.partitions:
            self.commit(partition.index, partition.log.readable)

    def first_needed(self, partition_index: int) -> int:
        """Give the committed offset; while there is none everything is kept."""
        return max(self.committed[partition_index], 0)

    def grown(self, count: int) -> None:
        """Take note of new partitions: nothing is committed for them."""
        self.committed += [NOT_COMMITTED] * count
