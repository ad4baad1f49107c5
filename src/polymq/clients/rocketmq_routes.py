"""Where the queues of a topic are: what a name server answers, as Java's clients understand it.

Queues are sorted as Java sorts them, because every member of a group divides the same list by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.bodies import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.protocols.rocketmq.bodies import RouteData

__all__ = ["MASTER", "MessageQueue", "Route", "java_order", "queue_order"]

MASTER: Final = 0
_READABLE: Final = 4
_WRITABLE: Final = 2
# Of one topic, in all brokers: what claims to have more is no route, and each queue costs a task.
_QUEUES_MAX: Final = 65536


def java_order(text: str) -> bytes:
    """Return what sorts texts as Java's `compareTo` does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Return what sorts queues as Java does."""
    return java_order(queue.topic), java_order(queue.broker_name), queue.queue_id


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of a topic that may be written to and read from, and where their brokers are.

    `brokers` has the addresses of each broker by their ids: 0 is the master, others are its copies.
    """

    topic: str
    write_queues: tuple[MessageQueue, ...] = ()
    read_queues: tuple[MessageQueue, ...] = ()
    brokers: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    def address(self, broker_name: str, broker_id: int = MASTER) -> str | None:
        """Find a broker; the master, or one of its copies, when the one that is asked for is not known."""
        addresses = self.brokers.get(broker_name)
        if not addresses:
            return None
        return addresses.get(broker_id) or addresses.get(MASTER) or next(iter(addresses.values()))

    def for_topic(self, topic: str, queues_max: int) -> Route:
        """Make the route of a topic that is to be made like this one: at most so many queues in each broker."""
        queues = tuple(MessageQueue(topic, each.broker_name, each.queue_id) for each in self.write_queues if each.queue_id < queues_max)
        return Route(topic, queues, (), self.brokers)

    @classmethod
    def of(cls, topic: str, data: RouteData) -> Route:
        """Understand a name server's answer; raises RemoteProtocolError when it cannot be meant."""
        brokers = {each.broker_name: dict(each.addresses) for each in data.brokers}
        found = sorted(data.queues, key=lambda each: java_order(each.broker_name))
        reads = [(each.broker_name, each.read_queues) for each in found if each.permission & _READABLE]
        writes = _ordered(data.order_conf) or [
            (each.broker_name, each.write_queues)
            for each in found
            if each.permission & _WRITABLE and MASTER in brokers.get(each.broker_name, {})
        ]
        if max(sum(count for _, count in reads), sum(count for _, count in writes)) > _QUEUES_MAX:
            raise RemoteProtocolError(f"a route of more than {_QUEUES_MAX} queues")
        write_queues = tuple(MessageQueue(topic, name, number) for name, count in writes for number in range(count))
        read_queues = {MessageQueue(topic, name, number) for name, count in reads for number in range(count)}
        return cls(topic, write_queues, tuple(sorted(read_queues, key=queue_order)), brokers)


def _ordered(configured: str | None) -> list[tuple[str, int]]:
    """Read `broker-a:4;broker-b:4`, which fixes the queues of a topic whose order counts even while a broker is away."""
    try:
        return [(name, int(count)) for name, _, count in (part.rpartition(":") for part in (configured or "").split(";") if part)]
    except ValueError as error:
        raise RemoteProtocolError(f"a route whose order makes no sense: {configured!r}") from error
