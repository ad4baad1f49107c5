"""What a NATS client or another server sends, from bytes to events: the hot half of the codec, compiled where possible.

The decoder walks a view of what has been read and says how much of it is done with; the rest comes again at the
start of the next view, with more behind it. Laws: every byte is looked at a bounded number of times, however the stream
is cut (what was already found out about the rest is remembered relative to its start); nothing is made per message,
only a row of numbers; what is wrong is answered at the byte that makes it wrong, and in order.

There are two ways through a line. Whole messages whose line is well are taken by `_run`, which decides nothing: where
it meets anything else it stops, and the steps below it take the same bytes slowly, a phase at a time.

Read next: `commands` for the lines without a message, `problems` for the errors.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import cython

from polymq.limits import NATS_EVENTS_PER_FEED_MAX
from polymq.protocols.nats import commands
from polymq.protocols.nats.commands import PeerKind, Verb, readers_of, verbs_of
from polymq.protocols.nats.events import Connect, Event, Info, LeftOut, PeerError, Ping, Pong, Publishes, SilentClose
from polymq.protocols.nats.rows import ROWS
from polymq.wire import live

if not cython.compiled:
    from polymq.protocols.nats.rows import Rows
    from polymq.wire.inline import find_blank, load_u32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.protocols.nats.commands import Reader
    from polymq.protocols.nats.settings import NatsSettings

__all__ = ["Decoder"]

# What the bytes at the start of the rest are. Integers of C, because they are compared in the hot path.
_VERB_AHEAD = cython.declare(cython.int, 0)
_BLANKS_AHEAD = cython.declare(cython.int, 1)  # between the verb and what it says
_TEXT_AHEAD = cython.declare(cython.int, 2)  # what the verb says, to the line's end, and the payload if it announces one
_LINE_END_AHEAD = cython.declare(cython.int, 3)  # of a verb that says nothing more
_LEFT_OUT_AHEAD = cython.declare(cython.int, 4)  # a payload that nobody gets
_ENDED = cython.declare(cython.int, 5)

_PUB = cython.declare(cython.int, int(Verb.PUB))
_HPUB = cython.declare(cython.int, int(Verb.HPUB))
_RMSG = cython.declare(cython.int, int(Verb.RMSG))
_HMSG = cython.declare(cython.int, int(Verb.HMSG))
_LMSG = cython.declare(cython.int, int(Verb.LMSG))
_PING_VERB = cython.declare(cython.int, int(Verb.PING))
_PONG_VERB = cython.declare(cython.int, int(Verb.PONG))
_OK_VERB = cython.declare(cython.int, int(Verb.OK))
_CONNECT_VERB = cython.declare(cython.int, int(Verb.CONNECT))
_INFO_VERB = cython.declare(cython.int, int(Verb.INFO))

# The verbs with a message, in lower case as load_u32 reads them. All bytes that become these letters are letters.
_LOWER_CASE = cython.declare(cython.uint, 0x20202020)
_THREE_BYTES = cython.declare(cython.uint, 0x00FFFFFF)
_PUB_TEXT = cython.declare(cython.uint, int.from_bytes(b"pub\0", "little"))
_HPUB_TEXT = cython.declare(cython.uint, int.from_bytes(b"hpub", "little"))
_RMSG_TEXT = cython.declare(cython.uint, int.from_bytes(b"rmsg", "little"))
_HMSG_TEXT = cython.declare(cython.uint, int.from_bytes(b"hmsg", "little"))
_LMSG_TEXT = cython.declare(cython.uint, int.from_bytes(b"lmsg", "little"))

# What `_take` says of a message, if not where it ends.
_NOT_WHOLE = cython.declare(cython.Py_ssize_t, -1)
_MISREAD = cython.declare(cython.Py_ssize_t, -2)
_LINE_TOO_LONG = cython.declare(cython.Py_ssize_t, -3)
_PAYLOAD_TOO_LARGE = cython.declare(cython.Py_ssize_t, -4)
_BAD_END = cython.declare(cython.Py_ssize_t, -5)
_UNWANTED = cython.declare(cython.Py_ssize_t, -6)  # a route's message that nobody gets

# Of a line with a message: where its first six words are, then by turns the others, so that the last three are there.
_WORD_NUMBERS: Final = 20

_VERB_SIZE_MAX = cython.declare(cython.Py_ssize_t, 7)
_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 9)  # SIZE_DIGITS_MAX

assert live.COLUMNS == 12
_COLUMNS = cython.declare(cython.Py_ssize_t, 12)
_SUBJECT_AT = cython.declare(cython.Py_ssize_t, live.SUBJECT_AT)
_REPLY_AT = cython.declare(cython.Py_ssize_t, live.REPLY_AT)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, live.HEADER_SIZE)
_PAYLOAD_AT = cython.declare(cython.Py_ssize_t, live.PAYLOAD_AT)
_PAYLOAD_SIZE = cython.declare(cython.Py_ssize_t, live.PAYLOAD_SIZE)
_ACCOUNT_AT = cython.declare(cython.Py_ssize_t, live.ACCOUNT_AT)
_QUEUES_AT = cython.declare(cython.Py_ssize_t, live.QUEUES_AT)

_EVENTS_MAX = cython.declare(cython.Py_ssize_t, NATS_EVENTS_PER_FEED_MAX)
_VIEW_SIZE_BYTES_MAX = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)  # positions are numbers of 32 bits

_NO_VIEW: Final = memoryview(b"")
_LAST: Final = (SilentClose, PeerError)
_PAUSING: Final = (Connect, Info)
_PING: Final = Ping()
_PONG: Final = Pong()


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _place(word: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Say where the start of a word is kept; its end is behind that."""
    return 2 * word if word < 6 else 12 + 2 * (word & 3)


@cython.final
@cython.cclass
class Decoder:
    """The server's ear on one connection.

    Feed it, then obey `need`: the bytes that must be there at the start of the next view before another feed can get
    any further. 0 says that the last event (`Connect`, `Info`) may change how the rest is to be read, or that there are
    many events already: act on them, then feed the rest. After a `Violation`, a `SilentClose` or a `PeerError` all input is swallowed.

    Set by the gateway: `headers` and `pedantic` (the client's CONNECT asked for that; HPUB is refused to others, and
    publishing to wildcards is pointed out), `connect_first` (anything but CONNECT is an authorization violation; the
    decoder ends that itself), and `account_omitted` (the route is for one account, whose name is then in no line).
    """

    headers = cython.declare(cython.bint, visibility="public")
    pedantic = cython.declare(cython.bint, visibility="public")
    connect_first = cython.declare(cython.bint, visibility="public")
    account_omitted = cython.declare(cython.bint, visibility="public")
    _client: cython.bint
    _verbs: Mapping[bytes, Verb | None]
    _readers: tuple[Reader, ...]
    _line_size_max: cython.Py_ssize_t
    _payload_size_max: cython.longlong
    # Of the feed that is running.
    _view: memoryview
    _events: list[Event]
    _rows: Rows
    _used: cython.Py_ssize_t
    _size_bytes: cython.longlong
    _unusual: cython.bint
    # Where the walk stands; distances are from the start of the rest.
    _phase: cython.int
    _verb: cython.int
    _need: cython.Py_ssize_t
    _paused: cython.bint
    _searched: cython.Py_ssize_t
    _left_out: cython.Py_ssize_t
    # Of the message that `_take` looked at: its words, and how far it goes at least.
    _words: cython.longlong[::1]
    _whole_at: cython.Py_ssize_t

    def __init__(self, settings: NatsSettings, kind: PeerKind) -> None:
        self._client = kind is PeerKind.CLIENT
        self._verbs, self._readers = verbs_of(kind), readers_of(kind)
        self.limit(settings)
        self.headers = self.connect_first = self.account_omitted = self.pedantic = self._unusual = False
        self._view, self._events, self._verb = _NO_VIEW, [], _PUB  # replaced before they are read
        self._rows, self._used, self._size_bytes = ROWS, 0, 0
        self.rewind()
        self._words = memoryview(array("q", bytes(8 * _WORD_NUMBERS)))

    @property
    def need(self) -> int:
        """Bytes that the next view must have for another feed to make progress; 0: feed the rest at once."""
        return self._need

    def limit(self, settings: NatsSettings) -> None:
        """Hold what comes from here on against these limits."""
        self._line_size_max = settings.line_size_bytes_max if self._client else settings.route_line_size_bytes_max
        self._payload_size_max = settings.payload_size_bytes_max if self._client else settings.routed_payload_size_bytes_max

    def feed(self, view: memoryview) -> tuple[list[Event], int]:
        """Decode what has come: the events, and how many bytes of the view are done with.

        Limits:  those of the settings; NATS_EVENTS_PER_FEED_MAX events.
        Cost:    O(new bytes) for the lines, O(messages) for payloads, which are not looked at; no copies but of the
                 lines without a message. The rows of a batch are valid until the next feed of any decoder.
        """
        data: cython.const[cython.uchar][::1] = view
        end: cython.Py_ssize_t = len(view)
        at: cython.Py_ssize_t = 0
        events: list[Event] = []
        assert end <= _VIEW_SIZE_BYTES_MAX
        self._events, self._view = events, view
        self._paused = False
        self._used = 0
        self._rows.start()
        if self._phase != _ENDED:
            self._need = 0
        while self._need == 0 and not self._paused and self._phase != _ENDED and len(events) < _EVENTS_MAX:
            if self._phase == _VERB_AHEAD:
                at = self._step_verb(data, at, end)
            elif self._phase == _TEXT_AHEAD:
                at = self._step_text(data, at, end)
            elif self._phase == _BLANKS_AHEAD:
                at = self._step_blanks(data, at, end)
            elif self._phase == _LINE_END_AHEAD:
                at = self._step_line_end(data, at, end)
            else:
                at = self._step_left_out(data, at, end)
        if self._phase == _ENDED:
            self._need, at = 1, end
        # Who is fed must not keep the view: its owner could not resize or release the buffer.
        self._events = []
        self._view = _NO_VIEW
        return events, at

    def rewind(self) -> None:
        """Forget what the last feed has decoded behind some message: it comes again, at the start of the next view (`Publishes.end_of`)."""
        self._phase, self._need = _VERB_AHEAD, 1
        self._paused = False
        self._searched = self._left_out = self._whole_at = 0

    @cython.cfunc
    def _end(self, event: Event) -> None:
        self._events.append(event)
        self._phase = _ENDED

    @cython.cfunc
    def _run(
        self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, first: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Take whole messages, as one event that begins with row `first`; what is not whole or not well stays where it is."""
        verb: cython.int
        after: cython.Py_ssize_t
        while end - at > 5:
            verb = self._verb_of_message(data, at)
            if verb == 0:
                break
            after = self._take(data, at + (3 if verb == _PUB else 4), end, verb)
            if after < 0:
                break
            at = after
        if self._used > first:
            rows = self._rows.view[_COLUMNS * first : _COLUMNS * self._used]
            batch = live.LiveBatch(self._view, rows, self._used - first)
            self._events.append(Publishes(batch, self._size_bytes, self._unusual))
            self._size_bytes, self._unusual = 0, False
        return at

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _verb_of_message(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.int:
        """Say which verb with a message stands at `at`, with a blank behind it; 0: none that this peer's messages have."""
        text: cython.uint = load_u32(data, at) | _LOWER_CASE
        if self._client and text & _THREE_BYTES == _PUB_TEXT:
            return _PUB if data[at + 3] == 32 or data[at + 3] == 9 else 0
        if data[at + 4] != 32 and data[at + 4] != 9:
            return 0
        if self._client:
            return _HPUB if text == _HPUB_TEXT else 0
        if text == _RMSG_TEXT:
            return _RMSG
        if text == _HMSG_TEXT:
            return _HMSG
        return _LMSG if text == _LMSG_TEXT else 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _scan(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Find the words from `at` to the line's end; give how many, _NOT_WHOLE or _MISREAD. `_whole_at` is then behind the line."""
        count: cython.Py_ssize_t = 0
        start: cython.Py_ssize_t
        while True:
            while at < end and (data[at] == 32 or data[at] == 9):
                at += 1
            if at == end:
                return _NOT_WHOLE
            if data[at] == 13 or data[at] == 10:
                break
            start = at
            at = find_blank(data, at, end)
            while at < end and data[at] != 32 and data[at] != 13 and data[at] != 9 and data[at] != 10:
                at = find_blank(data, at + 1, end)
            if at == end:
                return _NOT_WHOLE
            self._words[_place(count)] = start
            self._words[_place(count) + 1] = at
            count += 1
        if data[at] == 13:
            at += 1
            if at == end:
                return _NOT_WHOLE
            if data[at] != 10:
                return _MISREAD
        self._whole_at = at + 1
        return count

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=True)
    def _take(
        self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, verb: cython.int
    ) -> cython.Py_ssize_t:
        """Make a row of the message whose words begin at `at`; say where it ends, or what is the matter.

        _NOT_WHOLE leaves in `_whole_at` how far it goes at least, _UNWANTED where its payload begins. Nothing else has
        an effect if there is no row.

            PUB                    subject [reply]                              size
            HPUB                   subject [reply]                  header size size
            RMSG          account  subject [reply | "|" queues | "+" reply queues]                size
            HMSG          account  subject [the same]               header size size
            LMSG  origin  account  subject [the same]               header size size
        """
        count: cython.Py_ssize_t = self._scan(data, at, end)
        behind: cython.Py_ssize_t
        lead: cython.Py_ssize_t = 0
        numbers: cython.Py_ssize_t = 1 if verb in (_PUB, _RMSG) else 2
        header_size: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        after: cython.Py_ssize_t
        if count <= 0:
            return count if count < 0 else _MISREAD
        behind = self._whole_at
        if behind - self._words[0] - (2 if data[behind - 2] == 13 else 1) > self._line_size_max:
            return _LINE_TOO_LONG
        if verb > _HPUB:
            lead = (2 if verb == _LMSG else 1) - self.account_omitted
        elif verb == _HPUB and self._client and not self.headers:
            return _MISREAD
        count -= lead + 1 + numbers
        if count < 0 or (count > 1 and (verb <= _HPUB or not self._is_directed(data, lead, count))):
            return _MISREAD
        size = self._number(data, lead + count + numbers)
        if numbers == 2:
            header_size = self._number(data, lead + count + 1)
        if header_size < 0 or size < header_size:
            return _MISREAD
        if not self._client and (verb <= _HPUB or size > self._payload_size_max):
            self._left_out = size
            return _UNWANTED
        if size > self._payload_size_max:
            return _PAYLOAD_TOO_LARGE
        after = behind + size
        if end - after < 2 or data[after] != 13 or data[after + 1] != 10:
            if (end > after and data[after] != 13) or end - after > 1:
                return _BAD_END
            self._whole_at = after + 1 if end <= after else after + 2
            return _NOT_WHOLE
        if self._used == self._rows.capacity:
            self._rows.grow(self._used)
        self._write_row(data, lead, count, verb, header_size, behind, size)
        return after + 2

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_directed(self, data: cython.const[cython.uchar][::1], lead: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.bint:
        """Say whether `count` words behind the subject are a sign and queue groups, with a reply in between or without."""
        at: cython.Py_ssize_t = self._words[2 * lead + 2]
        return self._words[2 * lead + 3] - at == 1 and (data[at] == 43 or data[at] == 124)  # + or |

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _number(self, data: cython.const[cython.uchar][::1], word: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a size; -1 if the word is none."""
        at: cython.Py_ssize_t = self._words[_place(word)]
        end: cython.Py_ssize_t = self._words[_place(word) + 1]
        value: cython.Py_ssize_t = 0
        if end - at > _DIGITS_MAX:
            return -1
        while at < end:
            if data[at] < 48 or data[at] > 57:
                return -1
            value = value * 10 + data[at] - 48
            at += 1
        return value

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _write_row(
        self,
        data: cython.const[cython.uchar][::1],
        lead: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        verb: cython.int,
        header_size: cython.Py_ssize_t,
        payload_at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ) -> cython.void:
        """Put down where everything is; `count` words stand behind the subject and before the sizes."""
        row: cython.Py_ssize_t = self._used * _COLUMNS
        reply: cython.Py_ssize_t = 0  # the place of its word; 0: there is none
        queues: cython.Py_ssize_t = 0
        column: cython.Py_ssize_t
        if count == 1:
            reply = lead + 1
        elif count > 1 and data[self._words[2 * lead + 2]] == 43:  # +: a reply comes before the queue groups
            reply = lead + 2
            queues = lead + 3 if count > 2 else 0
        elif count > 1:
            queues = lead + 2
        for column in range(12):  # COLUMNS, as a literal: the compiler makes two instructions of it
            self._rows.numbers[row + column] = 0
        self._put(row + _SUBJECT_AT, lead, lead)
        if reply:
            self._put(row + _REPLY_AT, reply, reply)
        if verb > _HPUB and not self.account_omitted:
            self._put(row + _ACCOUNT_AT, lead - 1, lead - 1)
        if queues:
            self._put(row + _QUEUES_AT, queues, lead + count)
            self._unusual = True
        self._rows.numbers[row + _HEADER_SIZE] = header_size
        self._rows.numbers[row + _PAYLOAD_AT] = payload_at
        self._rows.numbers[row + _PAYLOAD_SIZE] = size
        self._used += 1
        self._size_bytes += size
        if self._client and not self._unusual:
            self._unusual = self._is_unusual(data, 0, self.pedantic) or (reply > 0 and self._is_unusual(data, 1, False))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _put(self, column: cython.Py_ssize_t, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.void:
        """Put down in two columns where the words from one to another are."""
        self._rows.numbers[column] = self._words[_place(first)]
        self._rows.numbers[column + 1] = self._words[_place(last) + 1] - self._words[_place(first)]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _is_unusual(self, data: cython.const[cython.uchar][::1], word: cython.Py_ssize_t, literal: cython.bint) -> cython.bint:
        """Say whether a name begins as the servers' own, with _G, _R, $J or $N, or has wildcards or empty tokens where it is to be `literal`."""
        at: cython.Py_ssize_t = self._words[2 * word]
        end: cython.Py_ssize_t = self._words[2 * word + 1]
        start: cython.Py_ssize_t = at  # of a token
        if data[at] == 95 and (data[at + 1] == 71 or data[at + 1] == 82):
            return True
        if data[at] == 36 and (data[at + 1] == 74 or data[at + 1] == 78):
            return True
        while literal and at <= end:
            if at == end or data[at] == 46:
                if at == start or (at - start == 1 and (data[start] == 42 or data[start] == 62)):  # * or >
                    return True
                start = at + 1
            at += 1
        return False

    @cython.cfunc
    def _step_verb(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take messages as long as there are any, or else find the verb of the next line."""
        after: cython.Py_ssize_t
        size: cython.Py_ssize_t
        if at == end:
            self._need = 1
            return at
        if not self.connect_first:
            after = self._run(data, at, end, self._used)
            if after > at:
                return after
        elif data[at] != 67 and data[at] != 99:  # C, c
            self._end(commands.CONNECT_MISSING)
            return at
        after = at
        while after < end and after - at < _VERB_SIZE_MAX and data[after] > 32:
            after += 1
        verb = self._verbs.get(bytes(self._view[at:after]).upper())
        if verb is not None:  # as a rule
            return self._begin_line(verb, data, at, after, end)
        beginning = bytes(self._view[at : min(end, at + _VERB_SIZE_MAX)]).upper()
        for size in range(1, len(beginning) + 1):
            if beginning[:size] not in self._verbs:
                self._end(commands.UNKNOWN_OPERATION)
                return at
            verb = self._verbs[beginning[:size]]
            if verb is not None:
                return self._begin_line(verb, data, at, at + size, end)
        self._need = len(beginning) + 1
        return at

    @cython.cfunc
    def _begin_line(
        self, verb: Verb, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, after: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Go on behind a verb: all but a few have to have a blank there."""
        self._verb = verb
        if self._verb == _PING_VERB or self._verb == _PONG_VERB or self._verb == _OK_VERB:
            self._phase = _LINE_END_AHEAD
        elif self._verb == _CONNECT_VERB or self._verb == _INFO_VERB:
            self._phase = _BLANKS_AHEAD
        elif after == end:
            self._need = after - at + 1
            return at
        elif data[after] == 32 or data[after] == 9:
            self._phase = _BLANKS_AHEAD
        else:
            self._end(commands.UNKNOWN_OPERATION)
        return after

    @cython.cfunc
    def _step_line_end(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Pass over what stands behind a verb that says nothing more, however much it is."""
        while at < end and data[at] != 10:
            at += 1
        if at == end:
            self._need = 1
            return at
        if self._verb == _PING_VERB:
            self._events.append(_PING)
        elif self._verb == _PONG_VERB:
            self._events.append(_PONG)
        self._phase = _VERB_AHEAD
        return at + 1

    @cython.cfunc
    def _step_blanks(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Pass over the blanks behind a verb, however many; they do not count towards the line's limit."""
        while at < end and (data[at] == 32 or data[at] == 9):
            at += 1
        if at == end:
            self._need = 1
        else:
            self._phase = _TEXT_AHEAD
            self._searched = 0
        return at

    @cython.cfunc
    def _step_text(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take what a verb says, once the line's end is there."""
        newline: cython.Py_ssize_t = at + self._searched
        # The longest line has a carriage return and a newline behind its text.
        limit: cython.Py_ssize_t = min(end, at + self._line_size_max + 2)
        text_end: cython.Py_ssize_t
        if newline == at and (self._verb == _CONNECT_VERB or self._verb == _INFO_VERB):
            newline += 1  # nats-server takes the first byte for text whatever it is, and a newline does no harm in JSON
        while newline < limit and data[newline] != 10:
            newline += 1
        text_end = newline - 1 if newline > at and data[newline - 1] == 13 else newline
        if text_end - at > self._line_size_max:
            self._end(commands.LINE_TOO_LONG)
            return at
        if newline >= limit:
            self._searched = end - at
            self._need = self._searched + 1
            return at
        if self._verb <= _LMSG:
            self._searched = newline - at
            return self._step_message(data, at, end)
        self._phase = _VERB_AHEAD
        self._hear(bytes(self._view[at:text_end]))
        return newline + 1

    @cython.cfunc
    def _hear(self, text: bytes) -> None:
        """Act on a line without a message."""
        event = self._readers[self._verb](text, self.account_omitted)
        if event is None:
            return
        self._events.append(event)
        if isinstance(event, _LAST):
            self._phase = _ENDED
        elif isinstance(event, _PAUSING):
            self._paused = True
            self.connect_first = False  # an INFO cannot have come before

    @cython.cfunc
    def _step_message(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take a message whose line is there, or say what is wrong with it."""
        after: cython.Py_ssize_t = self._take(data, at, end, self._verb)
        if after >= 0:
            self._phase = _VERB_AHEAD
            return self._run(data, after, end, self._used - 1)
        if after == _NOT_WHOLE:
            self._need = self._whole_at - at
        elif after == _UNWANTED:
            if self._verb > _HPUB:
                self._events.append(self._tell_left_out())
            self._phase = _LEFT_OUT_AHEAD
            return self._whole_at
        else:
            otherwise = commands.UNKNOWN_OPERATION if after == _BAD_END else commands.MISREAD
            self._end(commands.PAYLOAD_TOO_LARGE if after == _PAYLOAD_TOO_LARGE else otherwise)
        return at

    @cython.cfunc
    def _tell_left_out(self) -> LeftOut:
        """Name the message that `_take` did not want."""
        lead: cython.Py_ssize_t = (2 if self._verb == _LMSG else 1) - self.account_omitted
        account = b"" if self.account_omitted else bytes(self._view[self._words[2 * lead - 2] : self._words[2 * lead - 1]])
        return LeftOut(account, bytes(self._view[self._words[2 * lead] : self._words[2 * lead + 1]]), self._left_out)

    @cython.cfunc
    def _step_left_out(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Throw a payload away as it comes; its end has to be well all the same."""
        passed: cython.Py_ssize_t = min(self._left_out, end - at)
        self._left_out -= passed
        at += passed
        if at == end:
            self._need = 1
        elif data[at] != 13 or (end - at > 1 and data[at + 1] != 10):
            self._end(commands.UNKNOWN_OPERATION)
        elif end - at == 1:
            self._need = 2
        else:
            self._phase = _VERB_AHEAD
            at += 2
        return at
