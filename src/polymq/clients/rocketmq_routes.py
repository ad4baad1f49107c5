"""Where the queues of a topic are: what a name server answers, as Java's clients understand it.

Queues are sorted as Java sorts them, because every member of a group divides the same list by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from polymq.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MASTER", "MessageQueue", "Route", "java_order"]

MASTER: Final = 0
_READABLE: Final = 4
_WRITABLE: Final = 2
# Of one topic, in all brokers: what claims to have more is no route, and each queue costs a task.
_QUEUES_MAX: Final = 65536


def java_order(text: str) -> bytes:
    """Return what sorts texts as Java's `compareTo` does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


@dataclass(frozen=True, slots=True)
class MessageQueue:
    """One queue of a topic: the messages in it have offsets 0, 1, 2, …"""

    topic: str
    broker: str
    queue_id: int

    def order(self) -> tuple[bytes, bytes, int]:
        """Return what sorts queues as Java does."""
        return java_order(self.topic), java_order(self.broker), self.queue_id

    def as_json(self) -> dict[str, object]:
        """Write it as lists of queues have it on the wire."""
        return {"brokerName": self.broker, "queueId": self.queue_id, "topic": self.topic}


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of a topic that may be written to and read from, and where their brokers are.

    `brokers` has the addresses of each broker by their ids: 0 is the master, others are its copies.
    """

    topic: str
    write_queues: tuple[MessageQueue, ...] = ()
    read_queues: tuple[MessageQueue, ...] = ()
    brokers: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    def address(self, broker: str, broker_id: int = MASTER) -> str | None:
        """Find a broker; one of its copies, or the master, when the one that is asked for is not known."""
        addresses = self.brokers.get(broker)
        if not addresses:
            return None
        return addresses.get(broker_id) or addresses.get(MASTER) or next(iter(addresses.values()))

    def for_topic(self, topic: str, queues_max: int) -> Route:
        """Make the route of a topic that is to be made like this one: at most so many queues in each broker."""
        queues = tuple(MessageQueue(topic, each.broker, each.queue_id) for each in self.write_queues if each.queue_id < queues_max)
        return Route(topic, queues, (), self.brokers)

    @classmethod
    def of(cls, topic: str, document: Mapping[str, Any]) -> Route:
        """Read the body of an answer to 105; raises RemoteProtocolError when it is no route."""
        try:
            brokers = {
                str(data["brokerName"]): {int(number): str(address) for number, address in data["brokerAddrs"].items()}
                for data in document.get("brokerDatas") or ()
            }
            found = sorted(document.get("queueDatas") or (), key=lambda data: java_order(str(data["brokerName"])))
            rows = [(str(each["brokerName"]), int(each["perm"]), int(each["readQueueNums"]), int(each["writeQueueNums"])) for each in found]
            ordered = _ordered(str(document.get("orderTopicConf") or ""))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RemoteProtocolError(f"a route that makes no sense: {error!r}") from error
        if sum(max(read, write) for _, _, read, write in rows) > _QUEUES_MAX:
            raise RemoteProtocolError(f"a route of more than {_QUEUES_MAX} queues")
        reads = [MessageQueue(topic, name, number) for name, perm, read, _ in rows if perm & _READABLE for number in range(read)]
        writes = ordered or [
            (name, write) for name, perm, _, write in rows if perm & _WRITABLE and MASTER in brokers.get(name, {})
        ]
        if sum(count for _, count in writes) > _QUEUES_MAX:
            raise RemoteProtocolError(f"a route of more than {_QUEUES_MAX} queues")
        write_queues = tuple(MessageQueue(topic, name, number) for name, count in writes for number in range(count))
        return cls(topic, write_queues, tuple(sorted(set(reads), key=MessageQueue.order)), brokers)


def _ordered(configured: str) -> list[tuple[str, int]]:
    """Read `broker-a:4;broker-b:4`, which fixes the queues of a topic whose order counts even while a broker is away."""
    parts = [part.rpartition(":") for part in configured.split(";") if part]
    return [(name, int(count)) for name, _, count in parts]
