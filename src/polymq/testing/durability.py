"""Which promises survive a power loss, by the acknowledgement table: when a sync must have covered what.

What is acknowledged from the page cache is on the disk a second later, unless the disk said otherwise. A sync that
failed leaves in doubt what was written to *that* file since its last good one, until a later process has had the time
to write it again, because the kernel takes the pages for clean. Nothing else is in doubt: neither other partitions
nor what was synced before. A failed write leaves nothing in doubt, since it is refused and what lies before it is synced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.limits import SYNC_INTERVAL_NS

if TYPE_CHECKING:
    from polymq.core.ports import Clock

__all__ = ["JOURNAL", "Doubt", "Durability", "Loss", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """What a file belongs to: the log of a partition by its number, or what waits to be appended to one (`schedule`)."""

    number: int
    topic: str | None
    schedule: bool = False


JOURNAL: Final = Place(-1, None)


@dataclass(frozen=True, slots=True)
class Doubt:
    """What was promised about a place in [`since_ns`, `until_ns`] may not be on the disk, by a sync that failed in `life`."""

    place: Place
    since_ns: int
    until_ns: int
    life: int

    def covers(self, at_ns: int, since_ns: int | None = None) -> bool:
        """Whether a moment is meant, or one between `since_ns` and it."""
        return (at_ns if since_ns is None else since_ns) <= self.until_ns and self.since_ns <= at_ns


@dataclass(frozen=True, slots=True)
class Loss:
    """What one power loss may have taken: everything promised after `until_ns`, and what is in doubt."""

    until_ns: int
    doubts: tuple[Doubt, ...]

    def journal_keeps(self, at_ns: int) -> bool:
        """Whether what the journal was told by then is on the disk."""
        return at_ns <= self.until_ns and not any(doubt.place == JOURNAL and doubt.covers(at_ns) for doubt in self.doubts)

    def log_keeps(self, topic: str, number: int | None, at_ns: int, *, since_ns: int | None = None, schedule: bool = False) -> bool:
        """Whether what was appended by then to a partition of a topic is; None: to one of them, nobody knows which.

        `since_ns`: it may have been appended at any time from then on.
        """
        return at_ns <= self.until_ns and not any(
            doubt.place.topic == topic
            and doubt.place.schedule == schedule
            and number in (None, doubt.place.number)
            and doubt.covers(at_ns, since_ns)
            for doubt in self.doubts
        )


@dataclass(slots=True)
class Durability:
    """The lives of the process and the syncs that failed. `slack_ns`: how much longer a sync may take on a slow disk."""

    clock: Clock
    slack_ns: int = 0
    life: int = 0
    _lives: list[tuple[int, int]] = field(default_factory=list)  # (start, end) of those whose work may be unsynced
    _started_ns: int = 0
    _synced_ns: int = 0  # everything up to then is on the disk
    _doubts: list[Doubt] = field(default_factory=list)
    _hindered: set[Place] = field(default_factory=set)  # what this process could not write

    def started(self) -> None:
        """A process serves."""
        self._started_ns = self.clock.monotonic_ns()

    def stopped(self, *, clean: bool) -> None:
        """The process is gone. After an orderly stop everything is synced that could be."""
        now_ns = self.clock.monotonic_ns()
        self._lives.append((self._started_ns, now_ns))
        if now_ns - self._started_ns >= self.window_ns:
            # It had the time to write again what an earlier process could not sync, if the disk let it.
            failed = self._hindered | {doubt.place for doubt in self._doubts if doubt.life == self.life}
            self._doubts = [doubt for doubt in self._doubts if doubt.place in failed]
        if clean:
            self._lives.clear()
            self._synced_ns = now_ns
        self._hindered.clear()
        self.life += 1

    def failed(self, place: Place, kind: str) -> None:
        """A write or sync of a place failed."""
        now_ns = self.clock.monotonic_ns()
        if kind == "write":
            self._hindered.add(place)
            if place != JOURNAL and self._lives and now_ns - self._lives[-1][1] < self.window_ns:
                # The unsynced work of the process before may be what could not be written again; then it is not synced either.
                since_ns = self._synced_until_ns(self._lives)
                self._doubts.append(Doubt(place, since_ns, self._lives[-1][1] + self.slack_ns, self.life))
            return
        since_ns = self._synced_until_ns([*self._lives, (self._started_ns, now_ns)])
        self._doubts.append(Doubt(place, since_ns, now_ns + self.slack_ns, self.life))

    def power_lost(self) -> Loss:
        """The power failed, after `stopped`: say what that may have taken."""
        loss = Loss(self._synced_until_ns(self._lives), tuple(self._doubts))
        self._synced_ns = self._lives[-1][1] if self._lives else self._synced_ns
        self._lives.clear()  # what is left is on the disk
        self._doubts.clear()
        return loss

    @property
    def window_ns(self) -> int:
        """How long what was acknowledged may be unsynced."""
        return SYNC_INTERVAL_NS + self.slack_ns

    def _synced_until_ns(self, lives: list[tuple[int, int]]) -> int:
        """Promises up to this moment are synced at the end of the last life. Time without a process does not count."""
        left_ns = self.window_ns
        for start_ns, end_ns in reversed(lives):
            if end_ns - start_ns >= left_ns:
                return end_ns - left_ns
            # A process that ran for less may have found the work of the one before it unsynced.
            left_ns = max(self.window_ns, left_ns - (end_ns - start_ns))
        return lives[0][0] if lives else self._synced_ns
