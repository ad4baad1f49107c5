"""What a PHPMQ client sends, from bytes to events: the hot half of the server's codec, compiled where possible.

The decoder walks a view of what has been read and says how much of it is done with; the rest comes again at the start of the
next view, with more behind it. Laws: a message is looked at as a whole or not at all, and `need` says how many bytes that takes
as far as is known, so that however the stream is cut each byte is looked at a few times at most; nothing is made per message of a
run, only entries in arrays; what is wrong is found where it stands, behind the events of everything before.

Read next: `codes` for the grammar, `problems` for what may be wrong.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import cython

from polymq.phpmq_limits import (
    HEAD_SIZE_BYTES,
    ID_SIZE_BYTES_MAX,
    MESSAGE_HEAD_SIZE_BYTES,
    NUMBER_SIZE_BYTES_MAX,
    QUEUE_SIZE_BYTES_MAX,
    RUN_SIZE_BYTES_MAX,
)
from polymq.protocols.phpmq.codes import PACKETS, VERSION, MessageType
from polymq.protocols.phpmq.events import Consume, Event, ForeignId, Publish, Remove, Requeue, Settle, Violation
from polymq.protocols.phpmq.problems import Problem
from polymq.wire.slices import MessageBatch

if not cython.compiled:
    from polymq.protocols.phpmq.ids import read_id
    from polymq.wire.inline import load_i64

if TYPE_CHECKING:
    from polymq.protocols.phpmq.settings import PhpmqSettings

__all__ = ["Decoder"]

_HEAD_SIZE = cython.declare(cython.Py_ssize_t, 32)
_MESSAGE_HEAD_SIZE = cython.declare(cython.Py_ssize_t, 8)
_RUN_SIZE_MAX = cython.declare(cython.longlong, RUN_SIZE_BYTES_MAX)
_QUEUE_SIZE_MAX = cython.declare(cython.longlong, QUEUE_SIZE_BYTES_MAX)
_ID_SIZE_MAX = cython.declare(cython.longlong, ID_SIZE_BYTES_MAX)
_NUMBER_SIZE_MAX = cython.declare(cython.longlong, NUMBER_SIZE_BYTES_MAX)
_ID_SIZE = cython.declare(cython.Py_ssize_t, 32)
_VERSION = cython.declare(cython.longlong, 1)
# Eight digits "0", as one integer.
_ZEROS = cython.declare(cython.longlong, 0x3030303030303030)
# What a number is that has more digits than fit.
_ENDLESS = cython.declare(cython.longlong, 0x3FFFFFFFFFFFFFFF)
_TENTH = cython.declare(cython.longlong, 0x0666666666666665)
# Types of messages and packets, as `codes` has them: integers of C, because they are compared in the hot path.
_SEND = cython.declare(cython.int, 1)
_CONSUME = cython.declare(cython.int, 2)
_ACKNOWLEDGE = cython.declare(cython.int, 4)
_REQUEUE = cython.declare(cython.int, 5)
_DEAD_LETTER = cython.declare(cython.int, 6)
_QUEUE = cython.declare(cython.int, 1)
_CONTENT = cython.declare(cython.int, 2)
_ID = cython.declare(cython.int, 3)
_COUNT = cython.declare(cython.int, 4)
_TTL = cython.declare(cython.int, 5)
_COUNTS = cython.declare(cython.int, 5)

# Events of a feed, unless somebody says how many.
_NEVER_TOO_MANY = cython.declare(cython.Py_ssize_t, 1 << 30)
# Entries of the arrays: at first, and what is kept between feeds. A read of 256 KiB has at most 2,500 messages.
_CAPACITY_FIRST = cython.declare(cython.Py_ssize_t, 64)
_CAPACITY_KEPT_MAX = cython.declare(cython.Py_ssize_t, 4 * 1024)

_NO_VIEW: Final = memoryview(b"")

assert (HEAD_SIZE_BYTES, MESSAGE_HEAD_SIZE_BYTES, VERSION) == (32, 8, 1)


def _packets_wanted() -> array[int]:
    """Write down which packets a message has, as bits, at `type * _COUNTS + count`; 0: there is no such message from a client."""
    table = array("q", bytes(8 * (max(MessageType) + 1) * _COUNTS))
    for (kind, count), packets in PACKETS.items():
        if kind != MessageType.DISPATCH:
            table[kind * _COUNTS + count] = sum(1 << packet for packet in packets)
    return table


@cython.cclass
class Decoder:
    """The server's ear on one connection.

    Feed it, then obey `need`: the bytes that must be there at the start of the next view before another feed can get any
    further; 0 if it has stopped behind `events_max` events, or one more. After a `Violation` all input is swallowed. `partial` says whether a message has begun that is not all there.
    """

    events_max = cython.declare(cython.Py_ssize_t, visibility="public")
    _salt: cython.ulonglong
    _content_size_max: cython.longlong
    _ttl_max: cython.longlong
    _wanted: cython.longlong[::1]
    _view: memoryview
    _events: list[Event]
    _need: cython.Py_ssize_t
    _ended: cython.bint
    _partial: cython.bint
    # Of the message that is being looked at.
    _kind: cython.int
    _count: cython.int
    _field_at: cython.longlong[::1]
    _field_size: cython.longlong[::1]
    # The run under way: its type, 0 for none.
    _run_kind: cython.int
    _run_count: cython.int
    _run_first: cython.Py_ssize_t
    _run_total: cython.longlong
    _run_foreign: cython.Py_ssize_t
    _run_ttls: cython.bint
    _queue: bytes
    _queue_bytes: cython.const[cython.uchar][::1]
    _queue_size: cython.Py_ssize_t
    # Scratch: positions or ids, sizes, TTLs; and how many entries this feed has used.
    _positions: cython.longlong[::1]
    _sizes: cython.longlong[::1]
    _ttls: cython.longlong[::1]
    _positions_view: memoryview
    _sizes_view: memoryview
    _ttls_view: memoryview
    _capacity: cython.Py_ssize_t
    _used: cython.Py_ssize_t

    def __init__(self, settings: PhpmqSettings) -> None:
        self.events_max = _NEVER_TOO_MANY
        self._salt = settings.salt
        self._content_size_max = settings.content_size_bytes_max
        self._ttl_max = settings.ttl_s_max
        self._wanted = _packets_wanted()
        self._view = _NO_VIEW
        self._events = []
        self._need = _MESSAGE_HEAD_SIZE
        self._ended = self._partial = False
        self._kind = self._count = 0
        self._field_at = array("q", bytes(8 * 6))
        self._field_size = array("q", bytes(8 * 6))
        self._run_kind = self._run_count = 0
        self._run_first = self._run_foreign = self._used = 0
        self._run_total = 0
        self._run_ttls = False
        self._queue = self._queue_bytes = b""
        self._queue_size = 0
        self._allocate(_CAPACITY_FIRST)

    @property
    def need(self) -> int:
        """Bytes that the next view must have for another feed to make progress."""
        return self._need

    @property
    def partial(self) -> bool:
        """Whether the last view ended within a message."""
        return bool(self._partial)

    def feed(self, view: memoryview) -> tuple[list[Event], int]:
        """Decode what has come: the events, and how many bytes of the view are done with.

        Limits:  those of the settings; a queue's name, an id and a number as `phpmq_limits` says.
        Cost:    O(messages), contents are not looked at; no copies but of queues' names. Batches and arrays in the
                 events are valid until the next feed.
        """
        data: cython.const[cython.uchar][::1] = view
        end: cython.Py_ssize_t = len(view)
        at: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        events: list[Event] = []
        self._events = events
        self._view = view
        self._used = 0
        if self._capacity > _CAPACITY_KEPT_MAX:
            self._allocate(_CAPACITY_FIRST)
        stopped: cython.bint = False
        while not self._ended:
            if len(events) >= self.events_max:
                stopped = True
                self._need = 0
                break
            size = self._look(data, at, end)
            if size == 0 or not self._take(data):
                break
            at += size
        self._end_run()
        self._partial = not self._ended and not stopped and at < end
        if self._ended:
            self._need = 1
            at = end
        # Who is fed must not keep the view: its owner could not resize or release the buffer.
        self._events = []
        self._view = _NO_VIEW
        return events, at

    # -- one message -----------------------------------------------------------------------------------------------

    @cython.cfunc
    def _violate(self, problem: Problem, text: str) -> None:
        self._end_run()
        self._events.append(Violation(problem, text))
        self._ended = True

    @cython.cfunc
    def _look(self, data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Find the packets of the message at `start`; gives its size, or 0 if it is not all there (see `need`) or is none."""
        at: cython.Py_ssize_t = start + _MESSAGE_HEAD_SIZE
        kind: cython.longlong
        length: cython.longlong
        wanted: cython.longlong
        left: cython.int
        if end - start < _MESSAGE_HEAD_SIZE:
            self._need = _MESSAGE_HEAD_SIZE
            return 0
        wanted = self._look_at_head(data, start)
        if self._ended:
            return 0
        left = self._count
        while left > 0:
            if end - at < _HEAD_SIZE:
                self._need = at + _HEAD_SIZE - start
                return 0
            if data[at] != 80:  # P
                self._violate(Problem.PACKET, "a packet does not begin with P")
                return 0
            kind = _digits(data, at + 1, 2)
            length = _long_digits(data, at + 3)
            if kind < 0 or length < 0:
                self._violate(Problem.DIGITS, "the head of a packet has something else than digits")
                return 0
            if kind < _QUEUE or kind > _TTL or not (wanted >> kind) & 1:
                problem, text = _wrong_packet(self._kind, self._count, kind)
                self._violate(problem, text)
                return 0
            if length > self._most(kind):
                self._violate(Problem.LENGTH, f"a packet of type {kind} has {length} bytes, {self._most(kind)} is the limit")
                return 0
            wanted &= ~(1 << kind)
            at += _HEAD_SIZE
            self._field_at[kind] = at
            self._field_size[kind] = length
            if end - at < length:
                self._need = at + length - start
                return 0
            at += length
            left -= 1
        return at - start

    @cython.cfunc
    def _look_at_head(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
        """Read a message's head; gives which packets it has, as bits."""
        version: cython.longlong = _digits(data, at + 1, 2)
        kind: cython.longlong = _digits(data, at + 3, 3)
        count: cython.longlong = _digits(data, at + 6, 2)
        wanted: cython.longlong = 0
        if data[at] != 72:  # H
            self._violate(Problem.HEADER, "a message does not begin with H")
        elif version < 0 or kind < 0 or count < 0:
            self._violate(Problem.DIGITS, "the head of a message has something else than digits")
        elif version != _VERSION:
            self._violate(Problem.VERSION, f"there is no version {version}")
        elif not _is_sent_here(kind):
            self._violate(Problem.TYPE, f"clients send no messages of type {kind}")
        else:
            wanted = self._wanted[kind * _COUNTS + count] if count < _COUNTS else 0
            if wanted == 0:
                self._violate(Problem.COUNT, f"a message of type {kind} has not {count} packets")
            self._kind = kind
            self._count = count
        return wanted

    @cython.cfunc
    @cython.exceptval(check=False)
    def _most(self, kind: cython.longlong) -> cython.longlong:
        """Say how long a packet may be."""
        if kind == _QUEUE:
            return _QUEUE_SIZE_MAX
        if kind == _CONTENT:
            return self._content_size_max
        return _ID_SIZE_MAX if kind == _ID else _NUMBER_SIZE_MAX

    @cython.cfunc
    @cython.exceptval(check=False)
    def _number(self, data: cython.const[cython.uchar][::1], kind: cython.int) -> cython.longlong:
        """Read the number in a packet; -1 if it is none."""
        return _digits(data, self._field_at[kind], self._field_size[kind]) if self._field_size[kind] else -1

    @cython.cfunc
    def _take(self, data: cython.const[cython.uchar][::1]) -> cython.bint:
        """Act on the message whose packets were found; False if it is no good."""
        number: cython.longlong = 0
        if self._kind == _SEND:
            if self._count == 3:
                number = self._number(data, _TTL)
                if number < 0 or number > self._ttl_max:
                    self._violate(Problem.NUMBER, f"a TTL is a number of seconds, at most {self._ttl_max}")
                    return False
            self._note_publish(data, number)
        elif self._kind == _ACKNOWLEDGE:
            self._note_settle(data)
        else:
            self._end_run()
            return self._take_rare(data)
        return True

    @cython.cfunc
    def _take_rare(self, data: cython.const[cython.uchar][::1]) -> cython.bint:
        at: cython.Py_ssize_t = self._field_at[_QUEUE]
        number: cython.longlong
        message_id: cython.longlong
        queue = bytes(self._view[at : at + self._field_size[_QUEUE]])
        if self._kind == _CONSUME:
            number = self._number(data, _COUNT)
            if number < 0:
                self._violate(Problem.NUMBER, "a count is a number that is not negative")
                return False
            self._events.append(Consume(queue, number))
            return True
        number = self._number(data, _TTL) if self._kind == _REQUEUE else 0
        if number < 0 or number > self._ttl_max:
            self._violate(Problem.NUMBER, f"a TTL is a number of seconds, at most {self._ttl_max}")
            return False
        message_id = self._id(data)
        if message_id < 0:
            self._events.append(ForeignId(queue))
        elif self._kind == _REQUEUE:
            self._events.append(Requeue(queue, message_id, number))
        else:
            self._events.append(Remove(queue, message_id))
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _id(self, data: cython.const[cython.uchar][::1]) -> cython.longlong:
        """Read the id; -1 if it is not one of ours."""
        return read_id(data, self._field_at[_ID], self._salt) if self._field_size[_ID] == _ID_SIZE else -1

    # -- runs ------------------------------------------------------------------------------------------------------

    @cython.cfunc
    def _begin_run(self, data: cython.const[cython.uchar][::1]) -> None:
        """Make sure that the run under way is of this type and queue."""
        at: cython.Py_ssize_t = self._field_at[_QUEUE]
        size: cython.Py_ssize_t = self._field_size[_QUEUE]
        i: cython.Py_ssize_t = 0
        if self._run_kind == self._kind and self._run_count == self._count and size == self._queue_size:
            while i < size and data[at + i] == self._queue_bytes[i]:
                i += 1
            if i == size:
                return
        self._end_run()
        self._run_kind = self._kind
        self._run_count = self._count
        self._run_first = self._used
        self._run_total = 0
        self._run_foreign = 0
        self._run_ttls = False
        self._queue = bytes(self._view[at : at + size])
        self._queue_bytes = self._queue
        self._queue_size = size

    @cython.cfunc
    def _note_publish(self, data: cython.const[cython.uchar][::1], ttl: cython.longlong) -> None:
        size: cython.longlong = self._field_size[_CONTENT]
        self._begin_run(data)
        if self._run_total + size > _RUN_SIZE_MAX and self._used > self._run_first:
            self._end_run()
            self._begin_run(data)
        if self._used == self._capacity:
            self._grow()
        self._positions[self._used] = self._field_at[_CONTENT]
        self._sizes[self._used] = size
        self._ttls[self._used] = ttl
        self._used += 1
        self._run_total += size
        if ttl:
            self._run_ttls = True

    @cython.cfunc
    def _note_settle(self, data: cython.const[cython.uchar][::1]) -> None:
        message_id: cython.longlong = self._id(data)
        self._begin_run(data)
        if message_id < 0:
            self._run_foreign += 1
            return
        if self._used == self._capacity:
            self._grow()
        self._positions[self._used] = message_id
        self._used += 1

    @cython.cfunc
    def _end_run(self) -> None:
        """Tell of the run under way, if there is one."""
        first: cython.Py_ssize_t = self._run_first
        count: cython.Py_ssize_t = self._used - first
        if self._run_kind == _SEND:
            batch = MessageBatch(self._view, self._positions_view, self._sizes_view, first=first, count=count, size_bytes=self._run_total)
            self._events.append(Publish(self._queue, batch, self._ttls_view if self._run_ttls else None, self._run_count == 2))
        elif self._run_kind == _ACKNOWLEDGE:
            self._events.append(Settle(self._queue, self._positions_view, first, count, self._run_foreign))
        self._run_kind = 0

    @cython.cfunc
    def _allocate(self, capacity: cython.Py_ssize_t) -> None:
        self._positions_view = memoryview(array("q", bytes(8 * capacity)))
        self._sizes_view = memoryview(array("q", bytes(8 * capacity)))
        self._ttls_view = memoryview(array("q", bytes(8 * capacity)))
        self._positions = self._positions_view
        self._sizes = self._sizes_view
        self._ttls = self._ttls_view
        self._capacity = capacity

    @cython.cfunc
    def _grow(self) -> None:
        """Double the arrays. Events already made keep the old ones, so these are copied, never resized."""
        i: cython.Py_ssize_t
        old_positions: cython.longlong[::1] = self._positions
        old_sizes: cython.longlong[::1] = self._sizes
        old_ttls: cython.longlong[::1] = self._ttls
        self._allocate(2 * self._capacity)
        for i in range(self._used):
            self._positions[i] = old_positions[i]
            self._sizes[i] = old_sizes[i]
            self._ttls[i] = old_ttls[i]


@cython.cfunc
@cython.exceptval(check=False)
def _is_sent_here(kind: cython.longlong) -> cython.bint:
    """Say whether a client sends messages of a type."""
    return _SEND <= kind <= _CONSUME or _ACKNOWLEDGE <= kind <= _DEAD_LETTER


@cython.cfunc
@cython.exceptval(check=False)
def _digits(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.longlong:
    """Read a decimal number; -1 if something else is there, _ENDLESS if it is too large."""
    value: cython.longlong = 0
    digit: cython.int
    i: cython.Py_ssize_t
    for i in range(at, at + size):
        digit = data[i]
        if digit < 48 or digit > 57:
            return -1
        value = value * 10 + (digit - 48) if value <= _TENTH else _ENDLESS
    return value


@cython.cfunc
@cython.exceptval(check=False)
def _long_digits(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    """Read the 29 digits of a length: nearly always the first 24 are zeros, and are looked at eight at a time."""
    if load_i64(data, at) == _ZEROS and load_i64(data, at + 8) == _ZEROS and load_i64(data, at + 16) == _ZEROS:
        return _digits(data, at + 24, 5)
    return _digits(data, at, 29)


def _wrong_packet(kind: int, count: int, packet: int) -> tuple[Problem, str]:
    """Say what is wrong with a packet that is not wanted (any more)."""
    if packet in PACKETS[kind, count]:
        return Problem.DUPLICATE, f"a second packet of type {packet}"
    return Problem.PACKET_TYPE, f"a message of type {kind} with {count} packets has none of type {packet}"
