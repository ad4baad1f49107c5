"""What lies in the files of nsqd's disk queues, as columns: which messages there are, and in which queues.

A topic's messages lie in a file queue of the topic itself (not yet copied to channels) and in one of each channel, so
one message may be in many of them, under the same id. `MessageIndex` is given the files of all queues of one topic
and finds out what is the same; `merge` puts the queues into one order; `ranges_of` says what one queue has of it.
Everything is arrays: a folder may hold many millions of messages. Hot module: see docs/adr/0001.

    a file is records back to back:

     0        4              12         14               30              4 + n
    +--------+--------------+----------+----------------+---------------+
    | n      | published at | attempts | message id     | body          |
    | i32 be | i64 be (ns)  | u16 be   | 16 ASCII hex   | n - 26 bytes  |
    +--------+--------------+----------+----------------+---------------+

Source: nsqd/message.go and go-diskqueue 1.1.0, NSQ 1.3.0.
"""

from __future__ import annotations

import re
import struct
from array import array
from typing import TYPE_CHECKING, Final

import cython

from polymq import limits

if not cython.compiled:
    from polymq.wire.inline import load_i64, load_u32_be

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = [
    "POSITION_BITS",
    "RECORD_OVERHEAD_BYTES",
    "MessageIndex",
    "QueueColumns",
    "append_rest",
    "merge",
    "oversized",
    "ranges_of",
    "resume",
]

# A message's place: the number of its file, given by the caller, and the position of its record there.
POSITION_BITS: Final = 40
# What a record has beyond the body, its size field included.
RECORD_OVERHEAD_BYTES: Final = 30

_C_POSITION_BITS = cython.declare(cython.int, 40)
_C_POSITION_MASK = cython.declare(cython.longlong, (1 << 40) - 1)
_C_SIZE_FIELD = cython.declare(cython.Py_ssize_t, 4)
# Time, attempts and id: the least that the size field can say.
_C_FIXED = cython.declare(cython.Py_ssize_t, 26)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 30)
_C_BODY_MAX = cython.declare(cython.Py_ssize_t, limits.MESSAGE_SIZE_BYTES_MAX)
_C_TIME_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
# Odd multipliers and a mask of 64 bits, for spreading ids over the table.
_C_ALL = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_C_FACTOR_A = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_C_FACTOR_B = cython.declare(cython.ulonglong, 0xBF58476D1CE4E5B9)
_CAPACITY_FIRST: Final = 256
# What a record of nsqd's looks like, for finding one: its id, where that lies, and times from 2010 to 2100.
_ID: Final = re.compile(rb"[0-9a-f]{16}")
_ID_AT: Final = 14
_SIZE_AND_TIME: Final = struct.Struct(">iq")
_TIME_NS_FIRST: Final = 1_262_304_000 * 10**9
_TIME_NS_END: Final = 4_102_444_800 * 10**9


@cython.cclass
class QueueColumns:
    """One queue: the messages in it, by their number in the index, with the attempts so far. 6 bytes each.

    `repeated` counts messages that lie in the queue more than once, as a killed nsqd leaves them: each is kept once, at
    its first place, with its highest attempts.
    """

    number = cython.declare(cython.int, visibility="readonly")
    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    repeated = cython.declare(cython.Py_ssize_t, visibility="readonly")
    capacity: cython.Py_ssize_t
    messages: cython.int[::1]
    attempts: cython.ushort[::1]

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.repeated = 0
        self.capacity = 0
        self._grow()

    def __len__(self) -> int:
        return self.count

    def tried(self) -> int:
        """Count the messages that were out before."""
        found: cython.Py_ssize_t = 0
        index: cython.Py_ssize_t
        for index in range(self.count):
            if self.attempts[index] != 0:
                found += 1
        return found

    def rows(self) -> list[tuple[int, int]]:
        """List (message, attempts): for tests and tools."""
        return [(self.messages[index], self.attempts[index]) for index in range(self.count)]

    def _grow(self) -> None:
        capacity = max(_CAPACITY_FIRST, 2 * self.capacity)
        messages: cython.int[::1] = array("i", bytes(4 * capacity))
        attempts: cython.ushort[::1] = array("H", bytes(2 * capacity))
        index: cython.Py_ssize_t
        for index in range(self.count):
            messages[index] = self.messages[index]
            attempts[index] = self.attempts[index]
        self.messages = messages
        self.attempts = attempts
        self.capacity = capacity


@cython.cclass
class MessageIndex:
    """The distinct messages of one topic, numbered in the order in which they are found.

    Two records are the same message if id, time and size agree: nsqd gives every channel a copy with the same three.
    Cost: 52 bytes per message while it is loaded, twice that while it grows; 50 ns per record when compiled.
    """

    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    capacity: cython.Py_ssize_t
    id_first: cython.longlong[::1]
    id_last: cython.longlong[::1]
    time: cython.longlong[::1]
    place: cython.longlong[::1]
    size: cython.int[::1]
    # Where a message was seen last: a queue's number, and its index there.
    seen_queue: cython.int[::1]
    seen_at: cython.int[::1]
    # Open addressing: the message's number plus one, 0 where there is none.
    table: cython.int[::1]
    table_mask: cython.ulonglong

    def __init__(self) -> None:
        self.count = 0
        self.capacity = 0
        self._grow()

    def __len__(self) -> int:
        return self.count

    def scan(self, view: Buffer, position: int, end: int, file: int, queue: QueueColumns) -> int:
        """Take in the records in `view[position:end]`, the contents of `file`; gives where it stopped.

        That is `end`, or the place of a record that is damaged, cut off or too large: `oversized` tells.
        """
        source: cython.const[cython.uchar][::1] = view
        assert 0 <= position <= end <= len(source)
        at: cython.Py_ssize_t = position
        stop: cython.Py_ssize_t = end
        base: cython.longlong = file << POSITION_BITS
        size: cython.Py_ssize_t
        time: cython.longlong
        message: cython.int
        while stop - at >= _C_OVERHEAD:
            size = load_u32_be(source, at)
            if size < _C_FIXED or size > stop - at - _C_SIZE_FIELD or size - _C_FIXED > _C_BODY_MAX:
                break
            time = (cython.cast(cython.longlong, load_u32_be(source, at + 4)) << 32) | load_u32_be(source, at + 8)
            if time < 0 or time > _C_TIME_MAX:
                time = 0
            message = self._number(load_i64(source, at + 14), load_i64(source, at + 22), time, base + at, size - _C_FIXED)
            self._enter(queue, message, (source[at + 12] << 8) | source[at + 13])
            at += _C_SIZE_FIELD + size
        return at

    @cython.cfunc
    def _number(
        self, id_first: cython.longlong, id_last: cython.longlong, time: cython.longlong, place: cython.longlong, size: cython.int
    ) -> cython.int:
        """Find a message, or enter it as a new one."""
        slot: cython.ulonglong = self._slot(id_first, id_last, time)
        found: cython.int = self.table[slot]
        while found != 0:
            if (
                self.id_last[found - 1] == id_last
                and self.id_first[found - 1] == id_first
                and self.time[found - 1] == time
                and self.size[found - 1] == size
            ):
                return found - 1
            slot = (slot + 1) & self.table_mask
            found = self.table[slot]
        if self.count == self.capacity:
            self._grow()
            slot = self._slot(id_first, id_last, time)
            while self.table[slot] != 0:
                slot = (slot + 1) & self.table_mask
        at: cython.Py_ssize_t = self.count
        self.id_first[at] = id_first
        self.id_last[at] = id_last
        self.time[at] = time
        self.place[at] = place
        self.size[at] = size
        self.seen_queue[at] = -1
        self.count += 1
        self.table[slot] = at + 1
        return at

    @cython.cfunc
    @cython.inline
    def _slot(self, id_first: cython.longlong, id_last: cython.longlong, time: cython.longlong) -> cython.ulonglong:
        """Say where the search for a message begins. Ids that follow one another differ in few bits, hence the shifts."""
        mixed: cython.ulonglong = (cython.cast(cython.ulonglong, id_first) * 31 + cython.cast(cython.ulonglong, id_last)) & _C_ALL
        mixed = (mixed ^ (cython.cast(cython.ulonglong, time) * _C_FACTOR_A)) & _C_ALL
        mixed ^= mixed >> 29
        mixed = (mixed * _C_FACTOR_B) & _C_ALL
        mixed ^= mixed >> 32
        return mixed & self.table_mask

    @cython.cfunc
    def _enter(self, queue: QueueColumns, message: cython.int, attempts: cython.int) -> cython.void:
        """Put a message at the end of a queue, unless it is in it."""
        at: cython.Py_ssize_t
        if self.seen_queue[message] == queue.number:
            at = self.seen_at[message]
            queue.repeated += 1
            if attempts > queue.attempts[at]:
                queue.attempts[at] = attempts
            return
        if queue.count == queue.capacity:
            queue._grow()  # noqa: SLF001 - the two classes share their columns
        at = queue.count
        queue.messages[at] = message
        queue.attempts[at] = attempts
        queue.count += 1
        self.seen_queue[message] = queue.number
        self.seen_at[message] = at

    def _grow(self) -> None:
        """Double the columns, and the table, which stays at most half full."""
        capacity = max(_CAPACITY_FIRST, 2 * self.capacity)
        if self.capacity == 0:
            self.id_first, self.id_last = array("q"), array("q")
            self.time, self.place = array("q"), array("q")
            self.size, self.seen_queue, self.seen_at = array("i"), array("i"), array("i")
        self.id_first = longer(self.id_first, "q", capacity)
        self.id_last = longer(self.id_last, "q", capacity)
        self.time = longer(self.time, "q", capacity)
        self.place = longer(self.place, "q", capacity)
        self.size = longer(self.size, "i", capacity)
        self.seen_queue = longer(self.seen_queue, "i", capacity)
        self.seen_at = longer(self.seen_at, "i", capacity)
        self.capacity = capacity
        self.table = array("i", bytes(4 * 2 * capacity))
        self.table_mask = 2 * capacity - 1
        message: cython.Py_ssize_t
        slot: cython.ulonglong
        for message in range(self.count):
            slot = self._slot(self.id_first[message], self.id_last[message], self.time[message])
            while self.table[slot] != 0:
                slot = (slot + 1) & self.table_mask
            self.table[slot] = message + 1

    def run(
        self, order: array[int], first: int, size_bytes_max: int, columns: tuple[array[int], array[int], array[int]]
    ) -> tuple[int, int, int]:
        """Describe the messages `order[first:]` as far as they lie in one file: positions, sizes and times of the bodies.

        Gives how many there are (at most as many as the columns have room for, at least one), the file's number, and
        the sum of the sizes, which exceeds `size_bytes_max` only with a single message.
        """
        numbers: cython.int[::1] = order
        positions: cython.longlong[::1] = columns[0]
        sizes: cython.longlong[::1] = columns[1]
        times: cython.longlong[::1] = columns[2]
        room: cython.Py_ssize_t = min(len(positions), len(numbers) - first)
        assert room > 0
        start: cython.Py_ssize_t = first
        total: cython.longlong = 0
        size_max: cython.longlong = size_bytes_max
        count: cython.Py_ssize_t = 0
        message: cython.Py_ssize_t = numbers[start]
        file: cython.longlong = self.place[message] >> _C_POSITION_BITS
        while count < room:
            message = numbers[start + count]
            if self.place[message] >> _C_POSITION_BITS != file or (count > 0 and total + self.size[message] > size_max):
                break
            positions[count] = (self.place[message] & _C_POSITION_MASK) + _C_OVERHEAD
            sizes[count] = self.size[message]
            times[count] = self.time[message]
            total += self.size[message]
            count += 1
        return count, file, total

    def body_bytes(self) -> int:
        """Add up the sizes of all bodies."""
        total: cython.longlong = 0
        message: cython.Py_ssize_t
        for message in range(self.count):
            total += self.size[message]
        return total

    def times(self) -> array[int]:
        """Copy out when each message was published."""
        return array("q", bytes(self.time[: self.count]))


def longer(column: Buffer, code: str, capacity: int) -> array[int]:
    """Copy a column into one with room for `capacity` integers."""
    copied: array[int] = array(code, bytes(column))
    copied.frombytes(bytes((capacity - len(copied)) * copied.itemsize))
    return copied


def oversized(view: Buffer, position: int, end: int) -> int:
    """Tell where the next record begins if the one at `position` is sound but larger than any message may be; else 0.

    That it is a record is believed if it ends within the file and its id looks like one.
    """
    with memoryview(view) as whole, whole[position:end] as inside:
        if len(inside) < RECORD_OVERHEAD_BYTES:
            return 0
        size = int.from_bytes(inside[:4], "big")
        if not limits.MESSAGE_SIZE_BYTES_MAX < size - 26 <= len(inside) - RECORD_OVERHEAD_BYTES:
            return 0
        return position + 4 + size if all(byte in b"0123456789abcdef" for byte in inside[14:30]) else 0


def resume(view: Buffer, position: int, end: int) -> int:
    """Find where records begin again behind a damaged one at `position`; gives `end` if they do not.

    A record is believed if it looks like one of nsqd's and ends where another such, or the file, does: there is no
    checksum. A body may hold a record's bytes, but seldom two that follow one another.
    Cost: a search for ids by regular expression, about 1 ns per byte.
    """
    with memoryview(view) as whole, whole[:end] as inside:
        for match in _ID.finditer(inside, position + 1):
            # More characters of an id than an id has: it may begin at any of them, but most likely at the first.
            at = match.start() - _ID_AT
            following = _end_of_record(inside, at) if at > position else 0
            if following == end or (following and _end_of_record(inside, following)):
                return at
    return end


def _end_of_record(view: memoryview, position: int) -> int:
    """Tell where the record ends that seems to begin at `position`; 0 if none does."""
    if len(view) - position < RECORD_OVERHEAD_BYTES:
        return 0
    size, time_ns = _SIZE_AND_TIME.unpack_from(view, position)
    if not 26 <= size <= len(view) - position - 4 or not _TIME_NS_FIRST <= time_ns < _TIME_NS_END:
        return 0
    return position + 4 + size if _ID.match(view, position + _ID_AT) else 0


def merge(queues: Sequence[QueueColumns], times: array[int]) -> tuple[array[int], int]:
    """Put the messages of several queues into one order that keeps each queue's own.

    Where the queues contradict one another, the oldest message that is next in one of them comes next; the second value
    says how often that was so. Without contradictions the older of two messages comes first if the queues do not say.

    `times` are those of the index. Cost: a few ns per message and queue when compiled.
    """
    total: int = sum(len(queue) for queue in queues)
    entries = array("i", bytes(4 * total))
    heads = array("q", bytes(8 * len(queues)))
    ends = array("q", bytes(8 * len(queues)))
    at = 0
    for index, queue in enumerate(queues):
        heads[index] = at
        at = _gather(entries, at, queue)
        ends[index] = at
    order = array("i", bytes(4 * len(times)))
    state = array("i", bytes(4 * len(times)))
    count, forced = _merge(entries, heads, ends, times, state, order)
    del order[count:]
    return order, forced


@cython.cfunc
def _gather(entries: cython.int[::1], at: cython.Py_ssize_t, queue: QueueColumns) -> cython.Py_ssize_t:
    """Copy a queue's messages to where `merge` wants them; gives the position behind them."""
    index: cython.Py_ssize_t
    for index in range(queue.count):
        entries[at + index] = queue.messages[index]
    return at + queue.count


@cython.cfunc
def _merge(
    entries: cython.int[::1],
    heads: cython.longlong[::1],
    ends: cython.longlong[::1],
    times: cython.longlong[::1],
    state: cython.int[::1],
    order: cython.int[::1],
) -> tuple:  # type: ignore[type-arg]  # a C function of this module: nobody else sees its result
    """Do the work of `merge`. `state`: in how many queues a message is behind the head yet; −1 when it is placed."""
    queues: cython.Py_ssize_t = len(heads)
    queue: cython.Py_ssize_t
    index: cython.Py_ssize_t
    message: cython.Py_ssize_t
    best: cython.Py_ssize_t
    oldest: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    forced: cython.Py_ssize_t = 0
    for index in range(len(entries)):
        state[entries[index]] += 1
    for queue in range(queues):
        if heads[queue] < ends[queue]:
            state[entries[heads[queue]]] -= 1
    while True:
        best = -1
        oldest = -1
        for queue in range(queues):
            if heads[queue] == ends[queue]:
                continue
            message = entries[heads[queue]]
            if oldest < 0 or times[message] < times[oldest]:
                oldest = message
            if state[message] == 0 and (best < 0 or times[message] < times[best]):
                best = message
        if oldest < 0:
            break
        if best < 0:
            best = oldest
            forced += 1
        state[best] = -1
        order[count] = best
        count += 1
        for queue in range(queues):
            while heads[queue] < ends[queue] and state[entries[heads[queue]]] < 0:
                heads[queue] += 1
                if heads[queue] < ends[queue] and state[entries[heads[queue]]] > 0:
                    state[entries[heads[queue]]] -= 1
    return count, forced


def append_rest(order: array[int], queue: QueueColumns, total: int) -> array[int]:
    """Give `order` with those messages of a queue behind it that are not in it. `total`: of the index."""
    longer_order = array("i", bytes(4 * (len(order) + len(queue))))
    count: int = _append_rest(order, queue, bytearray(total), longer_order)
    del longer_order[count:]
    return longer_order


@cython.cfunc
def _append_rest(order: cython.int[::1], queue: QueueColumns, placed: cython.uchar[::1], target: cython.int[::1]) -> cython.Py_ssize_t:
    """Do the work of `append_rest`; gives how many there are then."""
    count: cython.Py_ssize_t = len(order)
    index: cython.Py_ssize_t
    for index in range(count):
        target[index] = order[index]
        placed[order[index]] = 1
    for index in range(queue.count):
        if placed[queue.messages[index]] == 0:
            target[count] = queue.messages[index]
            count += 1
    return count


def ranges_of(queues: Sequence[QueueColumns], order: array[int], count: int, total: int) -> array[int]:
    """Say what the queues together have of `order[:count]`, as (first, end, attempts) of positions in it, −1 where nothing.

    Messages that were never out are in no range. `total` is how many messages the index has. Cost: O(total).
    """
    attempts = array("i", b"\xff" * (4 * total))
    for queue in queues:
        _note_attempts(queue, attempts)
    ranges = array("q", bytes(24 * (_count_ranges(order, count, attempts))))
    _fill_ranges(order, count, attempts, ranges)
    return ranges


@cython.cfunc
def _note_attempts(queue: QueueColumns, attempts: cython.int[::1]) -> cython.void:
    """Note for each message of a queue how often it was out."""
    index: cython.Py_ssize_t
    for index in range(queue.count):
        attempts[queue.messages[index]] = max(attempts[queue.messages[index]], cython.cast(cython.int, queue.attempts[index]))


@cython.cfunc
def _count_ranges(order: cython.int[::1], count: cython.Py_ssize_t, attempts: cython.int[::1]) -> cython.Py_ssize_t:
    """Count the runs of equal attempts that are not 0."""
    found: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    last: cython.int = 0
    for index in range(count):
        if attempts[order[index]] != last:
            last = attempts[order[index]]
            if last != 0:
                found += 1
    return found


@cython.cfunc
def _fill_ranges(order: cython.int[::1], count: cython.Py_ssize_t, attempts: cython.int[::1], ranges: cython.longlong[::1]) -> cython.void:
    """Write the runs that `_count_ranges` has counted."""
    at: cython.Py_ssize_t = -3
    index: cython.Py_ssize_t
    last: cython.int = 0
    for index in range(count):
        if attempts[order[index]] != last:
            last = attempts[order[index]]
            if last != 0:
                at += 3
                ranges[at] = index
                ranges[at + 2] = last
        if last != 0:
            ranges[at + 1] = index + 1
