"""From a live batch to another one: some of its messages under other names, for another namespace.

What is handed on from namespace to namespace is as much as what is published, so it goes in batches as well: `gather` sorts the
pairs of a target that several share, `rewrite` makes the new batch, `note_taken` tells the old one what has become of it. Hot
module: see docs/adr/0001. Read next: `live.py`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import cython

from polymq.wire import live

if not cython.compiled:
    from polymq.wire.inline import bytes_at, copy, equal_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["gather", "note_taken", "rewrite"]

_COLUMNS = cython.declare(cython.Py_ssize_t, live.COLUMNS)
_SUBJECT_AT = cython.declare(cython.Py_ssize_t, live.SUBJECT_AT)
_SUBJECT_SIZE = cython.declare(cython.Py_ssize_t, live.SUBJECT_SIZE)
_REPLY_AT = cython.declare(cython.Py_ssize_t, live.REPLY_AT)
_REPLY_SIZE = cython.declare(cython.Py_ssize_t, live.REPLY_SIZE)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, live.HEADER_SIZE)
_PAYLOAD_AT = cython.declare(cython.Py_ssize_t, live.PAYLOAD_AT)
_PAYLOAD_SIZE = cython.declare(cython.Py_ssize_t, live.PAYLOAD_SIZE)
_QUEUES_AT = cython.declare(cython.Py_ssize_t, live.QUEUES_AT)
_QUEUES_SIZE = cython.declare(cython.Py_ssize_t, live.QUEUES_SIZE)
_SPARE = cython.declare(cython.Py_ssize_t, live.SPARE)
_UNTAKEN = cython.declare(cython.int, live.UNTAKEN)

# Positions in a batch have 31 bits.
_SIZE_BYTES_MAX: Final = (1 << 31) - 1


def gather(
    pairs: memoryview, count: cython.Py_ssize_t, owners: memoryview, queues: Sequence[bytes]
) -> list[tuple[int, memoryview, Sequence[bytes]]]:
    """Sort pairs (message, tag) by whose they are, each message once for each owner, in order.

    `owners` (int32) says whose a tag is, and `queues` for which group it takes messages, if any. Gives for each owner that has
    some: its number, its messages as picks (message, which text of the following names the groups), those texts.
    Cost: 5 ns for each pair, more where one owner has a message for several groups.
    """
    numbers: cython.int[::1] = pairs
    owner_of: cython.int[::1] = owners
    assert 0 <= 2 * count <= len(pairs)
    assert len(queues) <= len(owners)
    owner_count: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    place: cython.Py_ssize_t
    owner: cython.Py_ssize_t
    for i in range(count):
        owner_count = max(owner_count, owner_of[numbers[2 * i + 1]] + 1)
    firsts_view = memoryview(array("i", bytes(4 * (owner_count + 1))))
    ends_view = memoryview(array("i", bytes(4 * owner_count)))
    picks_view = memoryview(array("i", bytes(8 * count)))
    firsts: cython.int[::1] = firsts_view
    ends: cython.int[::1] = ends_view
    picks: cython.int[::1] = picks_view
    for i in range(count):
        firsts[owner_of[numbers[2 * i + 1]] + 1] += 1
    for i in range(owner_count):
        firsts[i + 1] += firsts[i]
        ends[i] = firsts[i]
    # Of owners that have a message for several groups: the texts for that.
    joined: dict[int, _Groups] = {}
    for i in range(count):
        owner = owner_of[numbers[2 * i + 1]]
        place = ends[owner]
        if place > firsts[owner] and picks[2 * place - 2] == numbers[2 * i]:
            if picks[2 * place - 1] != numbers[2 * i + 1]:
                if owner not in joined:
                    joined[owner] = _Groups(queues)
                picks[2 * place - 1] = joined[owner].join(picks[2 * place - 1], numbers[2 * i + 1])
        else:
            picks[2 * place] = numbers[2 * i]
            picks[2 * place + 1] = numbers[2 * i + 1]
            ends[owner] = place + 1
    found: list[tuple[int, memoryview, Sequence[bytes]]] = []
    for i in range(owner_count):
        if ends[i] > firsts[i]:
            texts = joined[i].texts if i in joined else queues
            found.append((i, picks_view[2 * firsts[i] : 2 * ends[i]], texts))
    return found


class _Groups:
    """Texts that name several groups, behind those that name one each."""

    def __init__(self, queues: Sequence[bytes]) -> None:
        self.texts = list(queues)
        self._known: dict[tuple[int, int], int] = {}

    def join(self, number: int, other: int) -> int:
        """Say which text names the groups of both."""
        found = self._known.get((number, other))
        if found is None:
            found = self._known[number, other] = self._joined(number, other)
        return found

    def _joined(self, number: int, other: int) -> int:
        text, more = self.texts[number], self.texts[other]
        if not more or more in text.split(b" "):
            return number
        if not text:
            return other
        self.texts.append(text + b" " + more)
        return len(self.texts) - 1


def rewrite(
    batch: live.LiveBatch,
    picks: memoryview,
    *,
    marks: int,
    rename: Callable[[bytes], bytes] | None = None,
    subjects: Sequence[bytes] | None = None,
    replies: Sequence[bytes] | None = None,
    head: Callable[[bytes], bytes] | None = None,
    queues: Sequence[bytes] | None = None,
) -> live.LiveBatch:
    """Make a batch of some messages of another: of `picks`, int32 pairs (message, which of `queues` names groups for it).

    Names: those of `subjects`, one for each pick, or what `rename` makes of each name, or as they are; replies: those of `replies`,
    or as they are. `head` makes a block of headers of a message's own (b"": it has none, which is asked once). All have `marks`.
    Where nothing changes but the marks the new batch has the old one's buffer, and is valid as long as it.
    Cost: 20 ns for each message, and one copy; a look-up more where the name changes, a call for each name, and for each block.
    """
    walk: _Rewriting = _Rewriting(batch, picks)
    walk.mark(marks)
    changed: cython.bint = walk.name(rename, subjects)
    if queues is not None and walk.name_groups(queues):
        changed = True
    if replies is not None:
        walk.reply(replies)
        changed = True
    if head is not None:
        walk.put_heads(head)
        changed = True
    return live.LiveBatch(walk.copied() if changed else batch.view, walk.table, walk.count)


def note_taken(batch: live.LiveBatch, picks: memoryview, made: live.LiveBatch) -> None:
    """Mark messages as taken of which somebody has taken what `rewrite` has made of them with the same picks."""
    rows: cython.int[::1] = batch.rows
    theirs: cython.int[::1] = made.rows
    chosen: cython.int[::1] = picks
    i: cython.Py_ssize_t
    assert len(picks) == 2 * made.count
    for i in range(made.count):
        if not theirs[i * _COLUMNS + _SPARE] & _UNTAKEN:
            rows[chosen[2 * i] * _COLUMNS + _SPARE] &= ~_UNTAKEN


@cython.final
@cython.cclass
class _Rewriting:
    """One call of `rewrite`. Texts that are new stand before all that is copied; `heads` are copied before each payload."""

    batch: live.LiveBatch
    source: cython.const[cython.uchar][::1]
    rows: cython.int[::1]
    picks: cython.int[::1]
    made: cython.int[::1]
    table: memoryview
    count: cython.Py_ssize_t
    texts: list[bytes]
    texts_size: cython.Py_ssize_t
    # Whether names, replies and groups are new texts.
    named: cython.bint
    replied: cython.bint
    heads: list[bytes]
    # What stands for the names of groups.
    groups: dict[int, int]

    def __init__(self, batch: live.LiveBatch, picks: memoryview) -> None:
        self.batch = batch
        self.source = batch.view
        self.rows = batch.rows
        self.picks = picks
        self.count = len(picks) // 2
        self.table = memoryview(array("i", bytes(4 * live.COLUMNS * self.count)))
        self.made = self.table
        self.texts = []
        self.texts_size = 0
        self.named = self.replied = False
        self.heads = []
        assert len(batch.rows) >= batch.count * _COLUMNS
        i: cython.Py_ssize_t
        for i in range(self.count):
            assert 0 <= self.picks[2 * i] < batch.count

    @cython.cfunc
    @cython.exceptval(-1)
    def mark(self, marks: cython.int) -> cython.int:
        """Begin with the messages as they are, in no account, for no groups."""
        i: cython.Py_ssize_t
        column: cython.Py_ssize_t
        row: cython.Py_ssize_t
        to: cython.Py_ssize_t
        for i in range(self.count):
            row = self.picks[2 * i] * _COLUMNS
            to = i * _COLUMNS
            for column in range(_PAYLOAD_SIZE + 1):
                self.made[to + column] = self.rows[row + column]
            self.made[to + _SPARE] = marks
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def put_text(self, text: bytes) -> cython.Py_ssize_t:
        """Have a new text; says where it stands."""
        at: cython.Py_ssize_t = self.texts_size
        self.texts.append(text)
        self.texts_size += len(text)
        return at

    @cython.cfunc
    @cython.exceptval(-1)
    def name(self, rename: Callable[[bytes], bytes] | None, subjects: Sequence[bytes] | None) -> cython.bint:
        """Give each message its name; says whether some are new."""
        i: cython.Py_ssize_t
        row: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = 0
        last: bytes = b""
        text: bytes
        known: dict[bytes, tuple[int, int]] = {}
        if rename is None and subjects is None:
            return False
        self.named = True
        for i in range(self.count):
            row = self.picks[2 * i] * _COLUMNS
            if subjects is not None:
                text = subjects[i]
                size = len(text)
                at = self.put_text(text)
            elif not equal_bytes(last, self.source, self.rows[row + _SUBJECT_AT], self.rows[row + _SUBJECT_SIZE]):
                last = bytes_at(self.source, self.rows[row + _SUBJECT_AT], self.rows[row + _SUBJECT_SIZE])
                found = known.get(last)
                if found is None:
                    text = rename(last)
                    size = len(text)
                    at = self.put_text(text)
                    known[last] = (at, size)
                else:
                    at, size = found
            self.made[i * _COLUMNS + _SUBJECT_AT] = at
            self.made[i * _COLUMNS + _SUBJECT_SIZE] = size
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def name_groups(self, queues: Sequence[bytes]) -> cython.bint:
        """Name the groups that a message is for; says whether some are."""
        i: cython.Py_ssize_t
        last: cython.int = -1
        at: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = 0
        some: cython.bint = False
        known: dict[int, tuple[int, int]] = {}
        for i in range(self.count):
            if self.picks[2 * i + 1] != last:
                last = self.picks[2 * i + 1]
                found = known.get(last)
                if found is None:
                    text: bytes = queues[last]
                    size = len(text)
                    at = self.put_text(text)
                    known[last] = (at, size)
                    some = some or size > 0
                else:
                    at, size = found
            self.made[i * _COLUMNS + _QUEUES_AT] = at
            self.made[i * _COLUMNS + _QUEUES_SIZE] = size
        return some

    @cython.cfunc
    @cython.exceptval(-1)
    def reply(self, replies: Sequence[bytes]) -> cython.int:
        """Give each message another reply."""
        i: cython.Py_ssize_t
        text: bytes
        self.replied = True
        for i in range(self.count):
            text = replies[i]
            self.made[i * _COLUMNS + _REPLY_AT] = self.put_text(text)
            self.made[i * _COLUMNS + _REPLY_SIZE] = len(text)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def put_heads(self, head: Callable[[bytes], bytes]) -> cython.int:
        """Give each message another block of headers."""
        i: cython.Py_ssize_t
        row: cython.Py_ssize_t
        size: cython.Py_ssize_t
        none: bytes = head(b"")
        block: bytes
        for i in range(self.count):
            row = self.picks[2 * i] * _COLUMNS
            size = self.rows[row + _HEADER_SIZE]
            block = head(bytes_at(self.source, self.rows[row + _PAYLOAD_AT], size)) if size else none
            self.heads.append(block)
            self.made[i * _COLUMNS + _HEADER_SIZE] = len(block)
            self.made[i * _COLUMNS + _PAYLOAD_SIZE] += len(block) - size
        return 0

    @cython.cfunc
    def copied(self) -> memoryview:
        """Write it all into a buffer of its own, and say where it stands."""
        i: cython.Py_ssize_t
        to: cython.Py_ssize_t
        total: cython.longlong = self.texts_size
        for i in range(self.count):
            to = i * _COLUMNS
            total += self.made[to + _PAYLOAD_SIZE]
            if not self.named:
                total += self.made[to + _SUBJECT_SIZE]
            if not self.replied:
                total += self.made[to + _REPLY_SIZE]
        assert total <= _SIZE_BYTES_MAX
        buffer = bytearray(total)
        buffer[: self.texts_size] = b"".join(self.texts)
        self.write(buffer)
        return memoryview(buffer)

    @cython.cfunc
    @cython.exceptval(-1)
    def write(self, target: cython.uchar[::1]) -> cython.int:
        """Copy what is not new behind the texts."""
        i: cython.Py_ssize_t
        row: cython.Py_ssize_t
        to: cython.Py_ssize_t
        skipped: cython.Py_ssize_t
        size: cython.Py_ssize_t
        at: cython.Py_ssize_t = self.texts_size
        block: bytes
        with_heads: cython.bint = len(self.heads) > 0
        for i in range(self.count):
            row = self.picks[2 * i] * _COLUMNS
            to = i * _COLUMNS
            if not self.named:
                copy(target, at, self.source, self.rows[row + _SUBJECT_AT], self.rows[row + _SUBJECT_SIZE])
                self.made[to + _SUBJECT_AT] = at
                at += self.rows[row + _SUBJECT_SIZE]
            if not self.replied:
                copy(target, at, self.source, self.rows[row + _REPLY_AT], self.rows[row + _REPLY_SIZE])
                self.made[to + _REPLY_AT] = at
                at += self.rows[row + _REPLY_SIZE]
            self.made[to + _PAYLOAD_AT] = at
            skipped = 0
            if with_heads:
                block = self.heads[i]
                copy(target, at, block, 0, len(block))
                at += len(block)
                skipped = self.rows[row + _HEADER_SIZE]
            size = self.rows[row + _PAYLOAD_SIZE] - skipped
            copy(target, at, self.source, self.rows[row + _PAYLOAD_AT] + skipped, size)
            at += size
        return 0
