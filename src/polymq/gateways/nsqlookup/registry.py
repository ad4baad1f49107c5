"""Who has which topics and channels: the directory itself, in memory.

A name is registered until somebody deletes it, whether or not a node has it; a producer is a node under a topic or a
channel. What looks odd follows nsqlookupd 1.3.0 (registration_db.go): a name outlives its producers unless it is
ephemeral and the last of them says goodbye, and `*` stands for every topic where nothing checks the name. What does
not: an operator who deletes a name does not hide what this process serves. A node elsewhere whose registration is
deleted stays unknown until it connects anew, and this process never would; so its registration stays, and the name goes
as soon as it gives the name up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from polymq import limits
from polymq.errors import Refusal, RefusalCode
from polymq.protocols.nsq.names import EPHEMERAL_SUFFIX
from polymq.protocols.nsqlookup.settings import LookupSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from polymq.protocols.nsqlookup.identify import Identity

__all__ = ["Node", "Producer", "Registry"]

_EPHEMERAL: Final = EPHEMERAL_SUFFIX.decode("ascii")
_EVERY: Final = "*"


@dataclass(slots=True, eq=False)
class Node:
    """Somebody who has topics. `heard_ns` is monotonic; None: it is this process, which is always there."""

    remote_address: str
    identity: Identity
    heard_ns: int | None
    # Where it is registered: a connection that ends must not look through everything.
    topics: dict[str, None] = field(default_factory=dict)
    channels: dict[tuple[str, str], None] = field(default_factory=dict)


@dataclass(slots=True)
class Producer:
    """A node under one topic or channel. `tombstoned_ns` is monotonic: an operator wants it forgotten for a while."""

    node: Node
    tombstoned_ns: int | None = None


Producers = dict[Node, Producer]
Value = TypeVar("Value")


class Registry:
    """Topics, channels and nodes. Raises Refusal(LIMIT_REACHED) instead of growing above `registrations_max`."""

    def __init__(
        self,
        monotonic_ns: Callable[[], int],
        settings: LookupSettings | None = None,
        *,
        registrations_max: int = limits.LOOKUP_REGISTRATIONS_MAX,
    ) -> None:
        self.registrations_max = registrations_max
        self._monotonic_ns = monotonic_ns
        self._settings = settings or LookupSettings()
        self._nodes: dict[Node, None] = {}
        self._topics: dict[str, Producers] = {}
        self._channels: dict[str, dict[str, Producers]] = {}
        # Deleted by an operator, but this process has them still: topics (with "") and channels. At most what it has.
        self._withdrawn: set[tuple[str, str]] = set()
        self._registrations = 0  # names and producers together

    @property
    def size(self) -> int:
        """How many registrations there are: names, and nodes that have them."""
        return self._registrations

    # -- what nodes say --------------------------------------------------------------------------------------------

    def connect(self, node: Node) -> None:
        """Take a node in."""
        self._nodes[node] = None

    def disconnect(self, node: Node) -> None:
        """Forget a node; its topics and channels stay, as names."""
        self._nodes.pop(node, None)
        for topic, channel in list(node.channels):
            self._remove_from_channel(node, topic, channel)
        for topic in list(node.topics):
            self._remove_from_topic(node, topic)

    def heard(self, node: Node) -> None:
        """Note that a node is alive."""
        node.heard_ns = self._monotonic_ns()

    def register(self, node: Node, topic: str, channel: str) -> None:
        """Note that a node has a topic, and a channel of it unless that is empty."""
        self._withdrawn -= {(topic, channel), (topic, "")}
        if channel and (topic, channel) not in node.channels:
            producers = self._channel(topic, channel)
            self._count(1)
            producers[node] = Producer(node)
            node.channels[topic, channel] = None
        if topic not in node.topics:
            producers = self._topic(topic)
            self._count(1)
            producers[node] = Producer(node)
            node.topics[topic] = None

    def unregister(self, node: Node, topic: str, channel: str) -> None:
        """Note that a node has a channel no longer; without a channel, that it has neither the topic nor its channels."""
        if channel:
            self._remove_from_channel(node, topic, channel)
            if channel.endswith(_EPHEMERAL) and not self._channels.get(topic, {}).get(channel):
                self.delete_channel(topic, channel)
            return
        for known in list(self._channels.get(topic, ())):
            self._remove_from_channel(node, topic, known)
        self._remove_from_topic(node, topic)
        if topic.endswith(_EPHEMERAL) and not self._topics.get(topic):
            self._delete_topic(topic)

    # -- what operators say ----------------------------------------------------------------------------------------

    def create_topic(self, topic: str) -> None:
        """Register a topic's name."""
        self._withdrawn.discard((topic, ""))
        self._topic(topic)

    def create_channel(self, topic: str, channel: str) -> None:
        """Register the names of a channel and its topic."""
        self._withdrawn -= {(topic, channel), (topic, "")}
        self._channel(topic, channel)
        self._topic(topic)

    def delete_topic(self, topic: str) -> None:
        """Forget a topic and its channels, with their producers other than this process; `*` is all of them."""
        for found, channels in self._matching(self._channels, topic):
            for channel in list(channels):
                self.delete_channel(found, channel)
        for found, _ in self._matching(self._topics, topic):
            self._delete_topic(found)

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Forget a channel; whether it was known."""
        channels = self._channels.get(topic, {})
        producers = channels.get(channel)
        if producers is None:
            return False
        for node in self._take_others(producers):
            del node.channels[topic, channel]
        if producers:
            self._withdrawn.add((topic, channel))
            return True
        del channels[channel]
        if not channels:
            del self._channels[topic]
        self._withdrawn.discard((topic, channel))
        self._registrations -= 1
        return True

    def tombstone(self, topic: str, address: str) -> None:
        """Hide the nodes at `address` (broadcast address and HTTP port) from those who look for a topic, for a while."""
        for producer in self._producers(topic):
            identity = producer.node.identity
            if f"{identity.broadcast_address}:{identity.http_port}" == address:
                producer.tombstoned_ns = self._monotonic_ns()

    # -- what consumers ask ----------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """List every topic, sorted."""
        return sorted(self._topics)

    def channels(self, topic: str) -> list[str]:
        """List a topic's channels, sorted."""
        return sorted(channel for _, channels in self._matching(self._channels, topic) for channel in channels)

    def lookup(self, topic: str) -> list[Node] | None:
        """List the nodes that have a topic, are alive and not hidden; None if nobody ever spoke of it."""
        if not self._matching(self._topics, topic):
            return None
        shown = (producer.node for producer in self._producers(topic) if not self.is_tombstoned(producer))
        return self._seen(shown)

    def nodes(self) -> list[Node]:
        """List the nodes that are alive."""
        return self._seen(self._nodes)

    def topics_of(self, node: Node) -> list[tuple[str, bool]]:
        """List a node's topics, and for each whether it is hidden there."""
        return [(topic, self.is_tombstoned(self._topics[topic][node])) for topic in sorted(node.topics)]

    def registrations(self) -> Iterator[tuple[str, Iterable[Producer]]]:
        """Give everything that has producers, under nsqlookupd's own keys, sorted."""
        keys: dict[str, Iterable[Producer]] = {"client::": [Producer(node) for node in self._nodes]}
        keys |= {f"topic:{topic}:": producers.values() for topic, producers in self._topics.items()}
        for topic, channels in self._channels.items():
            keys |= {f"channel:{topic}:{channel}": producers.values() for channel, producers in channels.items()}
        return ((key, keys[key]) for key in sorted(keys) if keys[key])

    def is_tombstoned(self, producer: Producer) -> bool:
        """Whether a producer is hidden at the moment."""
        since_ns = producer.tombstoned_ns
        return since_ns is not None and self._monotonic_ns() - since_ns < self._settings.tombstone_lifetime_ns

    # -- inside ----------------------------------------------------------------------------------------------------

    def _seen(self, nodes: Iterable[Node]) -> list[Node]:
        """Leave out who has been silent for too long, and this process where it is connected to itself as well."""
        now_ns = self._monotonic_ns()
        timeout_ns = self._settings.inactive_producer_timeout_ns
        alive = [node for node in nodes if node.heard_ns is None or now_ns - node.heard_ns <= timeout_ns]
        others = {_door(node) for node in alive if node.heard_ns is not None}
        return [node for node in alive if node.heard_ns is not None or _door(node) not in others]

    def _producers(self, topic: str) -> Iterable[Producer]:
        """Give each node's producer under a topic; with `*` one of each node."""
        if topic != _EVERY:
            return self._topics.get(topic, {}).values()
        found: Producers = {}
        for producers in self._topics.values():
            for node, producer in producers.items():
                found.setdefault(node, producer)
        return found.values()

    def _matching(self, names: dict[str, Value], topic: str) -> list[tuple[str, Value]]:
        if topic == _EVERY:
            return list(names.items())
        return [(topic, names[topic])] if topic in names else []

    def _count(self, more: int) -> None:
        if self._registrations + more > self.registrations_max:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"there are {self.registrations_max} registrations already")
        self._registrations += more

    def _topic(self, topic: str) -> Producers:
        producers = self._topics.get(topic)
        if producers is None:
            self._count(1)
            producers = self._topics[topic] = {}
        return producers

    def _channel(self, topic: str, channel: str) -> Producers:
        producers = self._channels.get(topic, {}).get(channel)
        if producers is None:
            self._count(1)
            producers = self._channels.setdefault(topic, {})[channel] = {}
        return producers

    def _delete_topic(self, topic: str) -> None:
        producers = self._topics.get(topic)
        if producers is None:
            return
        for node in self._take_others(producers):
            del node.topics[topic]
        if producers:
            self._withdrawn.add((topic, ""))
            return
        del self._topics[topic]
        self._withdrawn.discard((topic, ""))
        self._registrations -= 1

    def _take_others(self, producers: Producers) -> list[Node]:
        """Take out everybody but this process."""
        others = [node for node in producers if node.heard_ns is not None]
        for node in others:
            del producers[node]
        self._registrations -= len(others)
        return others

    def _remove_from_topic(self, node: Node, topic: str) -> None:
        if topic in node.topics:
            del node.topics[topic]
            del self._topics[topic][node]
            self._registrations -= 1
            if (topic, "") in self._withdrawn and not self._topics[topic]:
                self._delete_topic(topic)

    def _remove_from_channel(self, node: Node, topic: str, channel: str) -> None:
        if (topic, channel) in node.channels:
            del node.channels[topic, channel]
            del self._channels[topic][channel][node]
            self._registrations -= 1
            if (topic, channel) in self._withdrawn and not self._channels[topic][channel]:
                self.delete_channel(topic, channel)


def _door(node: Node) -> tuple[str, int]:
    return node.identity.broadcast_address, node.identity.tcp_port
