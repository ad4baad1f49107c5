"""Two schedules: `DueHeap` for many plain numbers, `Timers` for the few objects that want to be woken.

A deferred message costs 16 bytes here, so a million of them cost 16 MB. Hot module: see docs/adr/0001.
"""

from __future__ import annotations

import heapq
from array import array
from typing import Final, Protocol

import cython

if not cython.compiled:
    from polymq.wire.inline import store_i64

__all__ = ["DueHeap", "Timed", "Timers"]

# Entries per piece of a snapshot: 64 KiB.
_PAIRS_PER_PIECE: Final = 4096


@cython.cclass
class DueHeap:
    """A binary heap of (due time in ns, 63-bit value): the earliest first, of equals the smallest value.

    Cost: O(log n), 16 bytes per entry.
    """

    due: cython.longlong[::1]
    value: cython.longlong[::1]
    count: cython.Py_ssize_t
    capacity: cython.Py_ssize_t

    def __init__(self) -> None:
        self.count = 0
        self.capacity = 0

    def __len__(self) -> int:
        return self.count

    @cython.ccall
    def push(self, due: cython.longlong, value: cython.longlong) -> cython.void:
        """Add an entry."""
        if self.count == self.capacity:
            self._grow()
        i: cython.Py_ssize_t = self.count
        parent: cython.Py_ssize_t
        self.count += 1
        while i > 0:
            parent = (i - 1) // 2
            if self.due[parent] < due or (self.due[parent] == due and self.value[parent] < value):
                break
            self.due[i] = self.due[parent]
            self.value[i] = self.value[parent]
            i = parent
        self.due[i] = due
        self.value[i] = value

    def first_due(self) -> int:
        """Give the earliest due time. Asserts that there is one."""
        assert self.count > 0
        return self.due[0]

    def push_run(self, due: cython.longlong, first: cython.longlong, count: cython.longlong) -> None:
        """Add `count` neighbouring values that are due at the same time."""
        value: cython.longlong
        for value in range(first, first + count):
            self.push(due, value)

    def pop(self) -> int:
        """Take the earliest entry out and give its value. Asserts that there is one."""
        assert self.count > 0
        value: cython.longlong = self.value[0]
        self._drop_first()
        return value

    def take(self, due_max: cython.longlong, count_max: cython.Py_ssize_t) -> array[int]:
        """Take out the values of the earliest entries, as many as are due by `due_max`, as a "q" array."""
        taken = array("q", bytes(8 * min(count_max, self.count)))
        view: cython.longlong[::1] = taken
        i: cython.Py_ssize_t = 0
        while i < count_max and self.count > 0 and self.due[0] <= due_max:
            view[i] = self.value[0]
            self._drop_first()
            i += 1
        if not self.count:
            self.clear()
        return taken[:i]

    def move(self, due_max: cython.longlong, target: DueHeap, count_max: cython.Py_ssize_t) -> bool:
        """Move entries that are due by `due_max` to a heap that orders them by value; True if there are more."""
        i: cython.Py_ssize_t = 0
        while i < count_max and self.count > 0 and self.due[0] <= due_max:
            target.push(self.value[0], self.value[0])
            self._drop_first()
            i += 1
        if not self.count:
            self.clear()
            return False
        return self.due[0] <= due_max

    def remove(self, value: cython.longlong) -> bool:
        """Take one entry out, wherever it stands; False if there is none of that value. Cost: O(n), about a ns each."""
        i: cython.Py_ssize_t
        for i in range(self.count):
            if self.value[i] == value:
                break
        else:
            return False
        self.count -= 1
        parent: cython.Py_ssize_t
        due: cython.longlong = self.due[self.count]
        moved: cython.longlong = self.value[self.count]
        if i < self.count:
            # The last entry takes the place: up if it is earlier than what is above, else down.
            while i > 0:
                parent = (i - 1) // 2
                if self.due[parent] < due or (self.due[parent] == due and self.value[parent] < moved):
                    break
                self.due[i] = self.due[parent]
                self.value[i] = self.value[parent]
                i = parent
            self._sink(i, due, moved)
        return True

    def drop_between(self, first: cython.longlong, end: cython.longlong) -> None:
        """Take out every entry with a value in [first, end). Cost: O(n), a few ns each."""
        i: cython.Py_ssize_t
        kept: cython.Py_ssize_t = 0
        for i in range(self.count):
            if not (first <= self.value[i] and self.value[i] < end):
                self.due[kept] = self.due[i]
                self.value[kept] = self.value[i]
                kept += 1
        self.count = kept
        for i in range(kept // 2 - 1, -1, -1):
            self._sink(i, self.due[i], self.value[i])

    def after(self, value: cython.longlong, count_max: cython.Py_ssize_t) -> array[int]:
        """Copy out the entries with the smallest values above `value`, as (value, due) pairs in order of value.

        Cost: O(n), about a ns each, and O(log count_max) for each that is among the smallest so far.
        """
        # The largest of those found so far is the first of this heap.
        found = DueHeap()
        i: cython.Py_ssize_t
        for i in range(self.count):
            if self.value[i] > value and (found.count < count_max or -self.value[i] > found.due[0]):
                found.push(-self.value[i], self.due[i])
                if found.count > count_max:
                    found._drop_first()
        pairs = array("q", bytes(16 * found.count))
        view: cython.longlong[::1] = pairs
        while found.count > 0:
            i = found.count - 1
            view[2 * i] = -found.due[0]
            view[2 * i + 1] = found.value[0]
            found._drop_first()
        return pairs

    @cython.cfunc
    def _drop_first(self) -> cython.void:
        """Take the earliest entry out."""
        self.count -= 1
        if self.count > 0:
            self._sink(0, self.due[self.count], self.value[self.count])

    @cython.cfunc
    def _sink(self, i: cython.Py_ssize_t, due: cython.longlong, value: cython.longlong) -> cython.void:
        """Put an entry into the hole at `i`, or below it."""
        child: cython.Py_ssize_t
        while True:
            child = 2 * i + 1
            if child >= self.count:
                break
            if child + 1 < self.count and self._before(child + 1, self.due[child], self.value[child]):
                child += 1
            if not self._before(child, due, value):
                break
            self.due[i] = self.due[child]
            self.value[i] = self.value[child]
            i = child
        self.due[i] = due
        self.value[i] = value

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _before(self, i: cython.Py_ssize_t, due: cython.longlong, value: cython.longlong) -> cython.bint:
        return self.due[i] < due or (self.due[i] == due and self.value[i] < value)

    def pairs(self) -> list[bytes]:
        """Copy every entry out, in no order, as pieces of at most 4,096 (due i64, value i64) pairs: for snapshots."""
        pieces: list[bytes] = []
        first: cython.Py_ssize_t
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t
        for first in range(0, self.count, _PAIRS_PER_PIECE):
            count: cython.Py_ssize_t = min(_PAIRS_PER_PIECE, self.count - first)
            buffer = bytearray(count * 16)
            view: cython.uchar[::1] = buffer
            for i in range(count):
                at = i * 16
                store_i64(view, at, self.due[first + i])
                store_i64(view, at + 8, self.value[first + i])
            pieces.append(bytes(buffer))
        return pieces

    def smallest_value(self) -> int:
        """Give the smallest value in the heap. Asserts that there is one. Cost: O(n), about a ns each."""
        assert self.count > 0
        i: cython.Py_ssize_t
        smallest: cython.longlong = self.value[0]
        for i in range(1, self.count):
            if self.value[i] < smallest:
                smallest = self.value[i]
        return smallest

    def count_from(self, value: cython.longlong) -> int:
        """Count the entries with at least this value. Cost: O(n), about a ns each."""
        i: cython.Py_ssize_t
        found: cython.Py_ssize_t = 0
        for i in range(self.count):
            if self.value[i] >= value:
                found += 1
        return found

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        self.count = 0
        self.capacity = 16
        self.due = array("q", bytes(128))
        self.value = array("q", bytes(128))

    def _grow(self) -> None:
        self.capacity = max(16, self.capacity * 2)
        due = array("q", bytes(8 * self.capacity))
        value = array("q", bytes(8 * self.capacity))
        i: cython.Py_ssize_t
        for i in range(self.count):
            due[i] = self.due[i]
            value[i] = self.value[i]
        self.due = due
        self.value = value


class Timed(Protocol):
    """Something that `Timers` wakes. `armed_ns` belongs to the `Timers`: None while it is not armed."""

    armed_ns: int | None

    def fire(self, now_ns: int) -> None: ...


class Timers:
    """Wakes objects at times on one clock; arming again moves the time forward only if it is earlier.

    An object that fires too early (what it waited for was settled meanwhile) just arms itself again.
    """

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._sequence = 0

    def arm(self, timed: Timed, due_ns: int) -> None:
        """Wake `timed` at `due_ns`, unless it will be woken earlier anyway."""
        if timed.armed_ns is not None and timed.armed_ns <= due_ns:
            return
        timed.armed_ns = due_ns
        self._sequence += 1
        heapq.heappush(self._heap, (due_ns, self._sequence, timed))

    def due_ns(self) -> int | None:
        """Give the earliest time at which something may want to be woken."""
        while self._heap and self._heap[0][2].armed_ns != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fire(self, now_ns: int) -> None:
        """Wake everything that is due, each once: who is due again at once has its turn in the next step."""
        due: list[Timed] = []
        while self._heap and self._heap[0][0] <= now_ns:
            due_ns, _sequence, timed = heapq.heappop(self._heap)
            if timed.armed_ns == due_ns:
                timed.armed_ns = None
                due.append(timed)
        for timed in due:
            timed.fire(now_ns)
