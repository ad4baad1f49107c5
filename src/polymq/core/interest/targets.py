"""Who takes messages: a `Target` for each connection, an `Entry` for each pattern that it wants something of.

What a batch means to a target is a row of pairs (index of the message, tag of the entry) in one array of integers; the
target's encoder walks it. Hot module: see docs/adr/0001. Read next: `spread.py`, which writes the pairs.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, cast

import cython

from polymq.limits import INTEREST_PAIRS_KEPT_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.interest.interest import Interest

__all__ = ["KEEPS_LOCAL", "KEEPS_ROUTED", "Entry", "Target"]

# What a keeper keeps: what was published here, what another server sent on.
KEEPS_LOCAL: Final = 1
KEEPS_ROUTED: Final = 2

_PAIRS_FIRST: Final = 16
_NO_ENTRIES: Final[dict[Entry, None]] = {}
# A target that gets more than INTEREST_PAIRS_KEPT_MAX messages of a batch borrows one of these rooms, since growing to it by doubling
# would cost as much as filling it.
_LARGE = cython.declare(cython.Py_ssize_t, 16 * 1024)
_LARGE_KEPT: Final = 16
_large_rooms: Final[list[array[int]]] = []


@cython.cclass
class Target:
    """Where messages go: one connection, with all its entries, in whatever namespaces.

    `owner` is whose it is. After a `spread`, `pairs` (an int32 memoryview, format "i") has `pair_count` pairs, in order
    of messages; the owner encodes them while the batch is valid, and calls `clear()` before the next spread. `spent` has the
    entries whose limit is used up: the owner removes them and empties the list.

    A `remote` target is another server of ours or of somebody else's: it has one pair at most per message, with the tag of
    the first entry found, and `queues` says for which groups a message was given to it (index of the message -> names).
    A keeper (`keeps` says what) listens to nobody's end but the log's: it has one pair at most per message, with the tag of an
    entry that matched, one that is not negative if there is any; nobody counts it as a taker.
    Other servers are told of what it wants (`counted`), unless it is remote, keeps nothing that they send on, or is not `told` of.
    An `unsure` target, which is remote, hands on what it gets and may find nobody: a message that nobody else gets stays marked as untaken,
    until the owner has found somebody (`live_mapping.note_taken`).
    `makes` says whether a keeper is to make something for a name that none but negative tags know; such messages come a few at a time.
    A `paced` target is no connection: it acts on what it takes, which takes time. So those messages come a few at a time, too.
    With `hears` (see `restrict`) a target gets only messages whose names pass it, whatever its entries match.
    `named` has the plain entries by pattern, once `Interest.entry_of` has asked for them.
    A closed target is given nothing more, although its entries are still there: `Live.dismiss` has them taken away.
    """

    def __init__(
        self,
        owner: object = None,
        *,
        remote: bool = False,
        keeps: int = 0,
        told: bool = True,
        unsure: bool = False,
        paced: bool = False,
        makes: Callable[[bytes], bool] | None = None,
    ) -> None:
        assert not (remote and keeps)
        assert not (paced and (remote or keeps))
        assert keeps or makes is None
        assert remote or not unsure
        self.owner = owner
        self.remote = remote
        self.unsure = unsure
        self.keeps = keeps
        self.counted = told and not remote and (keeps == 0 or keeps & KEEPS_ROUTED != 0)
        self.closed = False
        self.hears: Callable[[bytes, bytes], bool] | None = None
        self.makes = makes
        self.paced = paced
        self.special = remote or keeps != 0 or paced
        self.pair_count = 0
        self.capacity = 0
        self.pairs = memoryview(array("i"))
        self.numbers: Any = None
        self.queues: dict[int, list[bytes]] = {}
        self.spent: list[Entry] = []
        self.entries: list[Entry] = []
        self.named: dict[bytes, dict[Entry, None]] | None = None

    def clear(self) -> None:
        """Forget the pairs: they are delivered. Room for more than INTEREST_PAIRS_KEPT_MAX is given back."""
        self.pair_count = 0
        if self.queues:
            self.queues.clear()
        if self.capacity > INTEREST_PAIRS_KEPT_MAX:
            if self.capacity == _LARGE and len(_large_rooms) < _LARGE_KEPT:
                _large_rooms.append(cast("array[int]", self.pairs.obj))
            self.capacity = 0
            self.numbers = None
            self.pairs = memoryview(array("i"))

    def close(self) -> None:
        """Take nothing from now on."""
        self.closed = True
        self.special = True

    def restrict(self, hears: Callable[[bytes, bytes], bool] | None) -> None:
        """Take only messages whose names pass, with the group that an entry is of; None: all. Not for keepers."""
        assert not self.keeps
        self.hears = hears
        self.special = self.closed or self.remote or self.paced or hears is not None

    def add_pair(self, index: cython.Py_ssize_t, tag: cython.int) -> None:
        """Note that the target gets a message."""
        if self.pair_count == self.capacity:
            self.grow()
        self.numbers[2 * self.pair_count] = index
        self.numbers[2 * self.pair_count + 1] = tag
        self.pair_count += 1

    def grow(self) -> None:
        """Make room for more pairs."""
        used: cython.Py_ssize_t = 2 * self.pair_count
        capacity: cython.Py_ssize_t = max(_PAIRS_FIRST, 2 * self.capacity)
        if INTEREST_PAIRS_KEPT_MAX < capacity <= _LARGE:
            capacity = _LARGE
            numbers = _large_rooms.pop() if _large_rooms else array("i", bytes(8 * capacity))
        else:
            numbers = array("i", bytes(8 * capacity))
        pairs = memoryview(numbers)
        pairs[:used] = self.pairs[:used]
        self.numbers = numbers
        self.pairs = pairs
        self.capacity = capacity

    def enlist(self, entry: Entry) -> None:
        """Keep an entry of this target's."""
        entry.index = len(self.entries)
        self.entries.append(entry)
        if self.named is not None and not entry.queue:
            self.named.setdefault(entry.pattern, {})[entry] = None

    def strike(self, entry: Entry) -> None:
        """Forget an entry: the last one takes its place."""
        last: Entry = self.entries.pop()
        if last is not entry:
            last.index = entry.index
            self.entries[entry.index] = last
        if self.named is not None and not entry.queue:
            same = self.named[entry.pattern]
            del same[entry]
            if not same:
                del self.named[entry.pattern]

    def entries_of(self, pattern: bytes) -> dict[Entry, None]:
        """Give the entries of exactly this pattern, of no queue group. The first call makes a directory: 150 bytes for each entry."""
        entry: Entry
        if self.named is None:
            self.named = {}
            for entry in self.entries:
                if not entry.queue:
                    self.named.setdefault(entry.pattern, {})[entry] = None
        return self.named.get(pattern, _NO_ENTRIES)


@cython.no_gc  # type: ignore[attr-defined]  # Cython's stub lacks it.
@cython.cclass
class Entry:
    """One pattern that a target wants messages of, alone or as a member of a queue group. Made by `Interest.insert`.

    `given` counts what it got; with a `limit` above 0 it gets so many in all. `place` is where it stands among those of
    its pattern (-1: nowhere any more), `index` where in its target's list. 80 bytes, which the garbage collector does not
    see (a million would take it a tenth of a second): what is removed is in no cycle, but who throws a target or an
    interest away has to drop the entries before.
    """

    def __init__(self, interest: Interest, target: Target, pattern: bytes, tag: int, weight: int, limit: int) -> None:
        self.interest: Interest | None = interest
        self.target = target
        self.pattern = pattern
        self.queue = b""
        self.tag = tag
        self.weight = weight
        self.limit = limit
        self.given = 0
        self.place = -1
        self.index = -1

    def __repr__(self) -> str:
        return f"Entry(pattern={self.pattern!r}, queue={self.queue!r}, tag={self.tag})"
