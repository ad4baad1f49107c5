"""Which brokers have which topics: what other brokers, polymq's or RocketMQ's, have registered with this name server.

In memory, as with RocketMQ: brokers register again every 30 s. Topics only ever come while a broker is there, because it may
tell of new ones alone; they go with it. A broker goes when its connection ends, when it says so, or after it has been silent for
too long. What this node has itself is not in here; `nameserver.py` puts both together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from polymq.protocols.rocketmq.registration import DataVersion
from polymq.rocketmq_limits import NAMED_BROKERS_MAX, NAMED_TOPICS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polymq.gateways.rocketmq.answers import Answer
    from polymq.protocols.rocketmq.registration import Registration, TopicConfig

__all__ = ["MASTER", "SILENCE_NS", "BrokerEntry", "Registry"]

MASTER: Final = 0
# Two minutes, as RocketMQ's name server: four registrations may be lost.
SILENCE_NS: Final = 120_000_000_000


@dataclass(slots=True, eq=False)
class BrokerEntry:
    """One broker. `channel`: the connection that it registered by."""

    name: str
    id: int
    cluster: str
    address: str
    ha_address: str
    channel: object
    heard_ns: int
    silence_ns: int
    version: DataVersion = DataVersion()  # noqa: RUF009 - frozen
    topics: dict[str, TopicConfig] = field(default_factory=dict)


class Registry:
    """Brokers by name and id, and where a topic is. Nothing grows beyond `brokers_max` and `topics_max` (topics of all brokers)."""

    def __init__(
        self, monotonic_ns: Callable[[], int], *, brokers_max: int = NAMED_BROKERS_MAX, topics_max: int = NAMED_TOPICS_MAX
    ) -> None:
        self.changes = 0  # how often brokers or topics have come or gone
        self.told: dict[str, tuple[object, Answer]] = {}  # lists of all topics, by namespace, and of which state they are
        self._monotonic_ns = monotonic_ns
        self._brokers_max = brokers_max
        self._topics_max = topics_max
        self._brokers: dict[tuple[str, int], BrokerEntry] = {}
        self._by_channel: dict[object, set[tuple[str, int]]] = {}
        self._by_name: dict[str, dict[int, str]] = {}
        self._masters: dict[str, dict[BrokerEntry, None]] = {}  # topic → who has it
        self._count = 0  # topics of all brokers

    @property
    def size(self) -> int:
        """How many registrations there are: topics, once for each broker that has them."""
        return self._count

    # -- what brokers say ------------------------------------------------------------------------------------------

    def register(self, told: BrokerEntry, registration: Registration) -> int | None:
        """Take a broker in, or hear from it again; how many of its topics found no room. None: it found none itself.

        Topics are those of masters. What was registered before stays.
        """
        key = (told.name, told.id)
        known = self._brokers.get(key)
        if known is not None and (known.address != told.address or known.cluster != told.cluster):
            # It has moved, and whatever was known of it may be wrong.
            self._remove(known)
            known = None
        if known is None:
            self._expire()
            if len(self._brokers) >= self._brokers_max:
                return None
            self.changes += 1
            known = self._brokers[key] = told
            self._by_name.setdefault(told.name, {})[told.id] = told.address
        else:
            self._leave_channel(known)
            known.channel, known.silence_ns, known.ha_address = told.channel, told.silence_ns, told.ha_address
        self._by_channel.setdefault(known.channel, set()).add(key)
        known.heard_ns = self._monotonic_ns()
        if known.id != MASTER:
            known.version = registration.version
            return 0
        refused = self._add_topics(known, registration.topics)
        known.version = registration.version
        return refused

    def _add_topics(self, entry: BrokerEntry, topics: Iterable[TopicConfig]) -> int:
        refused = 0
        for topic in topics:
            if topic.name not in entry.topics:
                if self._count >= self._topics_max:
                    refused += 1
                    continue
                self._count += 1
                self.changes += 1
                self._masters.setdefault(topic.name, {})[entry] = None
            entry.topics[topic.name] = topic
        return refused

    def heard(self, name: str, broker_id: int, address: str) -> DataVersion | None:
        """Note that a broker is alive; the version of its topics, None if it is not known (or is another one by now)."""
        entry = self._brokers.get((name, broker_id))
        if entry is None or entry.address != address:
            return None
        entry.heard_ns = self._monotonic_ns()
        return entry.version

    def unregister(self, name: str, broker_id: int, address: str) -> None:
        """Forget a broker, if it is the one that says so."""
        entry = self._brokers.get((name, broker_id))
        if entry is not None and entry.address == address:
            self._remove(entry)

    def disconnected(self, channel: object) -> None:
        """Forget who has registered by a connection that has ended."""
        for key in list(self._by_channel.get(channel, ())):
            self._remove(self._brokers[key])

    def delete_topic(self, topic: str) -> None:
        """Forget who has a topic, until they say so again."""
        self.changes += 1
        for entry in self._masters.pop(topic, ()):
            del entry.topics[topic]
            # Or it would go on saying what is known already.
            entry.version = DataVersion()
            self._count -= 1

    # -- what clients ask ------------------------------------------------------------------------------------------

    def masters(self, topic: str) -> list[BrokerEntry]:
        """List the masters that have a topic, by name."""
        found = [entry for entry in self._masters.get(topic, ()) if self._is_alive(entry)]
        return sorted(found, key=lambda entry: entry.name)

    def brokers(self) -> list[BrokerEntry]:
        """List every broker, by name and id."""
        return [entry for _, entry in sorted(self._brokers.items()) if self._is_alive(entry)]

    def addresses(self, name: str) -> Mapping[int, str]:
        """Give the addresses of all brokers of one name, by id: the master and its slaves."""
        return self._by_name.get(name, {})

    def some_topics(self, count_max: int, cluster: str = "") -> list[str]:
        """List topics that somebody has (in a cluster), at most so many."""
        if not cluster:
            return list(islice(self._masters, count_max))
        found: dict[str, None] = {}
        for entry in self.brokers():
            if entry.cluster == cluster and len(found) < count_max:
                found |= dict.fromkeys(entry.topics)
        return list(islice(found, count_max))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _is_alive(self, entry: BrokerEntry) -> bool:
        return self._monotonic_ns() - entry.heard_ns <= entry.silence_ns

    def _expire(self) -> None:
        for entry in [entry for entry in self._brokers.values() if not self._is_alive(entry)]:
            self._remove(entry)

    def _leave_channel(self, entry: BrokerEntry) -> None:
        keys = self._by_channel.get(entry.channel)
        if keys is not None:
            keys.discard((entry.name, entry.id))
            if not keys:
                del self._by_channel[entry.channel]

    def _remove(self, entry: BrokerEntry) -> None:
        self.changes += 1
        del self._brokers[entry.name, entry.id]
        addresses = self._by_name[entry.name]
        del addresses[entry.id]
        if not addresses:
            del self._by_name[entry.name]
        self._leave_channel(entry)
        for topic in entry.topics:
            masters = self._masters[topic]
            del masters[entry]
            if not masters:
                del self._masters[topic]
        self._count -= len(entry.topics)
        entry.topics = {}
