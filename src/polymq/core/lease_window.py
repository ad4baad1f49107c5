"""Which messages of one partition a work group has out, and to whom: arrays, one slot per offset.

    settled for good | floor ... window ... next | never delivered
                       slots: state, attempts, owner

A settle is one index and one store. Slots below the first unsettled offset are dropped as the floor rises. A few
messages that stay out while millions pass must not keep the arrays growing: then those few move to a second set of
arrays, sorted by offset (the spill), and the floor goes on. Hot module: see docs/adr/0001. Read next: `work_group.py`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import cython

if not cython.compiled:
    from polymq.wire.inline import load_i64, store_i64

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEFERRED", "FAIL_NOT_LEASED", "FAIL_NOT_OWNED", "LEASED", "SETTLED", "SLOTS_DENSE", "WAITING", "LeaseWindow"]

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
# Arrays do not grow beyond this while they are mostly settled; then stragglers move to the spill instead.
SLOTS_DENSE: Final = 1 << 18
# Stragglers are moved when at most one slot in this many is unsettled: an entry of the spill costs about two slots.
_SPARSE_RATIO: Final = 4
# Pairs per piece of a snapshot: 64 KiB.
_PAIRS_PER_PIECE: Final = 4096


@cython.cclass
class LeaseWindow:
    """The slots of one (group, partition).

    Offsets are the partition's. Owners are small positive integers given by the group, one per subscription.
    Cost: 7 bytes per slot between floor and next, 15 per entry of the spill.
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
    spill_offset: cython.longlong[::1]
    spill_state: cython.uchar[::1]
    spill_attempts: cython.ushort[::1]
    spill_owner: cython.uint[::1]
    spill_count: cython.Py_ssize_t
    spill_dead: cython.Py_ssize_t
    spill_capacity: cython.Py_ssize_t
    slots_dense: cython.longlong
    ranges: cython.uchar[::1]
    range_count: cython.Py_ssize_t
    range_capacity: cython.Py_ssize_t

    def __init__(self, partition: int, start: int, slots_dense: int = SLOTS_DENSE) -> None:
        self.partition = partition
        self.base = start
        self.floor = start
        self.next = start
        self.capacity = 0
        self.leased = 0
        self.spill_count = 0
        self.spill_dead = 0
        self.spill_capacity = 0
        self.slots_dense = slots_dense
        self.range_count = 0
        self.range_capacity = 0

    def lease(self, count: cython.longlong, owner: cython.uint, attempts: cython.int = 1) -> None:
        """Hand out the next `count` offsets, as this attempt. Cost: a few ns per message."""
        assert count > 0
        assert 0 < attempts <= _ATTEMPTS_MAX
        self._hand_out(count, 1, attempts, owner)
        self.leased += count

    def skip(self, count: cython.longlong) -> None:
        """Settle the next `count` offsets without handing them out (sampling, damage)."""
        assert count > 0
        self._note(self.next, self.next + count - 1)
        self._step_over(self.next + count)

    @cython.cfunc
    def _step_over(self, end: cython.longlong) -> cython.void:
        """Settle what comes before `end`: without slots unless something is out, and then stragglers may move in between."""
        while self.next < end:
            self._raise_floor()
            if self.floor == self.next:
                self.base = self.floor = self.next = end
            else:
                self._hand_out(min(end - self.next, SLOTS_DENSE), 2, 0, 0)

    @cython.cfunc
    def _hand_out(self, count: cython.longlong, state: cython.uchar, attempts: cython.ushort, owner: cython.uint) -> cython.void:
        """Give the next `count` offsets slots."""
        self._make_room(count)
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t = self.next - self.base
        for i in range(first, first + count):
            self.state[i] = state
            self.attempts[i] = attempts
            self.owner[i] = owner
        self.next += count

    def lease_again(self, offset: cython.longlong, owner: cython.uint) -> int:
        """Hand out an offset that waits for redelivery; gives its attempt number. Asserts that it waits."""
        attempts: cython.int
        i: cython.Py_ssize_t
        if offset < self.base:
            i = self._find_spilled(offset)
            assert i >= 0
            assert self.spill_state[i] == 3
            attempts = min(self.spill_attempts[i] + 1, _ATTEMPTS_MAX)
            self.spill_state[i] = 1
            self.spill_attempts[i] = attempts
            self.spill_owner[i] = owner
            self.leased += 1
            return attempts
        i = offset - self.base
        assert offset < self.next
        assert self.state[i] == 3
        attempts = min(self.attempts[i] + 1, _ATTEMPTS_MAX)
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
                code = self._settle_spilled(offset, owner)
                if code:
                    failures.append((i, code))
            i += 1
        if run_first >= 0:
            self._note(run_first, run_last)
        self._raise_floor()
        return i - first

    @cython.cfunc
    def _find_spilled(self, offset: cython.longlong) -> cython.Py_ssize_t:
        """Find an unsettled entry of the spill; -1 if there is none for that offset."""
        i: cython.Py_ssize_t = self._first_spilled(offset)
        if i < self.spill_count and self.spill_offset[i] == offset and self.spill_state[i] != 2:
            return i
        return -1

    @cython.cfunc
    def _first_spilled(self, offset: cython.longlong) -> cython.Py_ssize_t:
        """Find the first entry of the spill at or behind an offset, settled or not."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.spill_count
        middle: cython.Py_ssize_t
        while low < high:
            middle = (low + high) // 2
            if self.spill_offset[middle] < offset:
                low = middle + 1
            else:
                high = middle
        return low

    @cython.cfunc
    def _drop_spilled(self, i: cython.Py_ssize_t) -> cython.void:
        """Settle an entry of the spill; entries in front that are settled are skipped from then on."""
        self.spill_state[i] = 2
        self.spill_dead += 1
        if self.spill_dead == self.spill_count:
            self.spill_count = 0
            self.spill_dead = 0

    def _settle_spilled(self, offset: int, owner: int) -> int:
        i: cython.Py_ssize_t = self._find_spilled(offset)
        if i < 0 or self.spill_state[i] != LEASED:
            return FAIL_NOT_LEASED
        if self.spill_owner[i] != owner:
            return FAIL_NOT_OWNED
        self._drop_spilled(i)
        self.leased -= 1
        self._note(offset, offset)
        return 0

    def discard(self, offset: int) -> None:
        """Settle a message that waits and can never be delivered. Asserts that it waits."""
        assert self.slot(offset)[0] == WAITING
        i: cython.Py_ssize_t
        if offset < self.base:
            self._drop_spilled(self._find_spilled(offset))
        else:
            i = offset - self.base
            self.state[i] = 2
        self._note(offset, offset)
        self._raise_floor()

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
        k: cython.Py_ssize_t = self._find_spilled(offset)
        return (self.spill_state[k], self.spill_attempts[k], self.spill_owner[k]) if k >= 0 else (SETTLED, 0, 0)

    def put_back(self, offset: int, *, deferred: bool) -> int:
        """End a lease without settling; gives the attempts so far. Asserts that the message is out."""
        state = DEFERRED if deferred else WAITING
        i: cython.Py_ssize_t
        self.leased -= 1
        if offset < self.base:
            i = self._find_spilled(offset)
            assert i >= 0
            assert self.spill_state[i] == LEASED
            self.spill_state[i] = state
            return self.spill_attempts[i]
        assert offset < self.next
        i = offset - self.base
        assert self.state[i] == 1
        self.state[i] = state
        return self.attempts[i]

    def wake(self, offset: int) -> bool:
        """Make a deferred message wait for redelivery; False if it is not deferred any more."""
        if self.slot(offset)[0] != DEFERRED:
            return False
        i: cython.Py_ssize_t
        if offset < self.base:
            i = self._find_spilled(offset)
            self.spill_state[i] = WAITING
        else:
            i = offset - self.base
            self.state[i] = WAITING
        return True

    def leased_in(self, first: int, count: int, owner: int, attempts: int) -> list[int]:
        """List the offsets of a run that `owner` still has out from that very delivery."""
        found: list[int] = []
        i: cython.Py_ssize_t
        end: cython.longlong = first + count
        wanted_owner: cython.uint = owner
        wanted_attempts: cython.int = attempts
        if first < self.base:
            i = self._first_spilled(first)
            while i < self.spill_count and self.spill_offset[i] < end:
                if self.spill_state[i] == 1 and self.spill_owner[i] == wanted_owner and self.spill_attempts[i] == wanted_attempts:
                    found.append(self.spill_offset[i])
                i += 1
        start: cython.longlong = max(first, self.base)
        for i in range(start - self.base, end - self.base):
            if self.state[i] == 1 and self.owner[i] == wanted_owner and self.attempts[i] == wanted_attempts:
                found.append(i + self.base)
        return found

    def is_over(self, first: cython.longlong, count: cython.longlong, owner: cython.uint, attempts: cython.int) -> bool:
        """Say whether nothing of a run is out any more. O(1) for a run behind the floor when nothing is spilled."""
        i: cython.Py_ssize_t
        end: cython.longlong = first + count
        if first < self.base and self.spill_count > 0:
            i = self._first_spilled(first)
            while i < self.spill_count and self.spill_offset[i] < end:
                if self.spill_state[i] == 1 and self.spill_owner[i] == owner and self.spill_attempts[i] == attempts:
                    return False
                i += 1
        if self.floor >= end:
            return True
        start: cython.longlong = first if first > self.base else self.base
        for i in range(start - self.base, end - self.base):
            if self.state[i] == 1 and self.owner[i] == owner and self.attempts[i] == attempts:
                return False
        return True

    def empty(self, end: int) -> None:
        """Settle everything below `end`, whatever its state."""
        assert end >= self.next
        self.base = end
        self.floor = end
        self.next = end
        self.leased = 0
        self.spill_count = 0
        self.spill_dead = 0
        self.range_count = 0

    def restore(self, offset: int, attempts: int, *, deferred: bool) -> None:
        """Recovery: the offset below `next` is unsettled and waits for redelivery, now or later."""
        assert offset < self.next
        state = DEFERRED if deferred else WAITING
        i: cython.Py_ssize_t
        if offset < self.base:
            self._put_spilled(offset, state, attempts, 0)
        else:
            i = offset - self.base
            self.state[i] = state
            self.attempts[i] = attempts
            self.owner[i] = 0
            self.floor = min(self.floor, offset)

    def restore_next(self, end: int) -> None:
        """Recovery: everything from `next` to `end` counts as handed out and waiting."""
        count: cython.longlong = end - self.next
        if count > 0:
            self._hand_out(count, 3, 0, 0)

    def restore_settled(self, first: int, last: int) -> None:
        """Recovery: these offsets, all below `next`, are settled; what they were does not matter."""
        i: cython.Py_ssize_t
        if first < self.base and self.spill_count > 0:
            i = self._first_spilled(first)
            while i < self.spill_count and self.spill_offset[i] <= last:
                if self.spill_state[i] != 2:
                    self._drop_spilled(i)
                i += 1
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
            first, last = load_i64(view, at), load_i64(view, at + 8)
            self.restore_next(first)
            self.restore_settled(first, last)
            self._step_over(last + 1)

    def truncate(self, end: int) -> None:
        """Recovery: forget everything from `end` on, as if it had never been handed out."""
        if self.next <= end:
            return
        kept: cython.Py_ssize_t = self._first_spilled(end)
        i: cython.Py_ssize_t
        for i in range(kept, self.spill_count):
            if self.spill_state[i] == 2:
                self.spill_dead -= 1
        self.spill_count = kept
        self.next = end
        self.base = min(self.base, end)
        self.floor = min(self.floor, end)

    def unsettled(self) -> Iterator[tuple[int, int, int]]:
        """List (offset, state, attempts) of everything handed out and not settled, in order: for snapshots."""
        yield from ((offset, state, attempts) for offset, state, attempts, _owner in self.stragglers())
        for offset in range(self.floor, self.next):
            state, attempts, _owner = self.slot(offset)
            if state != SETTLED:
                yield offset, state, attempts

    def stragglers(self) -> list[tuple[int, int, int, int]]:
        """List (offset, state, attempts, owner) of what is in the spill, in order."""
        rows: list[tuple[int, int, int, int]] = []
        i: cython.Py_ssize_t
        for i in range(self.spill_count):
            if self.spill_state[i] != 2:
                rows.append((self.spill_offset[i], self.spill_state[i], self.spill_attempts[i], self.spill_owner[i]))
        return rows

    def unsettled_pairs(self) -> list[bytes]:
        """Give what `unsettled` lists as pieces of at most 4,096 (offset i64, attempts i64) pairs: for snapshots.

        Cost: a few ns per slot between floor and next.
        """
        pieces: list[bytes] = []
        buffer = bytearray(_PAIRS_PER_PIECE * 16)
        view: cython.uchar[::1] = buffer
        at: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        for i in range(self.spill_count):
            if self.spill_state[i] != 2:
                store_i64(view, at, self.spill_offset[i])
                store_i64(view, at + 8, self.spill_attempts[i])
                at += 16
                if at == _PAIRS_PER_PIECE * 16:
                    pieces.append(bytes(buffer))
                    at = 0
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
        i: cython.Py_ssize_t
        for i in range(self.spill_count):
            if self.spill_state[i] != 2:
                return self.spill_offset[i]
        self._raise_floor()
        return self.floor

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
        if live * 2 > self.capacity and self.capacity >= self.slots_dense:
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
        """Move the few unsettled slots of the older half to the spill, if they are few."""
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
                self._put_spilled(self.base + i, self.state[i], self.attempts[i], self.owner[i])
                self.state[i] = 2
        self._raise_floor()

    @cython.cfunc
    def _put_spilled(self, offset: cython.longlong, state: cython.uchar, attempts: cython.ushort, owner: cython.uint) -> cython.void:
        """Put an entry into the spill, in order; at its end, but for recovery."""
        i: cython.Py_ssize_t = self._first_spilled(offset)
        k: cython.Py_ssize_t
        if i < self.spill_count and self.spill_offset[i] == offset:
            if self.spill_state[i] == 2:
                self.spill_dead -= 1
        else:
            if self.spill_count == self.spill_capacity:
                self._grow_spill()
                i = self._first_spilled(offset)
            k = self.spill_count
            while k > i:
                self.spill_offset[k] = self.spill_offset[k - 1]
                self.spill_state[k] = self.spill_state[k - 1]
                self.spill_attempts[k] = self.spill_attempts[k - 1]
                self.spill_owner[k] = self.spill_owner[k - 1]
                k -= 1
            self.spill_count += 1
        self.spill_offset[i] = offset
        self.spill_state[i] = state
        self.spill_attempts[i] = attempts
        self.spill_owner[i] = owner

    @cython.cfunc
    def _grow_spill(self) -> cython.void:
        """Leave the settled entries out, and make room if that was not enough."""
        live: cython.Py_ssize_t = self.spill_count - self.spill_dead
        capacity: cython.Py_ssize_t = max(64, self.spill_capacity)
        while live * 2 > capacity:
            capacity *= 2
        offset: cython.longlong[::1] = array("q", bytes(8 * capacity))
        state: cython.uchar[::1] = bytearray(capacity)
        attempts: cython.ushort[::1] = array("H", bytes(2 * capacity))
        owner: cython.uint[::1] = array("I", bytes(4 * capacity))
        i: cython.Py_ssize_t
        to: cython.Py_ssize_t = 0
        for i in range(self.spill_count):
            if self.spill_state[i] != 2:
                offset[to] = self.spill_offset[i]
                state[to] = self.spill_state[i]
                attempts[to] = self.spill_attempts[i]
                owner[to] = self.spill_owner[i]
                to += 1
        self.spill_offset = offset
        self.spill_state = state
        self.spill_attempts = attempts
        self.spill_owner = owner
        self.spill_count = to
        self.spill_dead = 0
        self.spill_capacity = capacity
