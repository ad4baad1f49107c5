"""What a RocketMQ peer sends, from bytes to events: the hot half of the codec, compiled where possible.

The decoder walks a view of what has been read, frame by frame, and says how much of it is done with; the rest comes again at the
start of the next view, with more behind it. Laws: nothing is made per send that is only an append, but a row of numbers and its
native extra; what is wrong with a frame is found where the real peers find it, and ends the connection; events keep the order
of the frames.

Read next: `fields` (the scanner of headers), `extras` (what is kept of a send), `header` (what the scanner leaves).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import cython

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq import events, header
from polymq.protocols.rocketmq.checksums import CHECKSUM
from polymq.protocols.rocketmq.codes import RequestCode
from polymq.protocols.rocketmq.events import Again, Request, Violation
from polymq.protocols.rocketmq.names import NOT_TO_BE_SENT_TO, group_of, is_valid_topic
from polymq.protocols.rocketmq.rows import ROWS
from polymq.rocketmq_limits import (
    PROPERTIES_SIZE_BYTES_MAX,
    REPEATS_PER_FEED_MAX,
    REQUESTS_PER_FEED_MAX,
    SENDS_PER_FEED_MAX,
    TOPICS_REMEMBERED_MAX,
)

if not cython.compiled:
    from polymq.protocols.rocketmq.checksums import Checksum
    from polymq.protocols.rocketmq.extras import Keeper
    from polymq.protocols.rocketmq.fields import Fields, is_utf8, unescape
    from polymq.protocols.rocketmq.repeats import Repeats
    from polymq.protocols.rocketmq.rows import Rows
    from polymq.protocols.rocketmq.sends import run_of
    from polymq.wire.inline import bytes_at, copy, equal_bytes, load_u32_be

if TYPE_CHECKING:
    from polymq.protocols.rocketmq.events import Event
    from polymq.protocols.rocketmq.header import Header
    from polymq.protocols.rocketmq.settings import RocketmqSettings

__all__ = ["Decoder"]

# The size of the frame, and that of its header behind it.
_SIZE_SIZE = cython.declare(cython.Py_ssize_t, 4)
_PREFIX_SIZE = cython.declare(cython.Py_ssize_t, 8)
_SEND = cython.declare(cython.longlong, int(RequestCode.SEND_MESSAGE))
_SEND_V2 = cython.declare(cython.longlong, int(RequestCode.SEND_MESSAGE_V2))
_PULL = cython.declare(cython.longlong, int(RequestCode.PULL_MESSAGE))
_LITE_PULL = cython.declare(cython.longlong, int(RequestCode.LITE_PULL_MESSAGE))
_BATCHES = cython.declare(cython.longlong, int(RequestCode.SEND_BATCH_MESSAGE))
_REPEATS_MAX = cython.declare(cython.Py_ssize_t, REPEATS_PER_FEED_MAX)
_COLUMNS = cython.declare(cython.Py_ssize_t, events.COLUMNS)
_PLACES = cython.declare(cython.Py_ssize_t, 5)
_ESCAPED = cython.declare(cython.int, 1)
_PROPERTIES_SIZE_MAX = cython.declare(cython.Py_ssize_t, PROPERTIES_SIZE_BYTES_MAX)
_SENDS_MAX = cython.declare(cython.Py_ssize_t, SENDS_PER_FEED_MAX)
# A record's words, and those of its extras.
_RECORD_OVERHEAD = cython.declare(cython.Py_ssize_t, 17)
_VIEW_SIZE_BYTES_MAX = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)  # positions are numbers of 32 bits
_I32_MAX = cython.declare(cython.longlong, 0x7FFF_FFFF)
_I64_MAX = cython.declare(cython.longlong, 999_999_999_999_999_999)

# The fields of a send that are looked at, and where `_chosen` keeps which of the header's they are.
_TOPIC = cython.declare(cython.Py_ssize_t, 0)
_QUEUE = cython.declare(cython.Py_ssize_t, 1)
_SYS_FLAG = cython.declare(cython.Py_ssize_t, 2)
_BORN = cython.declare(cython.Py_ssize_t, 3)
_FLAG = cython.declare(cython.Py_ssize_t, 4)
_PROPERTIES = cython.declare(cython.Py_ssize_t, 5)
_RECONSUMED = cython.declare(cython.Py_ssize_t, 6)
_BATCH = cython.declare(cython.Py_ssize_t, 7)
_QUEUES = cython.declare(cython.Py_ssize_t, 8)
_RECONSUMED_MAX = cython.declare(cython.Py_ssize_t, 9)
_CHOSEN = cython.declare(cython.Py_ssize_t, 10)
_SEND_FIELDS: Final = {
    b"topic": 0,
    b"queueId": 1,
    b"sysFlag": 2,
    b"bornTimestamp": 3,
    b"flag": 4,
    b"properties": 5,
    b"reconsumeTimes": 6,
    b"batch": 7,
    b"defaultTopicQueueNums": 8,
    b"maxReconsumeTimes": 9,
}
# Bits of sysFlag: parts of transactions, and a body that is packed.
_NOT_AN_APPEND = cython.declare(cython.longlong, 0xD)
_NO_VIEW: Final = memoryview(b"")
_NOT_PLAIN: Final = -1


def _choose(name: bytes) -> int:
    """Say which field of a send of the old kind this is; -1 if it is none that is looked at."""
    return _SEND_FIELDS.get(name, -1)


@cython.final
@cython.cclass
class Decoder:
    """One connection's ear, a server's or a client's.

    Feed it, then obey `need`: the bytes that must be there at the start of the next view before another feed can get any further;
    0: there were many events already, act on them, then feed the rest. After a `Violation` all input is swallowed.

    Set by the gateway: `every_request` (sends come as `Request`, too: who has to look at every one's fields, for signatures, wants that),
    and `requests_max` (other requests than those that one feed decodes at most).
    """

    every_request = cython.declare(cython.bint, visibility="public")
    requests_max = cython.declare(cython.Py_ssize_t, visibility="public")
    topics = cython.declare(list, visibility="readonly")
    _repeats: Repeats
    _server: cython.bint
    _scanning: cython.bint
    _frame_size_max: cython.Py_ssize_t
    _header_size_max: cython.Py_ssize_t
    _body_size_max: cython.Py_ssize_t
    _need: cython.Py_ssize_t
    _ended: cython.bint
    _fields: Fields
    _keeper: Keeper
    _rows: Rows
    _checksum: Checksum
    _topic_numbers: dict[bytes, int]
    _last_topic: bytes
    _last_number: cython.int
    # Of the feed that is running.
    _view: memoryview
    _events: list[Event]
    _first: cython.Py_ssize_t
    _most: cython.Py_ssize_t
    _repeated: cython.Py_ssize_t
    _used: cython.Py_ssize_t
    _extras_end: cython.Py_ssize_t
    _size_bytes: cython.longlong
    # Of the send that is looked at.
    _chosen: cython.int[::1]
    _number: cython.longlong

    def __init__(
        self,
        settings: RocketmqSettings,
        *,
        server: bool = True,
        born_host: bytes = b"\x7f\0\0\1",
        born_port: int = 0,
        scanning: bool = True,
    ) -> None:
        """`born_host` (4 or 16 bytes) and `born_port` are the peer's address, for the messages it sends. `server` False: no `Sends`.

        `scanning` False leaves all headers to `header`, for tests: it makes no difference but in time.
        """
        self.requests_max = REQUESTS_PER_FEED_MAX
        self._repeats = Repeats()
        self._most = self._repeated = 0
        self.every_request = False
        self.topics = []
        self._server, self._scanning = server, scanning
        self._frame_size_max = settings.frame_size_bytes_max
        self._header_size_max = settings.header_size_bytes_max
        self._body_size_max = settings.body_size_bytes_max
        self._need, self._ended = _SIZE_SIZE, False
        self._fields = Fields()
        self._keeper = Keeper(born_host, born_port, settings.cluster_name)
        self._rows, self._checksum = ROWS, CHECKSUM
        self._topic_numbers, self._last_topic, self._last_number = {}, b"", _NOT_PLAIN
        self._view, self._events = _NO_VIEW, []
        self._first = self._used = self._extras_end = 0
        self._size_bytes = self._number = 0
        self._chosen = memoryview(array("i", bytes(4 * len(_SEND_FIELDS))))

    @property
    def lanes(self) -> dict[bytes, Any]:
        """What is known of requests that may come again, by their `key`: to be filled, and emptied, by whoever answers them."""
        return self._repeats.lanes

    @property
    def need(self) -> int:
        """Bytes that the next view must have for another feed to make progress; 0: feed the rest at once."""
        return self._need

    def feed(self, view: memoryview, events: list[Event]) -> int:
        """Decode what has come into `events`; gives how many bytes of the view are done with. The rest comes again, at the start of the next view.

        Limits:  those of the settings; SENDS_PER_FEED_MAX, REQUESTS_PER_FEED_MAX, and UNUSUAL_HEADER_SIZE_BYTES_MAX of headers that only `header` reads.
        Cost:    O(headers), and one look at the bodies of sends, which are not copied. `Sends` are valid until the next feed of any decoder.
        """
        data: cython.const[cython.uchar][::1] = view
        end: cython.Py_ssize_t = len(view)
        at: cython.Py_ssize_t = 0
        assert end <= _VIEW_SIZE_BYTES_MAX
        if len(self._topic_numbers) > TOPICS_REMEMBERED_MAX:
            self.topics, self._topic_numbers, self._last_topic = [], {}, b""
        self._view, self._events = view, events
        self._rows.start()
        self._first = self._used = self._extras_end = 0
        self._size_bytes = 0
        self._need = self._repeated = 0
        self._most = len(events) + self.requests_max
        while self._need == 0 and not self._ended and self._used < _SENDS_MAX and len(events) < self._most:
            at = self._step(data, at, end)
        self._flush(data)
        if self._ended:
            self._need, at = 1, end
        # Who is fed must not keep the view: its owner could not resize or release the buffer.
        self._view, self._events = _NO_VIEW, []
        return at

    @cython.cfunc
    def _end(self, data: cython.const[cython.uchar][::1], reason: str) -> None:
        self._flush(data)
        self._events.append(Violation(reason))
        self._ended = True

    @cython.cfunc
    def _flush(self, data: cython.const[cython.uchar][::1]) -> None:
        """Hand out the run that there is."""
        rows: Rows = self._rows
        if self._used > self._first:
            self._events.append(
                run_of(
                    self._view,
                    rows.numbers_view,
                    rows.extras_view,
                    self.topics,
                    data,
                    rows.numbers,
                    rows.extras,
                    self._first,
                    self._used - self._first,
                    self._size_bytes,
                )
            )
            self._first = self._used
            self._size_bytes = 0

    @cython.cfunc
    def _step(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take the frame at `at`, if it is there; gives what is behind it."""
        size: cython.longlong
        word: cython.longlong
        header_size: cython.Py_ssize_t
        body_at: cython.Py_ssize_t
        if end - at < _SIZE_SIZE:
            self._need = _SIZE_SIZE
            return at
        size = load_u32_be(data, at)
        if size < 4 or size + 4 > self._frame_size_max:
            self._end(data, f"a frame of {size} bytes")
            return at
        if end - at < _PREFIX_SIZE:
            self._need = _PREFIX_SIZE
            return at
        word = load_u32_be(data, at + 4)
        header_size = word & 0xFFFFFF
        if word >> 24 > 1:
            self._end(data, f"a header of the unknown kind {word >> 24}")
        elif header_size > size - 4:
            self._end(data, "a header larger than its frame")
        elif header_size > self._header_size_max:
            self._end(data, f"a header of {header_size} bytes")
        elif end - at < size + 4:
            self._need = size + 4
        else:
            body_at = at + _PREFIX_SIZE + header_size
            at += size + 4
            self._take(data, body_at - header_size, body_at, at, word >> 24 == 1)
        return at

    @cython.cfunc
    def _take(
        self,
        data: cython.const[cython.uchar][::1],
        header_at: cython.Py_ssize_t,
        body_at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        binary: cython.bint,
    ) -> None:
        """Take a whole frame."""
        fields: Fields = self._fields
        known: cython.bint = False
        if self._scanning:
            known = fields.scan_binary(data, header_at, body_at) if binary else fields.scan_json(data, header_at, body_at)
            if known:
                known = fields.is_utf8(data) if binary else is_utf8(data, header_at, body_at)
        if not known:
            self._take_unusual(data, header_at, body_at, end, binary)
            return
        if self._is_send() and self._send(data, data, body_at, end, binary):
            return
        self._flush(data)
        key = b""
        if self._can_repeat(end - body_at):
            lane = self._repeats.find(fields, data, binary, fields.code == _BATCHES)
            if lane is not None:
                body = bytes_at(data, body_at, end - body_at)
                self._events.append(Again(lane, fields.opaque, self._repeats.number, self._repeats.commit_offset, body))
                if self._repeated < _REPEATS_MAX:
                    self._repeated += 1
                    self._most += 1
                return
            key = self._repeats.key
        self._events.append(
            Request(
                fields.code,
                fields.opaque,
                fields.flag,
                fields.ext(data),
                bytes_at(data, body_at, end - body_at),
                binary,
                fields.remark(data),
                fields.language,
                fields.version,
                key,
            )
        )

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _is_send(self) -> cython.bint:
        code: cython.longlong = self._fields.code
        return code in (_SEND_V2, _SEND) and self._server and not self.every_request and self._fields.flag & 1 == 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _can_repeat(self, body_size: cython.Py_ssize_t) -> cython.bint:
        """Say whether this is a request of a kind that comes again and again."""
        code: cython.longlong = self._fields.code
        if not self._server or self.every_request or self._fields.flag & 3:
            return False
        return code == _BATCHES or (code in (_PULL, _LITE_PULL) and not body_size)

    @cython.cfunc
    def _take_unusual(
        self,
        data: cython.const[cython.uchar][::1],
        header_at: cython.Py_ssize_t,
        body_at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        binary: cython.bint,
    ) -> None:
        """Take a frame whose header the scanner does not read: by way of an object."""
        raw = bytes_at(data, header_at, body_at - header_at)
        try:
            read: Header = header.decode_binary(raw) if binary else header.decode_json(raw)
        except RemoteProtocolError as error:
            self._end(data, error.reason)
            return
        if read.code in (_SEND_V2, _SEND):
            # Once more, in the form that is easy to scan: everything a send needs is in there.
            raw = header.encode_binary(read)
            if self._fields.scan_binary(raw, 0, len(raw)) and self._is_send() and self._send(raw, data, body_at, end, binary):
                return
        self._flush(data)
        body = bytes_at(data, body_at, end - body_at)
        self._events.append(Request(read.code, read.opaque, read.flag, read.ext, body, binary, read.remark, read.language, read.version))

    @cython.cfunc
    @cython.exceptval(-1)
    def _send(
        self,
        source: cython.const[cython.uchar][::1],
        data: cython.const[cython.uchar][::1],
        body_at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        binary: cython.bint,
    ) -> cython.bint:
        """Make a row of a send whose header was scanned from `source`; False if it is not only an append."""
        sys_flag: cython.longlong
        queue_id: cython.longlong
        reconsumed: cython.longlong
        queues: cython.longlong
        topic: cython.int
        row: cython.Py_ssize_t
        start: cython.Py_ssize_t = self._extras_end
        stop: cython.Py_ssize_t
        generic_size: cython.Py_ssize_t
        fields: Fields = self._fields
        rows: Rows = self._rows
        if end - body_at > self._body_size_max:
            return False
        if fields.code == _SEND_V2:
            self._choose_letters(source)
        else:
            self._choose_names(source)
        if not self._is_plain_batch(source) or not self._integer(source, _SYS_FLAG, _I32_MAX) or self._number & _NOT_AN_APPEND:
            return False
        sys_flag = self._number
        if not self._integer(source, _QUEUE, _I32_MAX):
            return False
        queue_id = self._number
        if not self._optional(source, _RECONSUMED_MAX) or not self._optional(source, _RECONSUMED):
            return False
        reconsumed = self._number
        if not self._optional(source, _QUEUES):
            return False
        queues = self._number
        topic = self._topic_number(source)
        if topic < 0:
            return False
        stop = self._keep_properties(source, start)
        if stop < 0 or not self._keep_rest(source, data, start, body_at, end, sys_flag, reconsumed):
            return False
        generic_size = self._keeper.generic_size
        rows.reserve_rows(self._used)
        row = _COLUMNS * self._used
        rows.numbers[row] = fields.opaque
        rows.numbers[row + 1] = (1 if fields.flag & 2 else 0) | (2 if binary else 0) | (4 if fields.code == _SEND_V2 else 0)
        rows.numbers[row + 2] = topic
        rows.numbers[row + 3] = queue_id
        rows.numbers[row + 4] = body_at
        rows.numbers[row + 5] = end - body_at
        rows.numbers[row + 6] = start
        rows.numbers[row + 7] = stop - start
        rows.numbers[row + 8] = generic_size
        rows.numbers[row + 9] = queues
        self._used += 1
        self._extras_end = stop
        self._size_bytes += _RECORD_OVERHEAD + generic_size + stop - start + end - body_at
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _choose_letters(self, source: cython.const[cython.uchar][::1]) -> cython.int:
        """Note where the fields of SEND_MESSAGE_V2 are: each is called by a letter."""
        i: cython.Py_ssize_t
        letter: cython.int
        places: cython.int[::1] = self._fields.places
        for i in range(_CHOSEN):
            self._chosen[i] = -1
        for i in range(0, _PLACES * self._fields.count, _PLACES):
            if places[i + 1] != 1:
                continue
            letter = source[places[i]]
            if letter == 98:  # b
                self._chosen[_TOPIC] = i
            elif letter == 100:  # d
                self._chosen[_QUEUES] = i
            elif letter >= 101 and letter <= 106:  # e to j
                self._chosen[letter - 100] = i
            elif letter == 108:  # l
                self._chosen[_RECONSUMED_MAX] = i
            elif letter == 109:  # m
                self._chosen[_BATCH] = i
        return 0

    @cython.cfunc
    def _choose_names(self, source: cython.const[cython.uchar][::1]) -> None:
        """Note where the fields of SEND_MESSAGE are."""
        i: cython.Py_ssize_t
        chosen: cython.Py_ssize_t
        places: cython.int[::1] = self._fields.places
        for i in range(_CHOSEN):
            self._chosen[i] = -1
        for i in range(0, _PLACES * self._fields.count, _PLACES):
            chosen = _choose(bytes_at(source, places[i], places[i + 1]))
            if chosen >= 0:
                self._chosen[chosen] = i

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_plain_batch(self, source: cython.const[cython.uchar][::1]) -> cython.bint:
        """Say whether the header says that this is no batch."""
        i: cython.Py_ssize_t = self._chosen[_BATCH]
        places: cython.int[::1] = self._fields.places
        return (
            i < 0 or equal_bytes(b"false", source, places[i + 2], places[i + 3]) or equal_bytes(b"0", source, places[i + 2], places[i + 3])
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def _optional(self, source: cython.const[cython.uchar][::1], chosen: cython.Py_ssize_t) -> cython.bint:
        """Read a number of 32 bits that may be left out into `_number`, 0 then; False if it is none."""
        self._number = 0
        return self._chosen[chosen] < 0 or self._integer(source, chosen, _I32_MAX)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _integer(self, source: cython.const[cython.uchar][::1], chosen: cython.Py_ssize_t, most: cython.longlong) -> cython.bint:
        """Read a field that is a whole number from -most to most into `_number`; False if it is missing or none."""
        i: cython.Py_ssize_t = self._chosen[chosen]
        at: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        value: cython.longlong = 0
        negative: cython.bint
        if i < 0:
            return False
        at = self._fields.places[i + 2]
        stop = at + self._fields.places[i + 3]
        negative = at < stop and source[at] == 45
        if negative:
            at += 1
        if stop - at < 1 or stop - at > 18:
            return False
        while at < stop:
            if source[at] < 48 or source[at] > 57:
                return False
            value = 10 * value + source[at] - 48
            at += 1
        self._number = -value if negative else value
        return value <= most

    @cython.cfunc
    @cython.exceptval(-2)
    def _topic_number(self, source: cython.const[cython.uchar][::1]) -> cython.int:
        """Say which of `topics` this send is for; below 0 if it is for none that may simply be sent to."""
        i: cython.Py_ssize_t = self._chosen[_TOPIC]
        at: cython.Py_ssize_t
        size: cython.Py_ssize_t
        if i < 0 or self._fields.places[i + 4] == _ESCAPED:
            return -1
        at = self._fields.places[i + 2]
        size = self._fields.places[i + 3]
        if not equal_bytes(self._last_topic, source, at, size):
            name = bytes_at(source, at, size)
            number = self._topic_numbers.get(name)
            if number is None:
                number = self._topic_numbers[name] = self._new_topic(name)
            self._last_topic, self._last_number = name, number
        return self._last_number

    def _new_topic(self, raw: bytes) -> int:
        """Remember a topic by its name; gives its number, or -1."""
        if not raw.isascii():
            return _NOT_PLAIN
        name = raw.decode()
        if not is_valid_topic(name) or group_of(name) is not None or name in NOT_TO_BE_SENT_TO:
            return _NOT_PLAIN
        self.topics.append(name)
        return len(self.topics) - 1

    @cython.cfunc
    @cython.exceptval(-2)
    def _keep_properties(self, source: cython.const[cython.uchar][::1], start: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Put the properties into the extra that begins at `start`; gives where they end, -1 if this is not only an append."""
        i: cython.Py_ssize_t = self._chosen[_PROPERTIES]
        at: cython.Py_ssize_t = start + self._keeper.properties_at
        end: cython.Py_ssize_t = at
        size: cython.Py_ssize_t = self._fields.places[i + 3] if i >= 0 else 0
        self._rows.reserve_extras(start, size + self._keeper.overhead)
        if i >= 0 and self._fields.places[i + 4] == _ESCAPED:
            end = unescape(self._rows.extras, at, source, self._fields.places[i + 2], size)
        elif i >= 0:
            copy(self._rows.extras, at, source, self._fields.places[i + 2], size)
            end = at + size
        end = self._keeper.keep_properties(self._rows.extras, at, end, True)
        return -1 if end - at > _PROPERTIES_SIZE_MAX else end

    @cython.cfunc
    @cython.exceptval(check=False)
    def _keep_rest(
        self,
        source: cython.const[cython.uchar][::1],
        data: cython.const[cython.uchar][::1],
        start: cython.Py_ssize_t,
        body_at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        sys_flag: cython.longlong,
        reconsumed: cython.longlong,
    ) -> cython.bint:
        """Write what comes before the properties; False if a number is missing or none."""
        flag: cython.longlong
        if not self._integer(source, _FLAG, _I32_MAX):
            return False
        flag = self._number
        if not self._integer(source, _BORN, _I64_MAX):
            return False
        self._keeper.write_fixed(
            self._rows.extras, start, flag, sys_flag, self._number, reconsumed, self._checksum.body_crc(data, body_at, end - body_at)
        )
        return True
