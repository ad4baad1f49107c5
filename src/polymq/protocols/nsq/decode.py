"""What an NSQ client sends, from bytes to events: the hot half of the server's codec, compiled where possible.

The decoder walks a view of what has been read and says how much of it is done with; the rest comes again at the
start of the next view, with more behind it. Laws: every byte is looked at once, however the stream is cut (what was
already found out about the rest is remembered relative to its start); nothing is made per message, only entries in
two arrays, and little per NOP or RDY: of a run of FINs and RDYs the last RDY is what counts; the decoder moves the connection's state itself, so that errors come in nsqd's order and nothing illegal
reaches the gateway. It can do so because SUB and CLS, should they fail later, end the connection anyway.

Read next: `line_runs` for runs of lines, `commands` for all other lines, `problems` for the errors.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import cython

from polymq.protocols.nsq import problems
from polymq.protocols.nsq.commands import BodyAhead, Situation, interpret, situation_of
from polymq.protocols.nsq.events import Auth, Event, Finish, Identify, Nop, Publish, PublishBegun, Ready, SilentClose, Violation
from polymq.protocols.nsq.line_runs import FINISH_SIZE_BYTES
from polymq.protocols.nsq.settings import LINE_SIZE_BYTES_MAX, MAGIC
from polymq.protocols.nsq.states import TRANSITIONS, Command, State
from polymq.wire.slices import MessageBatch

if not cython.compiled:
    from polymq.protocols.nsq.line_runs import read_finishes, repeats
    from polymq.wire.inline import load_u32_be

if TYPE_CHECKING:
    from polymq.protocols.nsq.settings import NsqSettings

__all__ = ["Decoder"]

# What the bytes at the start of the rest are. Integers of C, because they are compared in the hot path.
_MAGIC_AHEAD = cython.declare(cython.int, 0)
_LINE_AHEAD = cython.declare(cython.int, 1)
_SIZE_AHEAD = cython.declare(cython.int, 2)  # of the body of PUB, DPUB, IDENTIFY or AUTH
_BODY_AHEAD = cython.declare(cython.int, 3)
_MULTI_SIZE_AHEAD = cython.declare(cython.int, 4)  # of the body of MPUB
_MULTI_COUNT_AHEAD = cython.declare(cython.int, 5)
_MESSAGES_AHEAD = cython.declare(cython.int, 6)
_ENDED = cython.declare(cython.int, 7)

_FINISH_SIZE = cython.declare(cython.Py_ssize_t, FINISH_SIZE_BYTES)
_LINE_MAX = cython.declare(cython.Py_ssize_t, LINE_SIZE_BYTES_MAX)

# Entries of the two arrays: at first, and what is kept between feeds. A read of 256 KiB has at most 24,000 commands.
_CAPACITY_FIRST = cython.declare(cython.Py_ssize_t, 64)
_CAPACITY_KEPT_MAX = cython.declare(cython.Py_ssize_t, 32 * 1024)

_NO_VIEW: Final = memoryview(b"")


@cython.cclass
class Decoder:
    """The server's ear on one connection.

    Feed it, then obey `need`: the bytes that must be there at the start of the next view before another feed can get
    any further. 0 says that the last event (`Identify`, `Auth`) may change how the rest is to be read: act on it,
    then feed the rest. After a `Violation` or `SilentClose` all input is swallowed.

    Set by the gateway: `heartbeats` (False after an IDENTIFY that switched them off: SUB is then refused) and
    `tls_missing` (True while the server insists on TLS and the connection has none).
    """

    _settings: NsqSettings
    _situation: Situation
    _message_size_max: cython.longlong
    _body_size_max: cython.longlong
    _count_max: cython.longlong
    _finish_legal: cython.bint
    _nop_legal: cython.bint
    # Of the feed that is running.
    _view: memoryview
    _events: list[Event]
    # Where the walk stands; distances are from the start of the rest.
    _phase: cython.int
    _need: cython.Py_ssize_t
    _paused: cython.bint
    _searched: cython.Py_ssize_t
    _ahead: BodyAhead
    _size_max: cython.longlong
    _body_size: cython.Py_ssize_t
    # The MPUB under way.
    _begun: cython.bint
    _walked: cython.Py_ssize_t
    _within: cython.bint
    _count: cython.Py_ssize_t
    _left: cython.Py_ssize_t
    _first: cython.Py_ssize_t
    _base: cython.Py_ssize_t
    _total: cython.longlong
    # The last PUB, MPUB or DPUB line with its newline: the next one is usually the same.
    _line: bytes
    _line_bytes: cython.const[cython.uchar][::1]
    _line_size: cython.Py_ssize_t
    _line_ahead: BodyAhead
    # The last RDY line in the same way.
    _ready_bytes: cython.const[cython.uchar][::1]
    _ready_size: cython.Py_ssize_t
    _ready: Ready
    _finish: Finish
    # Scratch: positions (or message ids) and sizes, and how many entries this feed has used.
    _positions: cython.longlong[::1]
    _sizes: cython.longlong[::1]
    _positions_view: memoryview
    _sizes_view: memoryview
    _capacity: cython.Py_ssize_t
    _used: cython.Py_ssize_t

    def __init__(self, settings: NsqSettings) -> None:
        self._settings = settings
        self._message_size_max = settings.message_size_bytes_max
        self._body_size_max = settings.body_size_bytes_max
        self._count_max = settings.multi_publish_count_max
        self._view = _NO_VIEW
        self._events = []
        self._phase = _MAGIC_AHEAD
        self._need = len(MAGIC)
        self._paused = self._begun = self._within = False
        self._searched = self._size_max = self._body_size = self._ready_size = 0
        self._walked = self._count = self._left = self._first = self._base = self._total = 0
        self._ahead = self._line_ahead = BodyAhead(Command.NOP)  # replaced before it is read
        self._line = self._line_bytes = b""
        self._line_size = 0
        self._ready = Ready(0)  # replaced before it is read
        self._ready_bytes = b""
        self._finish = Finish(_NO_VIEW, 0, 0)
        self._used = 0
        self._allocate(_CAPACITY_FIRST)
        self._change(State.INIT, True, False)

    @property
    def need(self) -> int:
        """Bytes that the next view must have for another feed to make progress; 0: feed the rest at once."""
        return self._need

    @property
    def state(self) -> State:
        """The connection's state behind the last event."""
        return self._situation.state

    @property
    def heartbeats(self) -> bool:
        """Whether the client gets heartbeats; SUB is refused to one that does not."""
        return self._situation.heartbeats

    @heartbeats.setter
    def heartbeats(self, value: bool) -> None:
        self._change(self._situation.state, value, self._situation.tls_missing)

    @property
    def tls_missing(self) -> bool:
        """Whether everything but IDENTIFY is refused because the server insists on TLS."""
        return self._situation.tls_missing

    @tls_missing.setter
    def tls_missing(self, value: bool) -> None:
        self._change(self._situation.state, self._situation.heartbeats, value)

    def feed(self, view: memoryview) -> tuple[list[Event], int]:
        """Decode what has come: the events, and how many bytes of the view are done with.

        Limits:  those of the settings; a line of 16 KiB.
        Cost:    O(new bytes) for the lines, O(messages) for bodies, which are not looked at; no copies but of
                 IDENTIFY's and AUTH's bodies. Batches and id arrays in the events are valid until the next feed.
        """
        data: cython.const[cython.uchar][::1] = view
        end: cython.Py_ssize_t = len(view)
        at: cython.Py_ssize_t = 0
        events: list[Event] = []
        self._events = events
        self._view = view
        self._paused = False
        self._start_scratch()
        if self._phase != _ENDED:
            self._need = 0
        while self._need == 0 and not self._paused and self._phase != _ENDED:
            if self._phase == _LINE_AHEAD:
                at = self._step_line(data, at, end)
            elif self._phase == _MESSAGES_AHEAD:
                at = self._step_messages(data, at, end)
            elif self._phase == _BODY_AHEAD:
                at = self._step_body(data, at, end)
            else:
                at = self._step_number(data, at, end)
        if self._phase == _ENDED:
            self._need = 1
            at = end
        # Who is fed must not keep the view: its owner could not resize or release the buffer.
        self._events = []
        self._view = _NO_VIEW
        return events, at

    def eof(self) -> list[Event]:
        """Say what the end of the input means at this point, once everything before it has been fed.

        A body cut short is a violation, which a client that has only closed its sending side can still read.
        """
        if self._phase == _MESSAGES_AHEAD:
            index = self._count - self._left
            text = problems.unreadable_message() if self._within else problems.unreadable_message_size(index)
        elif self._phase == _MULTI_COUNT_AHEAD:
            text = problems.unreadable_count()
        elif self._phase == _SIZE_AHEAD or self._phase == _MULTI_SIZE_AHEAD:
            text = problems.unreadable(self._ahead.command, b" size")
        elif self._phase == _BODY_AHEAD:
            text = problems.unreadable(self._ahead.command)
        else:
            text = b""
        self._phase = _ENDED
        return [Violation(text)] if text else []

    @cython.cfunc
    def _change(self, state: State, heartbeats: object, tls_missing: object) -> None:
        """Take over a new situation: what was remembered about lines may no longer hold."""
        self._situation = situation_of(state, heartbeats=bool(heartbeats), tls_missing=bool(tls_missing), settings=self._settings)
        self._finish_legal = Command.FIN in TRANSITIONS[state] and not tls_missing
        self._nop_legal = Command.NOP in TRANSITIONS[state] and not tls_missing
        self._line = b""
        self._line_size = 0
        self._ready_size = 0

    @cython.cfunc
    def _violate(self, text: bytes) -> None:
        if self._phase >= _MULTI_SIZE_AHEAD:
            self._begin()
        self._events.append(Violation(text))
        self._phase = _ENDED

    @cython.cfunc
    def _step_line(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take one command line, or a run of commands that look the same."""
        newline: cython.Py_ssize_t
        limit: cython.Py_ssize_t
        after: cython.Py_ssize_t
        if self._searched == 0:
            after = self._step_run(data, at, end)
            if after > at:
                return after
        newline = at + self._searched
        limit = min(end, at + _LINE_MAX)
        while newline < limit and data[newline] != 10:
            newline += 1
        if newline == limit:
            if limit - at == _LINE_MAX:
                self._events.append(SilentClose())
                self._phase = _ENDED
            else:
                self._searched = limit - at
                self._need = self._searched + 1
            return at
        self._searched = 0
        self._take_line(bytes(self._view[at : newline + 1]))
        return newline + 1

    @cython.cfunc
    def _take_line(self, line: bytes) -> None:
        """Act on one line, which still has its newline."""
        if line == self._line:
            self._await_body(self._line_ahead)
            return
        text = line[: len(line) - 1]
        outcome, state = interpret(text.removesuffix(b"\r"), self._situation)
        if isinstance(outcome, Violation):
            self._events.append(outcome)
            self._phase = _ENDED
            return
        if isinstance(outcome, BodyAhead):
            if outcome.topic:
                self._line = line
                self._line_bytes = line
                self._line_size = len(line)
                self._line_ahead = outcome
            self._await_body(outcome)
        elif isinstance(outcome, Nop):
            self._note_nop()
        elif isinstance(outcome, Ready):
            self._ready = outcome
            self._ready_bytes = line
            self._ready_size = len(line)
            self._note_ready()
        else:
            self._events.append(outcome)
        if state is not self._situation.state:
            self._change(state, self._situation.heartbeats, self._situation.tls_missing)

    @cython.cfunc
    def _note_nop(self) -> None:
        """Tell that the client is alive, once for a run."""
        if not (self._events and isinstance(self._events[len(self._events) - 1], Nop)):
            self._events.append(Nop())

    @cython.cfunc
    def _note_ready(self) -> None:
        """Tell of the last RDY, in place of one that stands right before it: nothing is delivered in between."""
        if self._events and isinstance(self._events[len(self._events) - 1], Ready):
            self._events[len(self._events) - 1] = self._ready
        else:
            self._events.append(self._ready)

    @cython.cfunc
    def _note_finish(self, first: cython.Py_ssize_t, count: cython.Py_ssize_t) -> None:
        """Tell of a run of FINs; a RDY between it and the run before steps behind both, which comes to the same."""
        events = self._events
        size: cython.Py_ssize_t = len(events)
        if size > 1 and isinstance(events[size - 1], Ready):
            before = self._finish
            if events[size - 2] is before and before.first + before.count == first:
                before.ids = self._positions_view  # which has a copy of what an array that was too small had
                before.count += count
                return
        self._finish = Finish(self._positions_view, first, count)
        events.append(self._finish)

    @cython.cfunc
    def _await_body(self, ahead: BodyAhead) -> None:
        self._ahead = ahead
        self._begun = False
        if ahead.command is Command.MPUB:
            self._phase = _MULTI_SIZE_AHEAD
            self._size_max = self._body_size_max
        else:
            self._phase = _SIZE_AHEAD
            self._size_max = self._message_size_max if ahead.topic else self._body_size_max

    @cython.cfunc
    def _step_run(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take the commands at `at` that need no line parsed; `at` again if there are none."""
        begin: cython.Py_ssize_t = at
        if at == end:
            return at
        if data[at] == 70 and self._finish_legal:  # F
            return self._run_finish(data, at, end)
        if data[at] == 78 and self._nop_legal:  # N
            while end - at >= 4 and load_u32_be(data, at) == 0x4E4F500A:  # "NOP", newline
                at += 4
            if at > begin:
                self._note_nop()
            return at
        if data[at] == 82 and self._ready_size:  # R
            while repeats(data, at, end, self._ready_bytes, self._ready_size):
                self._note_ready()
                at += self._ready_size
            return at
        if self._line_size and self._repeats_line(data, at, end):
            if self._line_ahead.command is Command.PUB:
                return self._run_publish(data, at, end, False)
            self._await_body(self._line_ahead)
            return at + self._line_size
        return at

    @cython.cfunc
    def _repeats_line(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Say whether the last remembered line stands at `at` once more."""
        return repeats(data, at, end, self._line_bytes, self._line_size)

    @cython.cfunc
    def _run_finish(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take FINs in their usual form; everything else about FIN is left to `interpret`."""
        first: cython.Py_ssize_t = self._used
        used: cython.Py_ssize_t = first
        after: cython.Py_ssize_t = at
        while True:
            after = read_finishes(data, at, end, self._positions, used, self._capacity)
            used += (after - at) // _FINISH_SIZE
            at = after
            if used < self._capacity:
                break
            self._grow(used)
        if used > first:
            self._used = used
            self._note_finish(first, used - first)
        return at

    @cython.cfunc
    def _run_publish(
        self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, seeded: cython.bint
    ) -> cython.Py_ssize_t:
        """Take whole PUBs that repeat the remembered line, as one event.

        `seeded` says that the last entry is a PUB for the same topic which begins the run. What is not whole or
        not well is left where it is.
        """
        line_size: cython.Py_ssize_t = self._line_size
        head: cython.Py_ssize_t = line_size + 4
        used: cython.Py_ssize_t = self._used
        first: cython.Py_ssize_t = used - 1 if seeded else used
        capacity: cython.Py_ssize_t = self._capacity
        positions: cython.longlong[::1] = self._positions
        sizes: cython.longlong[::1] = self._sizes
        size_max: cython.longlong = self._message_size_max
        size: cython.longlong
        total: cython.longlong = sizes[first] if seeded else 0
        while end - at > head and self._repeats_line(data, at, end):
            size = load_u32_be(data, at + line_size)
            if size == 0 or size > size_max or size > end - at - head:
                break
            if used == capacity:
                self._grow(used)
                capacity = self._capacity
                positions = self._positions
                sizes = self._sizes
            positions[used] = at + head
            sizes[used] = size
            used += 1
            total += size
            at += head + size
        if used > first:
            self._used = used
            batch = self._batch(first, used - first, total)
            self._events.append(Publish(self._line_ahead.topic, batch, Command.PUB, used - first))
        return at

    @cython.cfunc
    def _batch(self, first: cython.Py_ssize_t, count: cython.Py_ssize_t, total: cython.longlong) -> MessageBatch:
        return MessageBatch(self._view, self._positions_view, self._sizes_view, first=first, count=count, size_bytes=total)

    @cython.cfunc
    def _step_number(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take the four bytes that the phase calls for: the magic, a size or a count."""
        size: cython.longlong
        if end - at < 4:
            self._need = 4
            if self._phase == _MULTI_SIZE_AHEAD or self._phase == _MULTI_COUNT_AHEAD:
                self._begin()
            return at
        size = load_u32_be(data, at)
        if self._phase == _MAGIC_AHEAD:
            if size == 0x20205632:  # "  V2"
                self._phase = _LINE_AHEAD
            else:
                self._violate(problems.BAD_PROTOCOL)
            return at + 4
        size = size - 0x1_0000_0000 if size > 0x7FFF_FFFF else size
        if self._phase == _MULTI_COUNT_AHEAD:
            if 0 < size <= self._count_max:
                self._begin_messages(size)
            else:
                self._violate(problems.invalid_count(size))
        elif size <= 0 or size > self._size_max:
            self._violate(problems.wrong_size(self._ahead.command, size, self._size_max))
        elif self._phase == _SIZE_AHEAD:
            self._body_size = size
            self._phase = _BODY_AHEAD
        else:
            # The stated size of an MPUB's body is of no further use: clients that get it wrong work with nsqd.
            self._phase = _MULTI_COUNT_AHEAD
        return at + 4

    @cython.cfunc
    def _begin_messages(self, count: cython.Py_ssize_t) -> None:
        self._count = count
        self._left = count
        self._first = self._used
        self._walked = 0
        self._total = 0
        self._within = False
        self._phase = _MESSAGES_AHEAD

    @cython.cfunc
    def _begin(self) -> None:
        """Announce an MPUB before its end is known, once."""
        if not self._begun:
            self._begun = True
            self._events.append(PublishBegun(self._ahead.topic))

    @cython.cfunc
    def _step_body(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take a body whose size is known."""
        size: cython.Py_ssize_t = self._body_size
        after: cython.Py_ssize_t = at + size
        if end - at < size:
            self._need = size
            return at
        self._phase = _LINE_AHEAD
        command = self._ahead.command
        if command is Command.IDENTIFY or command is Command.AUTH:
            body = bytes(self._view[at:after])
            self._events.append(Identify(body) if command is Command.IDENTIFY else Auth(body))
            self._paused = True
            return after
        if self._used == self._capacity:
            self._grow(self._used)
        self._positions[self._used] = at
        self._sizes[self._used] = size
        self._used += 1
        if command is Command.PUB:
            return self._run_publish(data, after, end, True)
        batch = self._batch(self._used - 1, 1, size)
        self._events.append(Publish(self._ahead.topic, batch, command, 1, self._ahead.delay_ms))
        return after

    @cython.cfunc
    def _step_messages(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Walk the messages of an MPUB; nothing of it is done with before the last one is there."""
        position: cython.Py_ssize_t = at + self._walked
        left: cython.Py_ssize_t = self._left
        used: cython.Py_ssize_t = self._used
        capacity: cython.Py_ssize_t = self._capacity
        positions: cython.longlong[::1] = self._positions
        sizes: cython.longlong[::1] = self._sizes
        size_max: cython.longlong = self._message_size_max
        total_max: cython.longlong = self._body_size_max
        total: cython.longlong = self._total
        size: cython.longlong = 0
        within: cython.bint = False
        while left > 0 and end - position >= 4:
            size = load_u32_be(data, position)
            if size == 0 or size > size_max or total + size > total_max:
                self._left = left
                self._total = total
                self._violate(self._problem_of_message(size))
                return at
            if end - position - 4 < size:
                within = True
                break
            if used == capacity:
                self._grow(used)
                capacity = self._capacity
                positions = self._positions
                sizes = self._sizes
            positions[used] = position + 4
            sizes[used] = size
            used += 1
            left -= 1
            total += size
            position += 4 + size
        self._used = used
        if left > 0:
            self._left = left
            self._total = total
            self._walked = position - at
            self._within = within
            self._base = at
            self._need = self._walked + 4 + (size if within else 0)
            self._begin()
            return at
        self._phase = _LINE_AHEAD
        batch = self._batch(self._first, self._count, total)
        self._events.append(Publish(self._ahead.topic, batch, Command.MPUB, 1))
        return position

    @cython.cfunc
    def _problem_of_message(self, size: cython.longlong) -> bytes:
        """Word what is wrong with the next message of an MPUB.

        A sum over the limit is not nsqd's complaint: it would buffer a million messages of a megabyte each.
        """
        size = size - 0x1_0000_0000 if size > 0x7FFF_FFFF else size
        if 0 < size <= self._message_size_max:
            return problems.wrong_size(Command.MPUB, self._total + size, self._body_size_max)
        return problems.wrong_message_size(self._count - self._left, size, self._message_size_max)

    @cython.cfunc
    def _start_scratch(self) -> None:
        """Make the arrays ready for a feed: only the entries of an MPUB under way stay, from the first place on.

        They move at most once per MPUB: from its second view on they already are where they belong.
        """
        i: cython.Py_ssize_t
        kept: cython.Py_ssize_t
        first: cython.Py_ssize_t = self._first
        base: cython.Py_ssize_t = self._base
        positions: cython.longlong[::1] = self._positions
        sizes: cython.longlong[::1] = self._sizes
        if self._phase != _MESSAGES_AHEAD:
            self._used = 0
            if self._capacity > _CAPACITY_KEPT_MAX:
                self._allocate(_CAPACITY_FIRST)
            return
        if first or base:
            kept = self._used - first
            for i in range(kept):
                positions[i] = positions[first + i] - base
                sizes[i] = sizes[first + i]
            self._used = kept
            self._first = 0
            self._base = 0

    @cython.cfunc
    def _allocate(self, capacity: cython.Py_ssize_t) -> None:
        self._positions_view = memoryview(array("q", bytes(8 * capacity)))
        self._sizes_view = memoryview(array("q", bytes(8 * capacity)))
        self._positions = self._positions_view
        self._sizes = self._sizes_view
        self._capacity = capacity

    @cython.cfunc
    def _grow(self, used: cython.Py_ssize_t) -> None:
        """Double the arrays. Events already made keep the old ones, so these are copied, never resized."""
        i: cython.Py_ssize_t
        old_positions: cython.longlong[::1] = self._positions
        old_sizes: cython.longlong[::1] = self._sizes
        self._allocate(2 * self._capacity)
        for i in range(used):
            self._positions[i] = old_positions[i]
            self._sizes[i] = old_sizes[i]
