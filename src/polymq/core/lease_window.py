"""Which messages of one partition a work group has out, and to whom: arrays, one slot per offset.

    settled for good | floor ... window ... next | never delivered
                       slots: state, attempts, owner

A settle is one index and one store. Slots below the first unsettled offset are dropped as the floor rises. A few
messages that stay out while millions pass must not keep the arrays growing: then those few move to `overflow`, a
dictionary, and the floor of the arrays goes on. Hot module: see docs/adr/0001. Read next: `work_group.py`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import cython

if not cython.compiled:
    from polymq.wire.inline import load_i64, store_i64

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEFERRED", "FAIL_NOT_LEASED", "FAIL_NOT_OWNED", "LEASED", "SETTLED", "WAITING", "LeaseWindow"]

# Slot states. 0 is an offset that was never handed out.
LEASED: Final = 1
SETTLED: Final = 2
WAITING: Final = 3
DEFERRED: Final = 4

FAIL_NOT_LEASED: Final = 1
FAIL_NOT_OWNED: Final = 2

_OFFSET_BITS = cython.declare(cython.longlong, 41)
_OFFSET_MASK = cython.declare(cython.longlong, (1 << 41) - 1)
_ATTEMPTS_MAX = cython.declare(cython.int, 0xFFFF)

# The first arrays of a group that consumes: one KiB of slots. An idle group has none.
_SLOTS_FIRST: Final = 1024
# Arrays do not grow beyond this while they are mostly settled; then stragglers move to the overflow instead.
_SLOTS_DENSE: Final = 1 << 18
# Stragglers may be moved when at most one slot in this many is unsettled: a dictionary entry costs about 20 slots.
_SPARSE_RATIO: Final = 32
# Pairs per piece of a snapshot: 64 KiB.
_PAIRS_PER_PIECE: Final = 4096


@cython.cclass
class LeaseWindow:
    """The slots of one (group, partition).

    Offsets are the partition's. Owners are small positive integers given by the group, one per subscription.
    Cost: 7 bytes per slot between floor and next; about 150 bytes per overflow entry.
    """

    partition = cython.declare(cython.longlong, visibility="readonly")
    base: cython.longlong
    floor = cython.declare(cython.longlong, visibility="readonly")
    next = cython.declare(cython.longlong, visibility="readonly")
    capacity: cython.longlong
    leased = cython.declare(cython.longlong, visibility="readonly")
    state: cython.uchar[::1]
    attempts: cython.ushort[::1]
    owner: cython.uint[::1]
    overflow = cython.declare(dict, visibility="readonly")
    ranges: cython.uchar[::1]
    range_count: cython.Py_ssize_t
    range_capacity: cython.Py_ssize_t

    def __init__(self, partition: int, start: int) -> None:
        self.partition = partition
        self.base = start
        self.floor = start
        self.next = start
        self.capacity = 0
        self.leased = 0
        self.overflow = {}
        self.range_count = 0
        self.range_capacity = 0

    def lease(self, count: cython.longlong, owner: cython.uint) -> None:
        """Hand out the next `count` offsets for the first time. Cost: a few ns per message."""
        assert count > 0
        self._make_room(count)
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t = self.next - self.base
        for i in range(first, first + count):
            self.state[i] = 1
            self.attempts[i] = 1
            self.owner[i] = owner
        self.next += count
        self.leased += count

    def skip(self, count: cython.longlong) -> None:
        """Settle the next `count` offsets without handing them out (sampling, damage)."""
        assert count > 0
        self._make_room(count)
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t = self.next - self.base
        for i in range(first, first + count):
            self.state[i] = 2
            self.attempts[i] = 0
            self.owner[i] = 0
        self._note(self.next, self.next + count - 1)
        self.next += count

    def lease_again(self, offset: cython.longlong, owner: cython.uint) -> int:
        """Hand out an offset that waits for redelivery; gives its attempt number. Asserts that it waits."""
        attempts: cython.int
        if offset < self.base:
            _state, attempts_before, _owner = self.overflow[offset]
            assert _state == WAITING
            attempts = min(attempts_before + 1, 0xFFFF)
            self.overflow[offset] = (LEASED, attempts, owner)
            self.leased += 1
            return attempts
        i: cython.Py_ssize_t = offset - self.base
        assert offset < self.next
        assert self.state[i] == 3
        attempts = self.attempts[i]
        if attempts < _ATTEMPTS_MAX:
            attempts += 1
        self.state[i] = 1
        self.attempts[i] = attempts
        self.owner[i] = owner
        self.leased += 1
        return attempts

    def settle(
        self,
        ids: cython.longlong[::1],
        first: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        owner: cython.uint,
        failures: list,  # type: ignore[type-arg]
    ) -> int:
        """Settle message ids while they belong to this partition; gives how many were looked at.

        `failures` receives (index in `ids`, FAIL_…) for each that could not be settled. What was settled is noted
        for the journal (`drain`). Cost: a few ns per id.
        """
        i: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        offset: cython.longlong
        run_first: cython.longlong = -1
        run_last: cython.longlong = -2
        i = first
        while i < first + count:
            if (ids[i] >> _OFFSET_BITS) != self.partition:
                break
            offset = ids[i] & _OFFSET_MASK
            if offset >= self.base and offset < self.next:
                slot = offset - self.base
                if self.state[slot] != 1:
                    failures.append((i, FAIL_NOT_LEASED))
                elif self.owner[slot] != owner:
                    failures.append((i, FAIL_NOT_OWNED))
                else:
                    self.state[slot] = 2
                    self.leased -= 1
                    if offset == run_last + 1:
                        run_last = offset
                    else:
                        if run_first >= 0:
                            self._note(run_first, run_last)
                        run_first = offset
                        run_last = offset
            else:
                code = self._settle_overflow(offset, owner)
                if code:
                    failures.append((i, code))
            i += 1
        if run_first >= 0:
            self._note(run_first, run_last)
        self._raise_floor()
        return i - first

    def _settle_overflow(self, offset: int, owner: int) -> int:
        entry = self.overflow.get(offset)
        if entry is None or entry[0] != LEASED:
            return FAIL_NOT_LEASED
        if entry[2] != owner:
            return FAIL_NOT_OWNED
        del self.overflow[offset]
        self.leased -= 1
        self._note(offset, offset)
        return 0

    def check(self, offset: int, owner: int) -> int:
        """Say whether `owner` has `offset` out: 0, FAIL_NOT_LEASED or FAIL_NOT_OWNED."""
        state, _attempts, holder = self.slot(offset)
        if state != LEASED:
            return FAIL_NOT_LEASED
        return 0 if holder == owner else FAIL_NOT_OWNED

    def slot(self, offset: int) -> tuple[int, int, int]:
        """Give (state, attempts, owner) of an offset; state 0 if it was never handed out."""
        if self.base <= offset < self.next:
            i: cython.Py_ssize_t = offset - self.base
            return self.state[i], self.attempts[i], self.owner[i]
        if offset >= self.next:
            return 0, 0, 0
        return self.overflow.get(offset, (SETTLED, 0, 0))

    def put_back(self, offset: int, *, deferred: bool) -> int:
        """End a lease without settling; gives the attempts so far. Asserts that the message is out."""
        state = DEFERRED if deferred else WAITING
        if offset < self.base:
            before, attempts, owner = self.overflow[offset]
            assert before == LEASED
            self.overflow[offset] = (state, attempts, owner)
            self.leased -= 1
            return attempts
        assert offset < self.next
        i: cython.Py_ssize_t = offset - self.base
        assert self.state[i] == 1
        self.state[i] = state
        self.leased -= 1
        return self.attempts[i]

    def wake(self, offset: int) -> bool:
        """Make a deferred message wait for redelivery; False if it is not deferred any more."""
        if self.slot(offset)[0] != DEFERRED:
            return False
        self._set_state(offset, WAITING)
        return True

    def _set_state(self, offset: int, state: int) -> None:
        if offset < self.base:
            _before, attempts, owner = self.overflow[offset]
            self.overflow[offset] = (state, attempts, owner)
        else:
            i: cython.Py_ssize_t = offset - self.base
            self.state[i] = state

    def leased_in(self, first: int, count: int, owner: int, attempts: int) -> list[int]:
        """List the offsets of a run that `owner` still has out from that very delivery."""
        found: list[int] = []
        i: cython.Py_ssize_t
        start: cython.longlong = max(first, self.base)
        end: cython.longlong = first + count
        wanted_owner: cython.uint = owner
        wanted_attempts: cython.int = attempts
        for i in range(start - self.base, end - self.base):
            if self.state[i] == 1 and self.owner[i] == wanted_owner and self.attempts[i] == wanted_attempts:
                found.append(i + self.base)
        if first < self.base and self.overflow:
            low = [o for o in self.overflow if first <= o < end and self.overflow[o] == (LEASED, attempts, owner)]
            found = sorted(low) + found
        return found

    def any_leased_in(self, first: cython.longlong, count: cython.longlong, owner: cython.uint, attempts: cython.int) -> bool:
        """Say whether anything of a run is still out; stops at the first."""
        i: cython.Py_ssize_t
        start: cython.longlong = first if first > self.base else self.base
        for i in range(start - self.base, first + count - self.base):
            if self.state[i] == 1 and self.owner[i] == owner and self.attempts[i] == attempts:
                return True
        if first < self.base and self.overflow:
            return bool(self.leased_in(first, count, owner, attempts))
        return False

    def empty(self, end: int) -> None:
        """Settle everything below `end`, whatever its state."""
        assert end >= self.next
        self.base = end
        self.floor = end
        self.next = end
        self.leased = 0
        self.overflow = {}
        self.range_count = 0

    def restore(self, offset: int, attempts: int, *, deferred: bool) -> None:
        """Recovery: the offset below `next` is unsettled and waits for redelivery, now or later."""
        assert offset < self.next
        state = DEFERRED if deferred else WAITING
        if offset < self.base:
            self.overflow[offset] = (state, attempts, 0)
        else:
            i: cython.Py_ssize_t = offset - self.base
            self.state[i] = state
            self.attempts[i] = attempts
            self.owner[i] = 0
            if offset < self.floor:
                self.floor = offset

    def restore_next(self, end: int) -> None:
        """Recovery: everything from `next` to `end` counts as handed out and waiting."""
        count: cython.longlong = end - self.next
        if count <= 0:
            return
        self._make_room(count)
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t = self.next - self.base
        for i in range(first, first + count):
            self.state[i] = 3
            self.attempts[i] = 0
            self.owner[i] = 0
        self.next += count

    def restore_settled(self, first: int, last: int) -> None:
        """Recovery: these offsets, all below `next`, are settled; what they were does not matter."""
        if first < self.base and self.overflow:
            for offset in [o for o in self.overflow if first <= o <= last]:
                del self.overflow[offset]
        i: cython.Py_ssize_t
        start: cython.longlong = max(first, self.base)
        end: cython.longlong = min(last, self.next - 1)
        for i in range(start - self.base, end + 1 - self.base):
            self.state[i] = 2
        self._raise_floor()

    def restore_ranges(self, ranges: bytes) -> None:
        """Recovery: apply what `drain` gave in an earlier life."""
        at: cython.Py_ssize_t
        view: cython.const[cython.uchar][::1] = ranges
        for at in range(0, len(ranges), 16):
            last = load_i64(view, at + 8)
            self.restore_next(last + 1)
            self.restore_settled(load_i64(view, at), last)

    def truncate(self, end: int) -> None:
        """Recovery: forget everything from `end` on, as if it had never been handed out."""
        if self.next <= end:
            return
        for offset in [o for o in self.overflow if o >= end]:
            del self.overflow[offset]
        self.next = end
        if self.base > end:
            self.base = end
        if self.floor > end:
            self.floor = end

    def unsettled(self) -> Iterator[tuple[int, int, int]]:
        """List (offset, state, attempts) of everything handed out and not settled, in order: for snapshots."""
        for offset in sorted(self.overflow):
            state, attempts, _owner = self.overflow[offset]
            yield offset, state, attempts
        for offset in range(self.floor, self.next):
            state, attempts, _owner = self.slot(offset)
            if state != SETTLED:
                yield offset, state, attempts

    def unsettled_pairs(self) -> list[bytes]:
        """Give what `unsettled` lists as pieces of at most 4,096 (offset i64, attempts i64) pairs: for snapshots.

        Cost: a few ns per slot between floor and next.
        """
        pieces: list[bytes] = []
        buffer = bytearray(_PAIRS_PER_PIECE * 16)
        view: cython.uchar[::1] = buffer
        at: cython.Py_ssize_t = 0
        for offset in sorted(self.overflow):
            store_i64(view, at, offset)
            store_i64(view, at + 8, self.overflow[offset][1])
            at += 16
            if at == _PAIRS_PER_PIECE * 16:
                pieces.append(bytes(buffer))
                at = 0
        i: cython.Py_ssize_t
        for i in range(self.floor - self.base, self.next - self.base):
            if self.state[i] != 2:
                store_i64(view, at, self.base + i)
                store_i64(view, at + 8, self.attempts[i])
                at += 16
                if at == _PAIRS_PER_PIECE * 16:
                    pieces.append(bytes(buffer))
                    at = 0
        if at:
            pieces.append(bytes(buffer[:at]))
        return pieces

    def first_unsettled(self) -> int:
        """Give the lowest offset that still matters: what retention must keep."""
        self._raise_floor()
        return min(min(self.overflow), self.floor) if self.overflow else self.floor

    def drain(self) -> bytes:
        """Take what was settled since the last call: (first i64, last i64) pairs, for the journal."""
        if self.range_count == 0:
            return b""
        noted = bytes(self.ranges[: self.range_count * 16])
        self.range_count = 0
        return noted

    @cython.cfunc
    def _note(self, first: cython.longlong, last: cython.longlong) -> cython.void:
        at: cython.Py_ssize_t = self.range_count * 16
        if self.range_count > 0 and load_i64(self.ranges, at - 8) == first - 1:
            store_i64(self.ranges, at - 8, last)
            return
        if self.range_count == self.range_capacity:
            self.range_capacity = max(64, self.range_capacity * 2)
            grown = bytearray(self.range_capacity * 16)
            if self.range_count:
                grown[:at] = self.ranges[:at]
            self.ranges = grown
        store_i64(self.ranges, at, first)
        store_i64(self.ranges, at + 8, last)
        self.range_count += 1

    @cython.cfunc
    def _raise_floor(self) -> cython.void:
        i: cython.Py_ssize_t = self.floor - self.base
        end: cython.Py_ssize_t = self.next - self.base
        while i < end and self.state[i] == 2:
            i += 1
        self.floor = self.base + i

    @cython.cfunc
    def _make_room(self, count: cython.longlong) -> cython.void:
        if self.next - self.base + count <= self.capacity:
            return
        self._raise_floor()
        live: cython.longlong = self.next - self.floor
        if live * 2 > self.capacity and self.capacity >= _SLOTS_DENSE:
            self._move_stragglers()
            live = self.next - self.floor
        capacity: cython.longlong = max(self.capacity, _SLOTS_FIRST)
        while (live + count) * 2 > capacity:
            capacity *= 2
        self._rebase(capacity)

    @cython.cfunc
    def _rebase(self, capacity: cython.longlong) -> cython.void:
        """Copy the live slots to the front, into arrays of `capacity`."""
        first: cython.Py_ssize_t = self.floor - self.base
        end: cython.Py_ssize_t = self.next - self.base
        live: cython.Py_ssize_t = end - first
        state = bytearray(capacity)
        attempts = array("H", bytes(2 * capacity))
        owner = array("I", bytes(4 * capacity))
        if live:
            state[:live] = self.state[first:end]
            new_attempts: cython.ushort[::1] = attempts
            new_attempts[:live] = self.attempts[first:end]
            new_owner: cython.uint[::1] = owner
            new_owner[:live] = self.owner[first:end]
        self.state = state
        self.attempts = attempts
        self.owner = owner
        self.base = self.floor
        self.capacity = capacity

    @cython.cfunc
    def _move_stragglers(self) -> cython.void:
        """Move the few unsettled slots of the older half to the overflow, if they are few."""
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t = self.floor - self.base
        half: cython.Py_ssize_t = first + (self.next - self.floor) // 2
        unsettled: cython.Py_ssize_t = 0
        for i in range(first, half):
            if self.state[i] != 2:
                unsettled += 1
        if unsettled * _SPARSE_RATIO > half - first:
            return
        for i in range(first, half):
            if self.state[i] != 2:
                self.overflow[self.base + i] = (self.state[i], self.attempts[i], self.owner[i])
                self.state[i] = 2
        self._raise_floor()
