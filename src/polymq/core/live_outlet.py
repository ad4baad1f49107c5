"""What others publish to a topic reaches those who listen live to messages of its name: after the commit, as readers see it.

What came in live is passed over: whoever listened has had it. While nobody listens to a topic's name nothing is read for it
and nothing is known; who begins to listen gets what is published from then on. Read next: `live_store.py`, the other way.
"""

from __future__ import annotations

import logging
from array import array
from itertools import islice
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core.live_store import is_live_name
from polymq.wire.left_out import UNHEARD, left_out
from polymq.wire.live import COLUMNS, HEADER_SIZE, PAYLOAD_AT, PAYLOAD_SIZE, REPLY_AT, REPLY_SIZE, LiveBatch
from polymq.wire.records import read_messages

if TYPE_CHECKING:
    from polymq.core.broker import Broker
    from polymq.core.live import LiveSpace
    from polymq.core.live_store import LiveCodec
    from polymq.core.ports import Reader
    from polymq.core.topic import Partition, Topic
    from polymq.wire.live import LiveMessage
    from polymq.wire.slices import Slice

__all__ = ["Outlet"]

_NO_ORIGIN: Final = -1
# Topics among which one is looked for that can be forgotten.
_LOOKED_AT_MAX: Final = 16

log = logging.getLogger(__name__)


class _Place:
    """How far one partition has been shown. `origin` is that of the batch that is being read."""

    __slots__ = ("origin", "partition", "reader")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.reader: Reader = partition.log.reader(partition.log.readable)
        self.origin = _NO_ORIGIN

    @property
    def is_behind(self) -> bool:
        """Whether there is something to read now."""
        return self.reader.offset < self.partition.log.readable


class Outlet:
    """Called by the broker in each turn: `note` before the commit, `show` when readers see what was committed."""

    def __init__(self, broker: Broker, codec: LiveCodec, counts: array[int] | None = None) -> None:
        self.shown_count = 0
        # What those who listen do not hear is counted here (`wire/left_out.py`).
        self.left_out = left_out() if counts is None else counts
        self._broker = broker
        self._codec = codec
        self._places: dict[Topic, list[_Place]] = {}
        self._behind: dict[Topic, None] = {}

    @property
    def is_busy(self) -> bool:
        """Whether more could be shown at once."""
        return any(place.is_behind and not place.reader.waiting for topic in self._behind for place in self._places[topic])

    def note(self) -> None:
        """Remember where those topics end that somebody listens to, and to which something is being appended."""
        live = self._broker.live
        for topic in self._broker.kernel.fresh:
            space = live.spaces.get(topic.namespace)
            if space is None or not space.interest.count or not space.interest.has(topic.name.encode()):
                self._forget(topic)
                continue
            if topic not in self._places:
                if not is_live_name(topic.name.encode()):
                    continue
                self._make_room()
                self._places[topic] = [_Place(partition) for partition in topic.partitions]
            places = self._places[topic]
            if len(places) < len(topic.partitions):
                places += [_Place(partition) for partition in topic.partitions[len(places) :]]
            self._behind[topic] = None

    def _make_room(self) -> None:
        """Forget a topic of which all has been shown, if there are many: where it ends is found again. If there is none, one is not heard."""
        if len(self._places) < limits.LIVE_SHOWN_TOPICS_MAX:
            return
        first = list(islice(self._places, _LOOKED_AT_MAX))
        topic = next((each for each in first if each not in self._behind), first[0])
        self.left_out[UNHEARD] += sum(place.partition.log.end - place.reader.offset for place in self._places[topic])
        self._forget(topic)

    def _forget(self, topic: Topic) -> None:
        self._places.pop(topic, None)
        self._behind.pop(topic, None)

    def show(self) -> None:
        """Hand out what readers see now, a piece of each topic, in turn. Cost: bounded by the two limits of a turn."""
        left, count = limits.LIVE_SHOWN_SIZE_BYTES_PER_TURN, limits.LIVE_SHOWN_PER_TURN_MAX
        for _ in range(len(self._behind)):
            topic = next(iter(self._behind))
            del self._behind[topic]
            if self._broker.catalogue.topics.get((topic.namespace, topic.name)) is not topic:
                self._forget(topic)
                continue
            space = self._broker.live.space(topic.namespace)
            if not space.interest.has(topic.name.encode()):
                self._forget(topic)
                continue
            more = False
            try:
                for place in self._places[topic]:
                    left -= self._show_some(space, topic, place, left)
                    more = more or place.is_behind
            except Exception:
                # A record that cannot be read, or a bug of ours: it must not end the broker, nor come up again in each turn.
                log.exception("what topic %s has at the moment is not shown to those who listen live", topic.name)
                self._forget(topic)
                more = False
            if topic in self._places and (more or topic in self._broker.kernel.fresh):
                self._behind[topic] = None
            count -= 1
            if left <= 0 or count <= 0:
                return

    def _show_some(self, space: LiveSpace, topic: Topic, place: _Place, size_bytes_max: int) -> int:
        """Hand out the next records of a partition; gives how many bytes they are."""
        if not place.is_behind or size_bytes_max <= 0:
            return 0
        # What came in live is the most of it, or all, as a rule.
        place.reader.skip_origin(self._codec.origin)
        piece = place.reader.take(limits.SLICE_MESSAGES_MAX, size_bytes_max)
        if piece is None:
            return 0
        batch = self._live_batch(topic.name.encode(), place, piece)
        if batch.count:
            self.shown_count += batch.count
            space.publish(batch)
        return piece.end - piece.position

    def _live_batch(self, name: bytes, place: _Place, piece: Slice) -> LiveBatch:
        """Make live messages of records, but for those that came in live."""
        codec = self._codec
        buffer = bytearray(name) + bytes(codec.room(piece))
        rows = memoryview(array("i", bytes(4 * COLUMNS * piece.count)))
        count, end, place.origin, rich = codec.unfold(buffer, rows, piece, place.origin, len(name))
        if not rich:
            return LiveBatch(memoryview(buffer), rows, count)
        del buffer[end:]
        left_out: set[int] = set()
        for row, position, base_time_ns in rich:
            (message,) = read_messages(piece.view, position, 1, base_time_ns, 1, piece.end)
            found = codec.live(name, message)
            if found is None:
                left_out.add(row)
            else:
                _fill(rows, row, buffer, found)
        if left_out:
            rows, count = _without(rows, count, left_out), count - len(left_out)
        return LiveBatch(memoryview(buffer), rows, count)


def _without(rows: memoryview, count: int, left_out: set[int]) -> memoryview:
    """Copy the rows that are not left out."""
    kept = array("i")
    for row in range(count):
        if row not in left_out:
            kept.extend(rows[COLUMNS * row : COLUMNS * (row + 1)])
    return memoryview(kept)


def _fill(rows: memoryview, row: int, buffer: bytearray, message: LiveMessage) -> None:
    """Put a message that has more than a body behind the others."""
    at = COLUMNS * row
    rows[at + REPLY_AT], rows[at + REPLY_SIZE] = len(buffer), len(message.reply)
    buffer += message.reply
    rows[at + PAYLOAD_AT], rows[at + PAYLOAD_SIZE] = len(buffer), len(message.payload)
    rows[at + HEADER_SIZE] = message.header_size
    buffer += message.payload
