"""A live group: everybody who is connected gets everything, from now on; nothing is kept about it on disk.

A consumer that cannot keep up is not waited for: its place in the log is its own, and it goes on reading from there
as long as the log has it; what retention has dropped meanwhile it never sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq import limits
from polymq.core.group import Delivery, GroupKind, Subscription

if TYPE_CHECKING:
    from polymq.core.kernel import Kernel
    from polymq.core.ports import Listener, Reader
    from polymq.core.topic import Partition, Topic

__all__ = ["LiveGroup"]


class LiveGroup:
    """Fan-out of one topic to whoever is connected."""

    kind = GroupKind.LIVE
    ephemeral = True

    def __init__(self, kernel: Kernel, topic: Topic, name: str, *, group_id: int) -> None:
        self.id = group_id
        self.name = name
        self.topic = topic
        self.paused = False
        self.consumers: list[Subscription] = []
        self._kernel = kernel
        self._owners = 0
        self._readers: dict[Subscription, list[Reader]] = {}

    def subscribe(self, listener: Listener, *, lease_ns: int, sample_percent: int) -> Subscription:
        """Add a consumer that starts at the end of every partition. Leases mean nothing here."""
        self._owners += 1
        subscription = Subscription(self, listener, owner=self._owners, lease_ns=lease_ns, sample_percent=sample_percent)
        subscription.credit = limits.SLICE_MESSAGES_MAX
        self.consumers.append(subscription)
        self._readers[subscription] = [partition.log.reader(partition.log.end) for partition in self.topic.partitions]
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a consumer."""
        if subscription.open:
            subscription.open = False
            self.consumers.remove(subscription)
            del self._readers[subscription]

    def dispatch(self, deliveries: list[Delivery]) -> bool:
        """Hand every consumer what it has not seen, up to a slice per partition; True if there is more."""
        more = False
        if self.paused:
            return more
        for consumer in self.consumers:
            if consumer.held:
                continue
            for partition, reader in zip(self.topic.partitions, self._readers[consumer], strict=True):
                if reader.offset < partition.log.start:
                    reader.seek(partition.log.start)
                count = min(limits.SLICE_MESSAGES_MAX, partition.log.readable - reader.offset)
                piece = reader.take(count, limits.SLICE_SIZE_BYTES_MAX) if count > 0 else None
                if piece is not None:
                    consumer.delivered += piece.count
                    deliveries.append(Delivery(consumer, piece, 1))
                    more = more or reader.offset < partition.log.readable
                elif reader.waiting:
                    self._kernel.wait_for_disk(self)
        return more

    def expire(self, subscription: Subscription, now_ns: int) -> None:
        """Do nothing: a live group has no leases."""

    def released(self, partition: Partition, base_offset: int, runs: bytes) -> None:
        """Do nothing: they are read like all others."""

    def empty(self) -> None:
        """Let every consumer go on at the end of the log."""
        for readers in self._readers.values():
            for partition, reader in zip(self.topic.partitions, readers, strict=True):
                reader.seek(partition.log.readable)

    def grown(self, count: int) -> None:
        """Show every consumer the new partitions as well."""
        for readers in self._readers.values():
            readers += [partition.log.reader(0) for partition in self.topic.partitions[-count:]]

    def first_needed(self, partition_index: int) -> int:
        """Hold nothing back from retention."""
        return self.topic.partitions[partition_index].log.end
