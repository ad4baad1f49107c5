"""How long messages take from being published to being settled: nothing is made per message, memory is bounded.

A `DeliveryTimes` remembers when the messages that a group has been handed were published: one entry per stretch of
offsets with one time, that is, mostly one per record batch. When an array of ids is settled, it puts the stretches
that the ids fall into in a `Histogram`, whose buckets are 3 % wide. `LatencyWindow` keeps two of those, the older of
which is dropped as time goes on. Hot module: see docs/adr/0001. Read next: `work_group.py`, which feeds it.
"""

from __future__ import annotations

from array import array
from typing import Final

import cython

if not cython.compiled:
    from polymq.wire.inline import load_i64, load_u32

__all__ = ["STRETCHES_MAX", "DeliveryTimes", "Histogram", "LatencyWindow"]

_OFFSET_MASK = cython.declare(cython.longlong, (1 << 41) - 1)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_TIME = cython.declare(cython.uint, 0x01)

# Below 2^10 ns everything is one bucket; from there to 2^52 ns (52 days) each doubling has 32 of them.
_SHIFT_FIRST = cython.declare(cython.int, 10)
_SHIFTS = cython.declare(cython.int, 42)
_BUCKETS = cython.declare(cython.Py_ssize_t, 1 + 42 * 32)

# The first arrays of a group that is handed something.
_STRETCHES_FIRST: Final = 64
# A group that has more than this out, all published at different times, is measured by the younger half of them.
STRETCHES_MAX: Final = 1 << 16


@cython.cclass
class Histogram:
    """Counts of durations in buckets whose width is a 32nd of their size. 11 KiB, once something was added."""

    total = cython.declare(cython.longlong, visibility="readonly")
    low: cython.longlong
    high: cython.longlong
    counts: cython.longlong[::1]

    def __init__(self) -> None:
        self.total = 0
        self.low = 0
        self.high = 0

    def add(self, value_ns: cython.longlong, weight: cython.longlong) -> None:
        """Count a duration `weight` times. One below zero (the wall clock was set back) counts as zero."""
        if value_ns < 0:
            value_ns = 0
        if self.total == 0:
            self.counts = array("q", bytes(8 * _BUCKETS))
            self.low = value_ns
            self.high = value_ns
        elif value_ns < self.low:
            self.low = value_ns
        elif value_ns > self.high:
            self.high = value_ns
        self.counts[_bucket(value_ns)] += weight
        self.total += weight

    def merge(self, other: Histogram) -> None:
        """Add all that another one has counted."""
        i: cython.Py_ssize_t
        if other.total == 0:
            return
        if self.total == 0:
            self.counts = array("q", bytes(8 * _BUCKETS))
            self.low = other.low
            self.high = other.high
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)
        for i in range(_BUCKETS):
            self.counts[i] += other.counts[i]
        self.total += other.total

    def quantile(self, share: float) -> int:
        """Give the duration that `share` (above 0, at most 1) of all were not above, to 3 %, the longest exactly; 0 if there are none."""
        i: cython.Py_ssize_t = 0
        seen: cython.longlong = 0
        wanted: cython.longlong = max(1, -int(-share * self.total // 1))
        if self.total == 0:
            return 0
        if wanted >= self.total:
            return self.high
        for i in range(_BUCKETS):
            seen += self.counts[i]
            if seen >= wanted:
                break
        return max(self.low, min(self.high, _middle(i)))


@cython.cfunc
@cython.exceptval(-1)
def _bucket(value_ns: cython.longlong) -> cython.Py_ssize_t:
    shift: cython.int = 0
    rest: cython.longlong = value_ns >> _SHIFT_FIRST
    if rest == 0:
        return 0
    while rest > 1 and shift < _SHIFTS:
        rest >>= 1
        shift += 1
    if shift >= _SHIFTS:
        return _BUCKETS - 1
    return 1 + shift * 32 + ((value_ns >> (_SHIFT_FIRST - 5 + shift)) & 31)


def _middle(bucket: int) -> int:
    """Give the duration in the middle of a bucket."""
    if bucket == 0:
        return 512
    shift, part = divmod(bucket - 1, 32)
    width: int = 1 << (5 + shift)
    return (32 + part) * width + width // 2


@cython.cclass
class DeliveryTimes:
    """When what one group was handed of one partition was published.

    Entry i says that the offsets from `starts[i]` up to `starts[i + 1]` were published at `times[i]`.
    Limits: STRETCHES_MAX entries. Cost: 16 bytes per entry; 2 ns per message that is handed out, 2 ns per settle.
    """

    starts: cython.longlong[::1]
    times: cython.longlong[::1]
    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    capacity: cython.Py_ssize_t

    def __init__(self) -> None:
        self.count = 0
        self.capacity = 0

    def note(
        self,
        view: cython.const[cython.uchar][::1],
        position: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        batch_left: cython.Py_ssize_t,
        base_time_ns: cython.longlong,
        offset: cython.longlong,
        count: cython.Py_ssize_t,
        floor: cython.longlong,
    ) -> None:
        """Take in the records of a slice that is handed out; the group has finished with everything below `floor`.

        What was handed out before is known already, or (after a restart) is not measured.
        """
        size: cython.Py_ssize_t
        time_ns: cython.longlong
        last: cython.longlong
        i: cython.Py_ssize_t
        assert 0 <= position
        assert position <= end
        assert end <= len(view)
        last = self.starts[self.count - 1] if self.count else -1
        if offset <= last:
            return
        for i in range(count):
            if batch_left == 0:
                if end - position < _HEADER_SIZE:
                    return
                batch_left = load_u32(view, position + 28)
                base_time_ns = load_i64(view, position + 40)
                position += _HEADER_SIZE
            if end - position < _OVERHEAD:
                return
            size = load_u32(view, position)
            time_ns = base_time_ns
            if (load_u32(view, position + 4) >> 24) & _TIME and end - position >= _OVERHEAD + 8:
                time_ns += load_i64(view, position + 8)
            if self.count == 0 or self.times[self.count - 1] != time_ns:
                self._push(offset + i, time_ns, floor)
            position += size
            batch_left -= 1

    @cython.cfunc
    def _push(self, offset: cython.longlong, time_ns: cython.longlong, floor: cython.longlong) -> cython.void:
        if self.count == self.capacity:
            self._make_room(floor)
        self.starts[self.count] = offset
        self.times[self.count] = time_ns
        self.count += 1

    @cython.cfunc
    def _make_room(self, floor: cython.longlong) -> cython.void:
        """Forget what lies below `floor`; grow if that is not enough, and forget the older half if it may not."""
        first: cython.Py_ssize_t = 0
        kept: cython.Py_ssize_t
        if self.count:
            first = max(0, self._find(floor))
        kept = self.count - first
        capacity: cython.Py_ssize_t = max(_STRETCHES_FIRST, self.capacity)
        if kept * 2 > capacity:
            if capacity < STRETCHES_MAX:
                capacity *= 2
            else:
                first = self.count - capacity // 2
                kept = capacity // 2
        starts: cython.longlong[::1] = array("q", bytes(8 * capacity))
        times: cython.longlong[::1] = array("q", bytes(8 * capacity))
        if kept:
            starts[:kept] = self.starts[first : self.count]
            times[:kept] = self.times[first : self.count]
        self.starts = starts
        self.times = times
        self.count = kept
        self.capacity = capacity

    @cython.cfunc
    @cython.exceptval(-2)
    def _find(self, offset: cython.longlong) -> cython.Py_ssize_t:
        """Find the entry that an offset belongs to; -1 if it is older than the first."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.count
        middle: cython.Py_ssize_t
        while low < high:
            middle = (low + high) // 2
            if self.starts[middle] <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def settled(
        self, ids: cython.longlong[::1], first: cython.Py_ssize_t, count: cython.Py_ssize_t, now_ns: cython.longlong, histogram: Histogram
    ) -> None:
        """Count `ids[first : first + count]`, all of this partition and just settled; what is not known is left out."""
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = -1
        low: cython.longlong = 0
        high: cython.longlong = -1
        weight: cython.longlong = 0
        offset: cython.longlong
        if self.count == 0:
            return
        for i in range(first, first + count):
            offset = ids[i] & _OFFSET_MASK
            if offset < low or offset >= high:
                if weight and at >= 0:
                    histogram.add(now_ns - self.times[at], weight)
                weight = 0
                at = self._find(offset)
                low = self.starts[at] if at >= 0 else 0
                high = self.starts[at + 1] if at + 1 < self.count else _OFFSET_MASK + 1
            weight += 1
        if weight and at >= 0:
            histogram.add(now_ns - self.times[at], weight)


class LatencyWindow:
    """The durations of about the last `window_ns`: those of the half that is under way, and of the one before it."""

    __slots__ = ("_half_ns", "_newer", "_older", "_turned_ns")

    def __init__(self, window_ns: int, now_ns: int) -> None:
        assert window_ns >= 2
        self._half_ns = window_ns // 2
        self._turned_ns = now_ns
        self._newer = Histogram()
        self._older = Histogram()

    def current(self, now_ns: int) -> Histogram:
        """Give the histogram to add to now (monotonic clock)."""
        halves = (now_ns - self._turned_ns) // self._half_ns
        if halves > 0:
            self._older = self._newer if halves == 1 else Histogram()
            self._newer = Histogram()
            self._turned_ns += halves * self._half_ns
        return self._newer

    def merged(self, now_ns: int, into: Histogram | None = None) -> Histogram:
        """Give everything in the window, added to `into` or by itself."""
        into = into or Histogram()
        into.merge(self.current(now_ns))
        into.merge(self._older)
        return into
