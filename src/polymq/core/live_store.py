"""What is published live and kept as well: messages whose name is a topic's, or matches a pattern of the configuration.

An `Archive` is a keeper (`interest/targets.py`) among those who listen in one namespace, so what nobody wants to keep costs
nothing here. A pass over a batch is one append per topic. This file knows no protocol: what a record of a message with more than a
body looks like is a `LiveCodec`'s to say. Read next: `live_outlet.py`, the other way.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from polymq import limits
from polymq.core.bounds import admit
from polymq.core.interest.names import has_wildcards, matches, tokens_of_pattern
from polymq.core.interest.targets import KEEPS_LOCAL, Target
from polymq.core.live import Stored
from polymq.core.policies import NO_TOPIC_POLICY
from polymq.core.statistics import Family, Kind, Sample
from polymq.errors import Refusal, RefusalCode
from polymq.wire.live import COLUMNS, KEPT, SPARE
from polymq.wire.live_sorting import Sorter, has_negative_tag

if TYPE_CHECKING:
    from polymq.core.broker import Broker
    from polymq.core.group import GroupKind
    from polymq.core.interest.targets import Entry
    from polymq.core.live import LiveSpace
    from polymq.core.ports import Ticket
    from polymq.core.topic import Topic
    from polymq.wire.batch import Message
    from polymq.wire.live import LiveBatch, LiveMessage
    from polymq.wire.slices import MessageBatch, Slice

__all__ = ["Archive", "Archives", "Capture", "LiveCodec", "is_live_name"]

# The tag of entries of patterns: which topic it is, is to be found out.
_UNKNOWN: Final = -1
_BLANK: Final = 32
_OF_THE_STORE: Final = (RefusalCode.STORE_FULL, RefusalCode.STORE_FAILED)

log = logging.getLogger(__name__)


class LiveCodec(Protocol):
    """What a protocol's live messages are in the log. `origin` is the protocol's number there."""

    @property
    def origin(self) -> int: ...
    def encode(self, batch: LiveBatch, indexes: memoryview, first: int, count: int) -> memoryview:
        """Write records of the messages `indexes[first : first + count]`, some of which have headers or a reply; raises Refusal."""

    def live(self, name: bytes, message: Message) -> LiveMessage | None:
        """Make a live message of a stored one, whoever has published it; its own come back byte by byte. None: it cannot be one."""

    def room(self, slice_: Slice, /) -> int:
        """Say how much room `unfold` needs at most, behind the name."""

    def unfold(
        self, target: bytearray, rows: memoryview, slice_: Slice, origin: int, name_size: int, /
    ) -> tuple[int, int, int, list[tuple[int, int, int]]]:
        """Make rows of stored messages that others have published, with their payloads behind the name that `target` begins with.

        `origin` is that of the batch in which the slice begins. Gives the number of rows, where the payloads end, the origin of the last
        batch, and (row, where the record lies, the time of its batch) of those that `live` is to be asked for.
        """


@dataclass(frozen=True, slots=True)
class Capture:
    """What is to be kept. `patterns`: names that become topics when they come; topics that are there are kept anyway.

    keeps:      KEEPS_LOCAL, KEEPS_ROUTED or both
    topics_max: no topic is made for a pattern once its namespace has so many that patterns mean
    private:    beginnings of names that no pattern means that does not begin so itself
    never:      patterns of names that no pattern means
    age_ns:     messages of topics that patterns mean stay so long while no group is there to need them; 0: as long as there is room
    """

    patterns: tuple[bytes, ...] = ()
    keeps: int = KEEPS_LOCAL
    topics_max: int = limits.CAPTURED_TOPICS_MAX
    private: tuple[bytes, ...] = ()
    never: tuple[bytes, ...] = ()
    age_ns: int = 0

    def wants(self, name: bytes) -> bool:
        """Say whether a topic is to be made for a name."""
        if any(matches(pattern, name) for pattern in self.never):
            return False
        hidden = name.startswith(self.private)
        return any(matches(pattern, name) for pattern in self.patterns if not hidden or pattern.startswith(self.private))


class Archive:
    """Keeps what belongs to topics of one namespace. Statistics are in `Archives`."""

    def __init__(self, broker: Broker, space: LiveSpace, codec: LiveCodec, capture: Capture) -> None:
        self.target = Target(keeps=capture.keeps, makes=self._makes if capture.patterns else None)
        self._full = capture.topics_max == 0  # or the last topic that was to be made could not be
        self._stuck = False  # no topic can be made, which has been logged
        self.stored_count = 0
        self.refused_count = 0
        self._broker = broker
        self._space = space
        self._codec = codec
        self._capture = capture
        self._sorter = Sorter()
        self._topics: list[Topic | None] = []
        self._free: list[int] = []
        self._entries: dict[bytes, Entry] = {}
        self._ailing: set[str] = set()  # those whose last messages could not be stored, which has been logged
        self._captured_count = 0  # topics that patterns mean, whoever has made them
        space.inner.append(self.target)
        for pattern in capture.patterns:
            space.listen(pattern, self.target, tag=_UNKNOWN)

    # -- what there is to keep -------------------------------------------------------------------------------------

    def add(self, topic: Topic) -> None:
        """Keep what comes for a topic, if anything can: not every topic's name can be a live message's."""
        name = topic.name.encode()
        if not is_live_name(name):
            return
        if not self._free:
            self._free.append(len(self._topics))
            self._topics.append(None)
        tag = self._free[-1]
        try:
            entry = self._space.listen(name, self.target, tag=tag)
        except Refusal as refusal:
            log.warning("live messages of topic %s are not stored: %s", topic.name, refusal)
            return
        self._free.pop()
        self._topics[tag] = topic
        self._entries[name] = entry
        self._captured_count += self._capture.wants(name)

    def remove(self, topic: str) -> None:
        """Keep nothing more for a topic."""
        entry = self._entries.pop(topic.encode(), None)
        if entry is not None:
            self._ailing.discard(topic)
            self._captured_count -= self._capture.wants(topic.encode())
            self._topics[entry.tag] = None
            self._free.append(entry.tag)
            self._space.leave(entry)

    # -- keeping ---------------------------------------------------------------------------------------------------

    def store(self, batch: LiveBatch) -> Stored:
        """Append the target's pairs of a batch to their topics, and clear them.

        What cannot be stored is told, and is marked as stored no longer; the rest is.
        """
        target, stored = self.target, Stored()
        count = target.pair_count
        pairs = target.pairs
        if has_negative_tag(pairs, count):
            count = self._name_topics(batch, count, stored)
        groups = self._sorter.sort(batch, pairs, count) if count else []
        for tag, first, group_count, size_bytes, rich in groups:
            topic = self._topics[tag]
            assert topic is not None
            try:
                if rich:
                    self._append_rich(topic, batch, (first, group_count, size_bytes), stored)
                else:
                    self._append(topic, self._sorter.batch(batch, first, group_count, size_bytes), stored)
            except Refusal as refusal:
                if topic.name not in self._ailing:
                    self._ailing.add(topic.name)
                    log.warning("live messages of topic %s are not stored any more: %s", topic.name, refusal)
                self._refuse(batch, self._sorter.places().tolist()[first : first + group_count], refusal, stored)
            else:
                self.stored_count += group_count
                if self._ailing and topic.name in self._ailing:
                    self._ailing.remove(topic.name)
                    log.warning("live messages of topic %s are stored again; see polymq_live_refused_messages_total", topic.name)
        target.clear()
        return stored

    def _append(self, topic: Topic, batch: MessageBatch, stored: Stored) -> None:
        """Append bodies; raises Refusal."""
        kernel = self._broker.kernel
        if topic.policy is not NO_TOPIC_POLICY:
            admit(topic, messages=batch.count, size_bytes=batch.size_bytes)
        partition = topic.partitions[0] if len(topic.partitions) == 1 else topic.pick()
        self._note(
            topic, partition.append(batch, wall_ns=kernel.wall_ns(), origin=self._codec.origin), batch.count, batch.size_bytes, stored
        )

    def _append_rich(self, topic: Topic, batch: LiveBatch, group: tuple[int, int, int], stored: Stored) -> None:
        """Append messages of which some have more than a body, as one stored batch; raises Refusal."""
        first, count, size_bytes = group
        if topic.policy is not NO_TOPIC_POLICY:
            admit(topic, messages=count, size_bytes=size_bytes)
        partition = topic.pick()
        records = self._codec.encode(batch, self._sorter.places(), first, count)
        time_ns = max(self._broker.kernel.wall_ns(), partition.last_time_ns, partition.log.last_time_ns)
        ticket = partition.append_records(records, count, time_ns=time_ns, origin=self._codec.origin)
        self._note(topic, ticket, count, size_bytes, stored)

    def _note(self, topic: Topic, ticket: Ticket, count: int, size_bytes: int, stored: Stored) -> None:
        """Count what was appended, and let the topic's groups have it."""
        topic.message_count += count
        topic.message_bytes += size_bytes
        self._broker.kernel.fresh[topic] = None
        stored.tickets.append(ticket)

    def _refuse(self, batch: LiveBatch, indexes: list[int], refusal: Refusal, stored: Stored) -> None:
        """Note that some messages of one name are not stored."""
        self.refused_count += len(indexes)
        for index in indexes:
            batch.rows[COLUMNS * index + SPARE] &= ~KEPT
        # What the store says of its files is for the log, and no publisher's business.
        stored.refuse(batch.subject(indexes[0]), refusal.code.value if refusal.code in _OF_THE_STORE else str(refusal))

    def _name_topics(self, batch: LiveBatch, count: int, stored: Stored) -> int:
        """Find the topics of messages that only a pattern has matched, made if they are not there; gives how many pairs are left."""
        pairs = self.target.pairs
        left = 0
        known: dict[bytes, int | None] = {}
        for place in range(count):
            index, tag = pairs[2 * place], pairs[2 * place + 1]
            if tag == _UNKNOWN:
                name = batch.subject(index)
                if name not in known:
                    known[name] = self._make(name, batch, index, stored)
                elif known[name] is None and self._capture.wants(name):
                    self.refused_count += 1
                found = known[name]
                if found is None:
                    batch.rows[COLUMNS * index + SPARE] &= ~KEPT
                    continue
                tag = found
            pairs[2 * left], pairs[2 * left + 1] = index, tag
            left += 1
        return left

    def _makes(self, name: bytes) -> bool:
        """Say whether a topic would be made for a name."""
        return not self._full and name not in self._entries and len(name) <= limits.NAME_SIZE_BYTES_MAX and self._capture.wants(name)

    def _make(self, name: bytes, batch: LiveBatch, index: int, stored: Stored) -> int | None:
        """Make the topic of a name, and give its tag; None if there cannot be one."""
        if not self._capture.wants(name):
            return None
        try:
            self._make_topic(name)
        except Refusal as refusal:
            self._full = refusal.code is RefusalCode.LIMIT_REACHED
            if refusal.code in _OF_THE_STORE and not self._stuck:
                self._stuck = True
                log.warning("no topics can be made for what is captured: %s", refusal)
            self._refuse(batch, [index], refusal, stored)
            return None
        self._full = False
        if self._stuck:
            self._stuck = False
            log.warning("topics are made again for what is captured")
        entry = self._entries.get(name)
        if entry is None:
            self._refuse(batch, [index], Refusal(RefusalCode.LIMIT_REACHED, "too many patterns are listened to"), stored)
            return None
        return entry.tag

    def _make_topic(self, name: bytes) -> None:
        """Make a topic: followers are told, `add` among them. One partition: what is published in order stays so. Raises Refusal."""
        broker = self._broker
        if len(name) > limits.NAME_SIZE_BYTES_MAX:
            raise Refusal(RefusalCode.TOPIC_NAME_INVALID, f"a topic's name may have {limits.NAME_SIZE_BYTES_MAX} bytes")
        if not is_live_name(name):
            raise Refusal(RefusalCode.TOPIC_NAME_INVALID, "no topic can have this name")
        if self._captured_count >= self._capture.topics_max:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"there are {self._captured_count} topics of captured subjects already")
        if len(broker.catalogue.topics) >= broker.settings.topics_max:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"there are {len(broker.catalogue.topics)} topics already")
        sync = broker.settings.sync
        broker.catalogue.create_topic(self._space.namespace, name.decode(), partitions=1, sync=sync, ephemeral=False)


class Archives:
    """An archive for every namespace that has topics or live messages, and their statistics. Follows the catalogue."""

    def __init__(self, broker: Broker, codec: LiveCodec, capture: Capture) -> None:
        self._broker = broker
        self._codec = codec
        self._capture = capture
        self._archives: dict[str, Archive] = {}
        broker.live.furnishers.append(self._furnish)
        for space in list(broker.live.spaces.values()):
            self._furnish(space)
        broker.follow(self)
        broker.tell(self)
        if capture.age_ns:
            broker.unclaimed_age_ns = self._unclaimed_age_ns
        self._register()

    def _unclaimed_age_ns(self, topic: Topic) -> int:
        """Say how long messages of a topic stay that nobody consumes: of those that are captured, as the configuration says."""
        name = topic.name.encode()
        captured = not topic.namespace.startswith("$") and self._capture.wants(name) and is_live_name(name)
        return self._capture.age_ns if captured else 0

    def _furnish(self, space: LiveSpace) -> None:
        """Give a namespace its archive; what the configuration captures it captures in all, but for those of servers' own."""
        capture = self._capture
        if space.namespace.startswith("$"):
            capture = Capture((), capture.keeps, capture.topics_max, capture.private)
        space.archive = self._archives[space.namespace] = Archive(self._broker, space, self._codec, capture)

    def topic_created(self, namespace: str, topic: str) -> None:
        """Keep what comes for it from now on."""
        space = self._broker.live.space(namespace)
        self._archives[space.namespace].add(self._broker.catalogue.topics[namespace, topic])

    def topic_deleted(self, namespace: str, topic: str) -> None:
        """Keep nothing more for it."""
        self._archives[namespace].remove(topic)

    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Groups change nothing."""

    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Groups change nothing."""

    def _register(self) -> None:
        def register(name: str, text: str, attribute: str) -> None:
            def collect() -> list[Sample]:
                return [Sample({"namespace": name}, getattr(archive, attribute)) for name, archive in list(self._archives.items())]

            self._broker.statistics.register(Family(name, Kind.COUNTER, text, collect))

        register("polymq_live_stored_messages_total", "Live messages that were stored as well.", "stored_count")
        register("polymq_live_refused_messages_total", "Live messages that were to be stored, and could not be.", "refused_count")


def is_live_name(name: bytes) -> bool:
    """Say whether a live message can have a topic's name: UTF-8 without blanks and wildcards."""
    try:
        tokens = tokens_of_pattern(name)
        name.decode()
    except (Refusal, UnicodeDecodeError):
        return False
    return not has_wildcards(tokens) and not any(byte <= _BLANK for byte in name)
