"""What a NATS server sends: above all messages, straight from the live batch that they came in. Hot; compiled if possible.

    MSG  subject sid [reply] size␍␊ payload ␍␊
    HMSG subject sid [reply] header-size size␍␊ headers payload ␍␊                                      to clients
    RMSG account subject [reply | "|" queues | "+" reply queues] size␍␊ payload ␍␊
    HMSG account subject [the same] header-size size␍␊ headers payload ␍␊                               to other servers

Pairs are what `core` has found out: int32 numbers, two for each message that a target gets, the message's index in the
batch and the tag of the subscription. Read next: `wire/live.py` for the batch, `decode` for the other direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cython

from polymq.wire import live

if not cython.compiled:
    from polymq.wire.inline import bytes_at, copy, equal_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polymq.wire.live import LiveBatch

__all__ = [
    "OK",
    "PING",
    "PONG",
    "SidTable",
    "encode_confirmed",
    "encode_messages",
    "encode_routed",
    "error_line",
    "messages_size_bytes",
    "next_forbidden",
    "next_unheard",
    "no_responders",
    "ok_lines",
    "remote_subscribe",
    "remote_unsubscribe",
    "routed_size_bytes",
    "same_messages",
    "same_pairs",
]

OK: Final = b"+OK\r\n"
PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"

_OK_LINES: Final = tuple(OK * count for count in range(129))

_COLUMNS = cython.declare(cython.Py_ssize_t, live.COLUMNS)
_SUBJECT_AT = cython.declare(cython.Py_ssize_t, live.SUBJECT_AT)
_SUBJECT_SIZE = cython.declare(cython.Py_ssize_t, live.SUBJECT_SIZE)
_REPLY_AT = cython.declare(cython.Py_ssize_t, live.REPLY_AT)
_REPLY_SIZE = cython.declare(cython.Py_ssize_t, live.REPLY_SIZE)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, live.HEADER_SIZE)
_PAYLOAD_AT = cython.declare(cython.Py_ssize_t, live.PAYLOAD_AT)
_PAYLOAD_SIZE = cython.declare(cython.Py_ssize_t, live.PAYLOAD_SIZE)
_ACCOUNT_AT = cython.declare(cython.Py_ssize_t, live.ACCOUNT_AT)
_ACCOUNT_SIZE = cython.declare(cython.Py_ssize_t, live.ACCOUNT_SIZE)
_SPARE = cython.declare(cython.Py_ssize_t, live.SPARE)
_UNTAKEN = cython.declare(cython.int, live.UNTAKEN)

# A sid with the blank behind it lies in a slot of 16 bytes, the last of which is its size; almost all do. A slot is
# copied whole, which is one instruction, and what follows is written over its rest.
_SLOT = cython.declare(cython.Py_ssize_t, 16)
_SLOT_SIZE: Final = 16
_SID_SHORT_MAX: Final = 14
_LONG_SID = cython.declare(cython.int, 255)
_SLOTS_FIRST: Final = 4

# What a line has beside names and payload: "HMSG ", a slot, blanks, two sizes of ten digits, two line ends.
_OVERHEAD = cython.declare(cython.Py_ssize_t, 64)

_ACKNOWLEDGEMENT_DOTS_MIN = cython.declare(cython.int, 8)


def ok_lines(count: int) -> bytes:
    """Answer `count` commands of a verbose client; ready-made for the usual numbers."""
    return _OK_LINES[count] if count < len(_OK_LINES) else OK * count


def error_line(text: bytes) -> bytes:
    """Say what is wrong; `problems` has the words. Clients want the quotes."""
    return b"-ERR '%b'\r\n" % text


def no_responders(reply: bytes, sid: bytes, subject: bytes) -> bytes:
    """Tell who asked that nobody listens to `subject`; the subject is named as nats-server does from 2.12 on."""
    headers = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
    return b"HMSG %b %b %d %d\r\n%b\r\n" % (reply, sid, len(headers), len(headers), headers)


def remote_subscribe(account: bytes, subject: bytes, queue: bytes = b"", weight: int = 1) -> bytes:
    """Tell another server that there are takers for `subject` here; of a queue group, how many."""
    if queue:
        return b"RS+ %b %b %b %d\r\n" % (account, subject, queue, weight)
    return b"RS+ %b %b\r\n" % (account, subject)


def remote_unsubscribe(account: bytes, subject: bytes, queue: bytes = b"") -> bytes:
    """Tell another server that there are no more takers for `subject` here."""
    return b"RS- %b %b %b\r\n" % (account, subject, queue) if queue else b"RS- %b %b\r\n" % (account, subject)


def next_unheard(batch: LiveBatch, first: cython.Py_ssize_t) -> int:
    """Find the first message from `first` on that asks for an answer and that nobody took; the batch's count if there is none."""
    rows: cython.int[::1] = batch.rows
    count: cython.Py_ssize_t = batch.count
    while first < count and not (rows[first * _COLUMNS + _SPARE] & _UNTAKEN and rows[first * _COLUMNS + _REPLY_SIZE]):
        first += 1
    return first


def next_forbidden(batch: LiveBatch, first: cython.Py_ssize_t, may_publish: Callable[[bytes], bool]) -> int:
    """Find the first message from `first` on whose subject may not be published to; the batch's count if there is none.

    Cost:    a comparison for each message, a look-up more where the subject changes, one question for each subject.
    """
    rows: cython.int[::1] = batch.rows
    view: cython.const[cython.uchar][::1] = batch.view
    count: cython.Py_ssize_t = batch.count
    row: cython.Py_ssize_t
    allowed: set[bytes] = set()
    last: bytes = b""
    while first < count:
        row = first * _COLUMNS
        if not equal_bytes(last, view, rows[row + _SUBJECT_AT], rows[row + _SUBJECT_SIZE]):
            last = bytes_at(view, rows[row + _SUBJECT_AT], rows[row + _SUBJECT_SIZE])
            if last not in allowed:
                if not may_publish(last):
                    break
                allowed.add(last)
        first += 1
    return first


@cython.final
@cython.cclass
class SidTable:
    """A client's names for its subscriptions, by the tag of each: a small number that is used again once it is free.

    `payload_size_bytes` counts what `encode_messages` has written of headers and payloads.

    Cost:  16 bytes a subscription; a sid of more than 14 bytes is an object.
    """

    payload_size_bytes = cython.declare(cython.longlong, visibility="readonly")
    slots: cython.uchar[::1]
    _room: cython.Py_ssize_t
    _used: cython.Py_ssize_t
    _free: list[int]
    long_sids: dict[int, bytes]

    def __init__(self) -> None:
        self._room = self._used = self.payload_size_bytes = 0
        self._free = []
        self.long_sids = {}
        self.slots = memoryview(bytearray(_SLOT_SIZE))

    def __len__(self) -> int:
        return self._used - len(self._free)

    def add(self, sid: bytes) -> int:
        """Remember a sid; give its tag."""
        if self._free:
            tag = self._free.pop()
        else:
            tag = self._used
            self._used += 1
            if self._used > self._room:
                self._grow()
        at: cython.Py_ssize_t = tag * _SLOT_SIZE
        if len(sid) <= _SID_SHORT_MAX:
            copy(self.slots, at, (sid + b" ").ljust(_SLOT_SIZE - 1) + bytes((len(sid),)), 0, _SLOT_SIZE)
        else:
            self.slots[at + _SLOT_SIZE - 1] = _LONG_SID
            self.long_sids[tag] = sid
        return tag

    def note_payload(self, size_bytes: int) -> None:
        """Count headers and payloads that were written for another client as for this one."""
        self.payload_size_bytes += size_bytes

    def remove(self, tag: int) -> None:
        """Forget a sid; its tag may be given to another at once."""
        assert 0 <= tag < self._used
        self.long_sids.pop(tag, None)
        self._free.append(tag)

    def sid(self, tag: int) -> bytes:
        """Give back the sid of a tag."""
        assert 0 <= tag < self._used
        at: cython.Py_ssize_t = tag * _SLOT_SIZE
        size = self.slots[at + _SLOT_SIZE - 1]
        return self.long_sids[tag] if size == _LONG_SID else bytes(self.slots[at : at + size])

    @cython.cfunc
    def _grow(self) -> None:
        room = max(_SLOTS_FIRST, 2 * self._room)
        slots = bytearray(room * _SLOT_SIZE)
        copy(slots, 0, self.slots, 0, self._room * _SLOT_SIZE)
        self.slots = memoryview(slots)
        self._room = room


def messages_size_bytes(batch: LiveBatch, pairs: memoryview, count: int, sids: SidTable) -> int:
    """Say how much room `encode_messages` needs at most."""
    return _names_and_payloads(batch.rows, pairs, count) + _long_sids(pairs, count, sids)


def encode_messages(target: bytearray, at: int, batch: LiveBatch, pairs: memoryview, count: int, sids: SidTable, *, headers: bool) -> int:
    """Write the message of each pair as MSG or HMSG into `target` from `at` on; return where the messages end.

    `headers`: the client asked for them; from messages to others they are cut. A message from JetStream behind another
    server (`$JS.ACK.<stream>.<consumer>.<5 numbers>@<subject>`) gets back the subject and the reply that it has for clients;
    names may have an @ as well, so the first one behind eight dots counts.

    Limits:  `messages_size_bytes(…)` bytes of room from `at` on, all of which may be written to.
    Cost:    one copy of the payloads; O(pairs).
    Source:  docs.nats.io, "Client protocol"; nats-server 2.9.10.
    """
    assert at >= 0
    assert 0 <= 2 * count <= len(pairs)
    assert len(target) - at >= messages_size_bytes(batch, pairs, count, sids)
    return _write_messages(target, at, batch.view, batch.rows, pairs, count, sids, headers)


def encode_confirmed(
    target: bytearray, at: int, batch: LiveBatch, pairs: memoryview, count: int, sids: SidTable, *, headers: bool, said: cython.Py_ssize_t
) -> int:
    """Do as `encode_messages`, with a `+OK` before each message for it and all before it that have none; the first `said` have theirs.

    Limits:  as there, and a line for each message of the batch up to the last one.
    """
    place: cython.Py_ssize_t = 0
    first: cython.Py_ssize_t
    last: cython.Py_ssize_t = count
    numbers: cython.int[::1] = pairs
    line: cython.const[cython.uchar][::1] = OK
    room: cython.uchar[::1] = target
    behind: cython.Py_ssize_t = at
    rows: cython.int[::1] = batch.rows
    source: cython.const[cython.uchar][::1] = batch.view
    assert at >= 0
    assert 0 <= 2 * count <= len(pairs)
    owed: cython.Py_ssize_t = max(0, pairs[2 * count - 2] + 1 - said) if count else 0
    assert len(target) - at >= messages_size_bytes(batch, pairs, count, sids) + owed * len(OK)
    while place < last:
        while said <= numbers[2 * place]:
            copy(room, behind, line, 0, 5)
            behind += 5
            said += 1
        first = place
        while place < last and numbers[2 * place] < said:
            place += 1
        behind = _write_messages(room, behind, source, rows, numbers[2 * first :], place - first, sids, headers)
    return behind


def same_messages(pairs: memoryview, sids: SidTable, others: memoryview, other_sids: SidTable, count: int) -> bool:
    """Whether `encode_messages` writes the same for two clients that both have asked for headers, or both have not.

    Cost: O(pairs), some nanoseconds each; no for sids of more than 14 bytes, which are not compared.
    """
    assert 0 <= 2 * count <= min(len(pairs), len(others))
    return bool(_same_messages(pairs, sids, others, other_sids, count))


def same_pairs(pairs: memoryview, others: memoryview, count: int) -> bool:
    """Whether two rows of pairs are the same: then `encode_routed` writes the same, but for queue groups."""
    assert 0 <= 2 * count <= min(len(pairs), len(others))
    return bool(_same_pairs(pairs, others, 2 * count))


@cython.cfunc
@cython.exceptval(check=False)
def _same_pairs(pairs: cython.int[::1], others: cython.int[::1], size: cython.Py_ssize_t) -> cython.bint:
    i: cython.Py_ssize_t
    for i in range(size):  # noqa: SIM110  # a generator would be an object
        if pairs[i] != others[i]:
            return False
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _same_messages(
    pairs: cython.int[::1], sids: SidTable, others: cython.int[::1], other_sids: SidTable, count: cython.Py_ssize_t
) -> cython.bint:
    tag: cython.Py_ssize_t = -1
    other_tag: cython.Py_ssize_t = -1
    i: cython.Py_ssize_t
    for i in range(count):
        if pairs[2 * i] != others[2 * i]:
            return False
        if pairs[2 * i + 1] != tag or others[2 * i + 1] != other_tag:
            tag = pairs[2 * i + 1]
            other_tag = others[2 * i + 1]
            if not _same_sid(sids.slots, tag * _SLOT, other_sids.slots, other_tag * _SLOT):
                return False
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _same_sid(slots: cython.uchar[::1], at: cython.Py_ssize_t, others: cython.uchar[::1], other_at: cython.Py_ssize_t) -> cython.bint:
    size: cython.Py_ssize_t = slots[at + 15]
    k: cython.Py_ssize_t
    if size == _LONG_SID or size != others[other_at + 15]:
        return False
    for k in range(size):  # noqa: SIM110  # a generator would be an object
        if slots[at + k] != others[other_at + k]:
            return False
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _names_and_payloads(rows: cython.int[::1], pairs: cython.int[::1], count: cython.Py_ssize_t) -> cython.longlong:
    """Add up what the lines of pairs take at most, but for long sids and for names of accounts and queue groups."""
    total: cython.longlong = 0
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t
    for i in range(count):
        row = pairs[2 * i] * _COLUMNS
        total += rows[row + _SUBJECT_SIZE] + rows[row + _REPLY_SIZE] + rows[row + _PAYLOAD_SIZE] + _OVERHEAD
    return total


@cython.cfunc
def _long_sids(pairs: cython.int[::1], count: cython.Py_ssize_t, sids: SidTable) -> cython.Py_ssize_t:
    """Add up the sids that have no slot."""
    total: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    if not sids.long_sids:
        return 0
    for i in range(count):
        total += len(sids.long_sids.get(pairs[2 * i + 1], b""))
    return total


@cython.cfunc
def _write_messages(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    rows: cython.int[::1],
    pairs: cython.int[::1],
    count: cython.Py_ssize_t,
    sids: SidTable,
    headers: cython.bint,
) -> cython.Py_ssize_t:
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t
    slot: cython.Py_ssize_t
    subject_at: cython.Py_ssize_t
    subject_size: cython.Py_ssize_t
    reply_at: cython.Py_ssize_t
    reply_size: cython.Py_ssize_t
    header_size: cython.Py_ssize_t
    cut: cython.Py_ssize_t
    size: cython.Py_ssize_t
    hidden: cython.Py_ssize_t
    for i in range(count):
        row = pairs[2 * i] * _COLUMNS
        slot = pairs[2 * i + 1] * _SLOT
        subject_at = rows[row + _SUBJECT_AT]
        subject_size = rows[row + _SUBJECT_SIZE]
        reply_at = rows[row + _REPLY_AT]
        reply_size = rows[row + _REPLY_SIZE]
        header_size = rows[row + _HEADER_SIZE]
        size = rows[row + _PAYLOAD_SIZE]
        cut = 0 if headers else header_size
        if reply_size and rows[row + _ACCOUNT_SIZE]:
            hidden = _hidden_subject(source, reply_at, reply_at + reply_size)
            if hidden:
                subject_at = hidden
                subject_size = reply_at + reply_size - hidden
                reply_size = hidden - 1 - reply_at
        if header_size > cut:
            target[at] = 72  # H
            at += 1
        target[at] = 77  # M
        target[at + 1] = 83  # S
        target[at + 2] = 71  # G
        target[at + 3] = 32
        copy(target, at + 4, source, subject_at, subject_size)
        at += 4 + subject_size
        target[at] = 32
        if sids.slots[slot + 15] == _LONG_SID:
            at = _write_text(target, at + 1, sids.long_sids[pairs[2 * i + 1]])
        else:
            copy(target, at + 1, sids.slots, slot, 16)
            at += sids.slots[slot + 15] + 2
        if reply_size:
            copy(target, at, source, reply_at, reply_size)
            at += reply_size
            target[at] = 32
            at += 1
        sids.payload_size_bytes += size - cut
        at = _write_payload(target, at, source, rows[row + _PAYLOAD_AT] + cut, header_size - cut, size - cut)
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _hidden_subject(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Say where the subject is that JetStream has put behind the @ of a reply; 0 if this is no such reply."""
    dots: cython.int = 0
    # "$JS.ACK." is looked at in full only behind a $, which few replies have.
    if end - at < 8 or source[at] != 36 or source[at + 1] != 74 or source[at + 2] != 83 or source[at + 3] != 46:
        return 0
    if source[at + 4] != 65 or source[at + 5] != 67 or source[at + 6] != 75 or source[at + 7] != 46:
        return 0
    while at < end - 1:
        if source[at] == 46:
            dots += 1
        elif source[at] == 64 and dots >= _ACKNOWLEDGEMENT_DOTS_MIN:
            return at + 1
        at += 1
    return 0


@cython.cfunc
def _write_text(target: cython.uchar[::1], at: cython.Py_ssize_t, text: bytes) -> cython.Py_ssize_t:
    """Write a name that is an object, and a blank."""
    source: cython.const[cython.uchar][::1] = text
    size: cython.Py_ssize_t = len(text)
    copy(target, at, source, 0, size)
    target[at + size] = 32
    return at + size + 1


@cython.cfunc
@cython.exceptval(check=False)
def _write_number(target: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.uint) -> cython.Py_ssize_t:
    """Write a size in digits."""
    after: cython.Py_ssize_t = at + 1
    limit: cython.uint = 10
    place: cython.Py_ssize_t
    while value >= limit:  # a size has at most nine digits: the limit fits
        after += 1
        limit *= 10
    place = after
    while place > at:
        place -= 1
        target[place] = 48 + value % 10
        value //= 10
    return after


@cython.cfunc
@cython.exceptval(check=False)
def _write_payload(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    payload_at: cython.Py_ssize_t,
    header_size: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the sizes, of the headers only if there are any, and the payload between two line ends."""
    if header_size:
        at = _write_number(target, at, header_size)
        target[at] = 32
        at += 1
    at = _write_number(target, at, size)
    target[at] = 13
    target[at + 1] = 10
    copy(target, at + 2, source, payload_at, size)
    at += 2 + size
    target[at] = 13
    target[at + 1] = 10
    return at + 2


def routed_size_bytes(batch: LiveBatch, pairs: memoryview, count: int, account: bytes, queues: Mapping[int, Sequence[bytes]]) -> int:
    """Say how much room `encode_routed` needs at most."""
    names = sum(len(name) + 1 for listed in queues.values() for name in listed)
    return _names_and_payloads(batch.rows, pairs, count) + count * len(account) + _accounts(batch.rows, pairs, count) + names


def encode_routed(
    target: bytearray,
    at: int,
    batch: LiveBatch,
    pairs: memoryview,
    count: int,
    account: bytes,
    queues: Mapping[int, Sequence[bytes]],
    *,
    headers: bool,
) -> int:
    """Write the message of each pair as RMSG or HMSG into `target` from `at` on; return where the messages end.

    `account` is that of messages whose row names none; `queues` has, for some of the messages by index, the names of
    the queue groups for which the other server was chosen. `headers`: it understands them; else they are cut.

    Limits:  `routed_size_bytes(…)` bytes of room from `at` on, all of which may be written to; one pair per message.
    Cost:    one copy of the payloads; O(pairs).
    Source:  nats-server 2.9.10 and 2.14.5, on the wire.
    """
    assert at >= 0
    assert 0 <= 2 * count <= len(pairs)
    assert len(target) - at >= routed_size_bytes(batch, pairs, count, account, queues)
    return _write_routed(target, at, batch.view, batch.rows, pairs, count, account, queues, headers)


@cython.cfunc
@cython.exceptval(check=False)
def _accounts(rows: cython.int[::1], pairs: cython.int[::1], count: cython.Py_ssize_t) -> cython.longlong:
    total: cython.longlong = 0
    i: cython.Py_ssize_t
    for i in range(count):
        total += rows[pairs[2 * i] * _COLUMNS + _ACCOUNT_SIZE]
    return total


@cython.cfunc
def _write_routed(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    rows: cython.int[::1],
    pairs: cython.int[::1],
    count: cython.Py_ssize_t,
    account: cython.const[cython.uchar][::1],
    queues: Mapping[int, Sequence[bytes]],
    headers: cython.bint,
) -> cython.Py_ssize_t:
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t
    size: cython.Py_ssize_t
    header_size: cython.Py_ssize_t
    cut: cython.Py_ssize_t
    own_size: cython.Py_ssize_t = len(account)
    directed: cython.bint = len(queues) > 0
    for i in range(count):
        row = pairs[2 * i] * _COLUMNS
        header_size = rows[row + _HEADER_SIZE]
        cut = 0 if headers else header_size
        target[at] = 72 if header_size > cut else 82  # H or R
        target[at + 1] = 77  # M
        target[at + 2] = 83  # S
        target[at + 3] = 71  # G
        target[at + 4] = 32
        at += 5
        size = rows[row + _ACCOUNT_SIZE]
        if size:
            copy(target, at, source, rows[row + _ACCOUNT_AT], size)
        else:
            size = own_size
            copy(target, at, account, 0, size)
        at += size
        target[at] = 32
        size = rows[row + _SUBJECT_SIZE]
        copy(target, at + 1, source, rows[row + _SUBJECT_AT], size)
        at += 1 + size
        target[at] = 32
        at += 1
        size = rows[row + _REPLY_SIZE]
        names = queues.get(pairs[2 * i]) if directed else None
        if names:
            target[at] = 43 if size else 124  # + or |
            target[at + 1] = 32
            at += 2
        if size:
            copy(target, at, source, rows[row + _REPLY_AT], size)
            at += size
            target[at] = 32
            at += 1
        if names:
            for name in names:
                at = _write_text(target, at, name)
        size = rows[row + _PAYLOAD_SIZE]
        at = _write_payload(target, at, source, rows[row + _PAYLOAD_AT] + cut, header_size - cut, size - cut)
    return at
