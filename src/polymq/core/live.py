"""Messages that are handed on as they come and kept nowhere: a space for each namespace, and who watches it.

Who listens is in `interest/`; here is what the rest of the broker needs of it: a door for `Session`, word to those who pass
interest on to other servers, and a way out (`Courier`) while the batch is still valid. Nothing waits: a listener that
cannot keep up is its gateway's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from polymq.core.interest.interest import Interest
from polymq.core.interest.spread import count_untaken, spread_some
from polymq.limits import LIVE_LEAVING_PER_TURN, LIVE_STEPS_HANDED_ON_FIRST, LIVE_STEPS_PER_PASS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.interest.targets import Entry, Target
    from polymq.core.ports import Random, Ticket
    from polymq.core.session import Session
    from polymq.wire.live import LiveBatch

__all__ = ["Archive", "Backlog", "Courier", "InterestWatcher", "Live", "LiveFeeder", "LiveSpace", "Stored", "Taker"]

_DEFAULT: Final = ""


class Courier(Protocol):
    """Who brings messages to those whom they are for."""

    def deliver(self, batch: LiveBatch, targets: list[Target], *, more: bool) -> None:
        """Have each target's pairs encoded, and clear them. Valid during the call: batch and pairs.

        `more`: the batch goes on, or this is a lot of it, so what has been encoded had better be written before there is too much.
        """

    def waiting_size_bytes(self, owner: object) -> int:
        """Say how many bytes wait to be sent to the owner of a target."""


class Taker(ABC):
    """The owner of a target that is no connection: it takes messages for something within the broker."""

    @abstractmethod
    def take(self, batch: LiveBatch, target: Target) -> Callable[[], None] | None:
        """Take the target's pairs of a batch: valid during the call. Nothing may be published to a space in it.

        What is returned is called when everybody has been served; it may publish, and the batch is valid until it has been called.
        """

    def is_wanted(self, name: bytes) -> bool:
        """Say whether somebody would take a message of this name that an unsure target hands on."""
        return True


class LiveFeeder(Protocol):
    """Who brings to live listeners what is in the log; called by the broker in each turn."""

    @property
    def is_busy(self) -> bool:
        """Whether `show` has something to do at once."""

    def note(self) -> None:
        """Look at `kernel.fresh`, which is about to be committed."""

    def show(self) -> None:
        """Publish, for a bounded time, what readers see."""


class InterestWatcher(Protocol):
    """Who tells other servers what is wanted here."""

    def interest_changed(self, space: LiveSpace, pattern: bytes, queue: bytes) -> None:
        """Listeners here of exactly this pattern and queue group have become more or fewer; `local_count` says how many there are.

        Called before anything that is published afterwards is delivered.
        """


@dataclass(slots=True)
class Stored:
    """What has become of messages that were to be kept: promises, and (name, why) of those that are not.

    Limits:  a name comes once for each pass over a batch, so there are no more refusals than messages.
    """

    tickets: list[Ticket] = field(default_factory=list)
    refusals: list[tuple[bytes, str]] = field(default_factory=list)

    def refuse(self, name: bytes, reason: str) -> None:
        """Note that messages of a name are not kept."""
        self.refusals.append((name, reason))

    def add(self, other: Stored) -> None:
        """Add what has become of more."""
        self.tickets += other.tickets
        self.refusals += other.refusals


@dataclass(frozen=True, slots=True)
class Backlog:
    """Who gets messages of a name: how many entries, and one whose owner does not keep up."""

    count: int
    slow: Entry | None = None


class Archive(Protocol):
    """Who keeps what passes through a space (`live_store.py`): `target` is a keeper."""

    @property
    def target(self) -> Target: ...
    def store(self, batch: LiveBatch) -> Stored:
        """Keep the target's pairs, and clear them."""


class LiveSpace:
    """One namespace. `interest` is who listens in it; change it only through `listen` and `leave`."""

    __slots__ = ("_live", "_within", "archive", "hands_on", "inner", "interest", "message_count", "namespace")

    def __init__(self, live: Live, namespace: str) -> None:
        self.namespace = namespace
        self.interest = Interest()
        self.archive: Archive | None = None
        # The targets of what listens within the broker.
        self.inner: list[Target] = []
        # Whether something within the broker publishes what comes here somewhere else.
        self.hands_on = False
        self.message_count = 0
        self._live = live
        # Entries of what listens within the broker that other servers are told of: how many of each pattern and queue group.
        self._within: dict[tuple[bytes, bytes], int] = {}

    @property
    def listening_count(self) -> int:
        """How many entries there are of whoever is connected."""
        return self.interest.count - sum(len(target.entries) for target in self.inner)

    def listen(self, pattern: bytes, target: Target, *, tag: int, queue: bytes = b"", weight: int = 1, limit: int = 0) -> Entry:
        """Let a target have what matches a pattern; see `Interest.insert`. Raises Refusal."""
        entry = self.interest.insert(pattern, target, tag=tag, queue=queue, weight=weight, limit=limit)
        if target.counted:
            if _is_within(target):
                self._within[pattern, queue] = self._within.get((pattern, queue), 0) + 1
            for watcher in self._live.watchers:
                watcher.interest_changed(self, pattern, queue)
        return entry

    def leave(self, entry: Entry) -> None:
        """Take an entry out, if it is not out already."""
        if entry.interest is None:
            return
        pattern, queue, target = entry.pattern, entry.queue, entry.target
        self.interest.remove(entry)
        if target.counted:
            if _is_within(target):
                self._within[pattern, queue] -= 1
                if not self._within[pattern, queue]:
                    del self._within[pattern, queue]
            for watcher in self._live.watchers:
                watcher.interest_changed(self, pattern, queue)

    def guest_count(self, pattern: bytes, queue: bytes) -> int:
        """Count the entries of exactly this pattern and queue group that are of whoever is connected here. Cost: O(tokens)."""
        return self.interest.local_count(pattern, queue) - self._within.get((pattern, queue), 0)

    def is_wanted(self, name: bytes) -> bool:
        """Say whether somebody takes messages of a name, here or wherever they are handed on to."""
        match = self.interest.match(name)
        certainty = match.certainty()
        return certainty > 1 or (certainty == 1 and any(_hands_on(entry.target, name) for entry in match.plain()))

    def publish(self, batch: LiveBatch, sender: Target | None = None) -> int:
        """Hand a batch on to everybody who wants some of it, but not to `sender`; returns how many messages nobody took.

        Those are marked (`live.UNTAKEN`). What is to be stored is so before anybody has it, and marked (`live.KEPT`): `Live.stored`
        says more. `sender` must be given for what another server has sent: see `interest/spread.py`.
        The batch's messages must all be of this namespace. Cost: `spread`, and what the targets' gateways take to encode.
        """
        return self.publish_some(batch, sender, None)[1]

    def publish_some(self, batch: LiveBatch, sender: Target | None, late: Callable[[], bool] | None) -> tuple[int, int]:
        """Do as `publish`, in passes, but no further once `late` says so: it is asked between two of them.

        Returns how many messages have been handed on, at least one, and how many of those nobody took. With the others nothing has
        been done. What is handed on to other spaces may take any time there, which is not known before: then the passes begin small.
        """
        live, archive = self._live, self.archive
        touched: list[Target] = []
        first, untaken = 0, 0
        steps_max = LIVE_STEPS_HANDED_ON_FIRST if self.hands_on and late is not None else LIVE_STEPS_PER_PASS_MAX
        while first < batch.count and not (first and late is not None and late()):
            begun = first
            first, missed, steps = spread_some(batch, self.interest, sender, touched, live.random, first=first, steps_max=steps_max)
            if touched:
                if archive is not None and archive.target.pair_count:
                    self._store(archive, batch, touched)
                # In one message for very many there is more than should wait in memory.
                more = (first < batch.count and steps_max == LIVE_STEPS_PER_PASS_MAX) or steps >= 4 * LIVE_STEPS_PER_PASS_MAX
                live.courier.deliver(batch, touched, more=more)
                touched.clear()
                if missed and self.hands_on:
                    missed = count_untaken(batch, begun, first)
            untaken += missed
            steps_max = min(2 * steps_max, LIVE_STEPS_PER_PASS_MAX)
        self.message_count += first
        return first, untaken

    def _store(self, archive: Archive, batch: LiveBatch, touched: list[Target]) -> None:
        """Have stored what is to be; after a bug of ours there nobody may be left with pairs of this batch."""
        try:
            self._live.note_stored(archive.store(batch))
        except BaseException:
            for target in touched:
                target.clear()
            raise


def _is_within(target: Target) -> bool:
    """Say whether a target is of something within the broker, and not of a connection."""
    return target.keeps != 0 or isinstance(target.owner, Taker)


def _hands_on(target: Target, name: bytes) -> bool:
    """Say whether an unsure target finds somebody for messages of a name."""
    if not target.unsure or target.closed or not (target.hears is None or target.hears(name, b"")):
        return False
    return not isinstance(target.owner, Taker) or target.owner.is_wanted(name)


class _Nobody:
    """Stands in for the courier until there is one."""

    def waiting_size_bytes(self, owner: object) -> int:
        """Have nothing to send."""
        return 0

    def deliver(self, batch: LiveBatch, targets: list[Target], *, more: bool) -> None:
        """Fail: nobody can have subscribed yet."""
        raise AssertionError(f"{batch!r} for {targets!r}, and nobody to bring it ({more})")


class Live:
    """All spaces. `courier` is set by whoever owns the connections."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.courier: Courier = _Nobody()
        self.watchers: list[InterestWatcher] = []
        # Told of every space when it is made.
        self.furnishers: list[Callable[[LiveSpace], None]] = []
        # What has become of what was to be stored, in all spaces, since somebody has set this to None.
        self.stored: Stored | None = None
        # Whose messages are being handed on; None if another server has sent them.
        self.publisher: Session | None = None
        self.spaces: dict[str, LiveSpace] = {}
        self._space_of: dict[Interest, LiveSpace] = {}
        self._leaving: deque[Target] = deque()

    def space(self, namespace: str = _DEFAULT) -> LiveSpace:
        """Give the space of a namespace, made if it is not there. Namespaces are those of the configuration: they stay."""
        found = self.spaces.get(namespace)
        if found is None:
            found = self.spaces[namespace] = LiveSpace(self, namespace)
            self._space_of[found.interest] = found
            for furnish in self.furnishers:
                furnish(found)
        return found

    def note_stored(self, stored: Stored) -> None:
        """Add to `stored`."""
        if self.stored is None:
            self.stored = stored
        else:
            self.stored.add(stored)

    def backlog(self, space: LiveSpace, name: bytes, size_bytes_max: int) -> Backlog | None:
        """Say who gets messages of a name, and for whom more than so much waits; None if nobody does. Cost: O(entries)."""
        match = space.interest.match(name)
        if not match.has_takers():
            return None
        entries = match.plain()
        for members in match.queues().values():
            entries += members
        for entry in {entry.target: entry for entry in entries}.values():
            if self.is_slow(entry, size_bytes_max):
                return Backlog(len(entries), entry)
        return Backlog(len(entries))

    def is_slow(self, entry: Entry, size_bytes_max: int) -> bool:
        """Say whether an entry is still there, and more than so much waits for whose it is."""
        return entry.interest is not None and self.courier.waiting_size_bytes(entry.target.owner) > size_bytes_max

    def leave(self, entry: Entry) -> None:
        """Take an entry out of whichever space it is in, if it is not out already."""
        if entry.interest is not None:
            self._space_of[entry.interest].leave(entry)

    def dismiss(self, target: Target) -> None:
        """Give a target nothing any more; its entries go a few in each turn, however many there are."""
        target.close()
        if target.entries:
            self._leaving.append(target)

    @property
    def is_busy(self) -> bool:
        """Whether entries of targets that were dismissed are still to be taken out."""
        return bool(self._leaving)

    def tick(self) -> None:
        """Take out some entries of those that were dismissed."""
        left = LIVE_LEAVING_PER_TURN
        while self._leaving and left:
            target = self._leaving[0]
            while target.entries and left:
                self.leave(target.entries[-1])
                left -= 1
            if not target.entries:
                self._leaving.popleft()
