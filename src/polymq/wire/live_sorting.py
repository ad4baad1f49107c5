"""From a live batch to bodies that the log takes: which of its messages go where, sorted, as positions in the batch's buffer.

A batch's messages come one behind the other, whatever their subjects; the log wants those of one topic side by side. Hot
module: see docs/adr/0001. Nothing here makes an object per message, only one per topic. Read next: `live.py` for what comes in,
`slices.py` for what goes out.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import cython

from polymq.limits import LIVE_SORTED_KEPT_MAX
from polymq.wire import live
from polymq.wire.slices import MessageBatch

if TYPE_CHECKING:
    from polymq.wire.live import LiveBatch

__all__ = ["Sorter", "has_negative_tag"]

_COLUMNS = cython.declare(cython.Py_ssize_t, live.COLUMNS)
_REPLY_SIZE = cython.declare(cython.Py_ssize_t, live.REPLY_SIZE)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, live.HEADER_SIZE)
_PAYLOAD_AT = cython.declare(cython.Py_ssize_t, live.PAYLOAD_AT)
_PAYLOAD_SIZE = cython.declare(cython.Py_ssize_t, live.PAYLOAD_SIZE)

_CAPACITY_FIRST: Final = 256
_TAGS_FIRST: Final = 64


def has_negative_tag(pairs: cython.int[::1], count: cython.Py_ssize_t) -> bool:
    """Say whether some of so many pairs have a tag below 0. Cost: under 1 ns each."""
    i: cython.Py_ssize_t
    signs: cython.int = 0
    assert 0 <= 2 * count <= len(pairs)
    for i in range(count):
        signs |= pairs[2 * i + 1]
    return signs < 0


@cython.final
@cython.cclass
class Sorter:
    """Sorts the pairs of one batch after the other by their tags, which are small numbers, 0 and up.

    After `sort`, message `places()[i]` of the batch has its payload at `positions[i]`, `sizes[i]` long; those of one group are
    side by side, in the order in which they came. Valid until the next `sort`.
    """

    positions: cython.longlong[::1]
    sizes: cython.longlong[::1]
    indexes: cython.int[::1]
    # The first two once more, as batches want them.
    _bodies_at: memoryview
    _body_sizes: memoryview
    _index_view: memoryview
    _capacity: cython.Py_ssize_t
    _tag_count: cython.Py_ssize_t
    # By tag: the number of its group, -1 outside of a call. By group: tag, messages, bytes, how many are more than a body.
    _groups: cython.int[::1]
    _tags: cython.int[::1]
    _counts: cython.int[::1]
    _rich: cython.int[::1]
    _ends: cython.int[::1]
    _totals: cython.longlong[::1]

    def __init__(self) -> None:
        self._tag_count = 0
        self._make_room(_CAPACITY_FIRST)
        self._make_tags(_TAGS_FIRST)

    def sort(self, batch: LiveBatch, pairs: memoryview, count: cython.Py_ssize_t) -> list[tuple[int, int, int, int, int]]:
        """Sort the messages of `count` pairs by tag.

        Gives for each tag, in the order in which they came first: (tag, where its messages begin in the arrays, how many they
        are, the sum of their payloads, how many of them have headers or a reply).
        Limits: tags are not negative (asserted). Cost: two walks over the pairs, one if all have one tag; about 4 ns each.
        """
        assert 0 < 2 * count <= len(pairs)
        if count > self._capacity or self._capacity > LIVE_SORTED_KEPT_MAX:
            self._make_room(max(_CAPACITY_FIRST, 2 * count))
        group_count: cython.Py_ssize_t = self._count(batch.rows, pairs, count)
        i: cython.Py_ssize_t
        end: cython.int = 0
        found: list[tuple[int, int, int, int, int]] = []
        for i in range(group_count):
            found.append((self._tags[i], end, self._counts[i], self._totals[i], self._rich[i]))
            self._ends[i] = end
            end += self._counts[i]
        self._place(batch.rows, pairs, count, group_count)
        return found

    def batch(self, source: LiveBatch, first: int, count: int, size_bytes: int) -> MessageBatch:
        """Give `count` sorted messages from `first` on as bodies, headers and all; valid as long as the source is."""
        return MessageBatch(source.view, self._bodies_at, self._body_sizes, first=first, count=count, size_bytes=size_bytes)

    @cython.cfunc
    @cython.exceptval(-1)
    def _count(self, rows: cython.int[::1], pairs: cython.int[::1], count: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Find the groups, and how large each is."""
        i: cython.Py_ssize_t
        row: cython.Py_ssize_t
        tag: cython.int
        last: cython.int = -1
        group: cython.int = -1
        group_count: cython.Py_ssize_t = 0
        for i in range(count):
            tag = pairs[2 * i + 1]
            row = pairs[2 * i] * _COLUMNS
            if group < 0 or tag != last:
                assert tag >= 0
                last = tag
                if tag >= self._tag_count:
                    self._make_tags(2 * (tag + 1))
                group = self._groups[tag]
                if group < 0:
                    group = group_count
                    self._groups[tag] = group
                    self._tags[group] = tag
                    self._counts[group] = self._rich[group] = 0
                    self._totals[group] = 0
                    group_count += 1
            self._counts[group] += 1
            self._totals[group] += rows[row + _PAYLOAD_SIZE]
            if rows[row + _HEADER_SIZE] | rows[row + _REPLY_SIZE]:
                self._rich[group] += 1
        return group_count

    @cython.cfunc
    @cython.exceptval(-1)
    def _place(
        self, rows: cython.int[::1], pairs: cython.int[::1], count: cython.Py_ssize_t, group_count: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Write down where each message lies, at its group's place; then forget the groups."""
        i: cython.Py_ssize_t
        row: cython.Py_ssize_t
        group: cython.int
        place: cython.int
        for i in range(count):
            row = pairs[2 * i] * _COLUMNS
            group = self._groups[pairs[2 * i + 1]]
            place = self._ends[group]
            self._ends[group] = place + 1
            self.indexes[place] = pairs[2 * i]
            self.positions[place] = rows[row + _PAYLOAD_AT]
            self.sizes[place] = rows[row + _PAYLOAD_SIZE]
        for i in range(group_count):
            self._groups[self._tags[i]] = -1
        return 0

    def _make_room(self, capacity: int) -> None:
        """Make arrays for so many messages: there are no more groups than that."""
        self._capacity = capacity
        self._bodies_at = memoryview(array("q", bytes(8 * capacity)))
        self._body_sizes = memoryview(array("q", bytes(8 * capacity)))
        self.positions = self._bodies_at
        self.sizes = self._body_sizes
        self._index_view = memoryview(array("i", bytes(4 * capacity)))
        self.indexes = self._index_view
        self._tags = memoryview(array("i", bytes(4 * capacity)))
        self._counts = memoryview(array("i", bytes(4 * capacity)))
        self._rich = memoryview(array("i", bytes(4 * capacity)))
        self._ends = memoryview(array("i", bytes(4 * capacity)))
        self._totals = memoryview(array("q", bytes(8 * capacity)))

    def _make_tags(self, count: int) -> None:
        """Know tags below `count`; the groups of those known before stay."""
        groups = array("i", [-1]) * count
        for tag in range(self._tag_count):
            groups[tag] = self._groups[tag]
        self._groups = memoryview(groups)
        self._tag_count = count

    def places(self) -> memoryview:
        """Say which message of the batch has come to each place: int32, with more room than there are messages."""
        return self._index_view
