"""Where cursor groups go on, and what they were shown: a commit that was confirmed is never taken back, a log never changes.

A group reads each queue from the position that the broker tells it. So if positions neither go back behind what was
confirmed nor beyond what was asked for, and what is read has no gaps, every group gets everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from polymq.limits import OFFSET_BITS
from polymq.testing.log_book import LogBook
from polymq.testing.promises import PromiseBrokenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.testing.durability import Loss
    from polymq.testing.ledger import Ledger
    from polymq.testing.promises import Publication

__all__ = ["Commit", "Positions", "Spot"]

_NEVER_NS: Final = 1 << 62


class Spot(NamedTuple):
    """One queue of a topic, as one group reads it."""

    group: str
    topic: str
    queue: int


@dataclass(slots=True, eq=False)
class Commit:
    """A position that a group asked to be kept, in which life; `done_ns`: when that was confirmed; `over`: nobody will hear any more."""

    spot: Spot
    offset: int
    life: int
    sent_ns: int
    done_ns: int | None = None
    over: bool = False


@dataclass(slots=True)
class _Position:
    sent: list[int] = field(default_factory=lambda: [0])  # what the broker may have, besides what is confirmed
    done: list[Commit] = field(default_factory=list)
    open: list[Commit] = field(default_factory=list)


class Positions:
    """What groups of cursors commit, are told, and are shown. `commits`: how many were confirmed."""

    def __init__(self, ledger: Ledger) -> None:
        self.commits = 0
        self._ledger = ledger
        # Not the one of those who read over HTTP: epochs of its own, which rise with each loss of power.
        self._shown = LogBook(ledger.book, ledger.management)
        self._epoch = 0
        self._positions: dict[Spot, _Position] = {}
        self._seen: dict[tuple[str, str], set[int]] = {}

    # -- positions ---------------------------------------------------------------------------------------------------

    def commits_at(self, spot: Spot, offset: int) -> Commit:
        """A group asks for its position to be kept."""
        commit = Commit(spot, offset, self._ledger.life, self._ledger.clock.monotonic_ns())
        position = self._positions.setdefault(spot, _Position())
        position.open.append(commit)
        return commit

    def confirmed(self, commit: Commit) -> None:
        """That was answered with success."""
        self.commits += 1
        self._ledger.check_journal(commit.sent_ns, f"position {commit.offset} of {commit.spot}")
        commit.done_ns = self._ledger.clock.monotonic_ns()
        position = self._positions[commit.spot]
        position.open.remove(commit)
        position.done = [each for each in position.done if each.offset > commit.offset or self._may_be_lost(each)]
        position.done.append(commit)

    def _may_be_lost(self, commit: Commit) -> bool:
        """Keep what was confirmed before, as long as a loss of power may take what was confirmed after it."""
        assert commit.done_ns is not None
        return self._ledger.clock.monotonic_ns() - commit.done_ns < 10 * self._ledger.durability.window_ns

    def abandoned(self, commit: Commit) -> None:
        """Its connection has ended: it may have been kept, or be kept yet, as long as the process lives."""
        commit.over = True

    def told(self, spot: Spot, offset: int | None, *, asked_ns: int) -> None:
        """A group was told where it goes on; None: nowhere. Raises PromiseBrokenError."""
        position = self._positions.get(spot)
        if position is None:
            if offset:
                raise PromiseBrokenError(f"{spot} is told to go on at {offset}, and never committed anything")
            return
        life = self._ledger.life
        least = max((each.offset for each in position.done if (each.done_ns or 0) < asked_ns), default=0)
        # What was under way on a connection that has ended may have been carried out after what came later.
        least = min([least, *(each.offset for each in position.open if each.over and each.life == life)])
        most = max([*position.sent, *(each.offset for each in position.done), *(each.offset for each in position.open)])
        if (offset or 0) < least:
            raise PromiseBrokenError(f"{spot} is told to go on at {offset}, but had committed {least}")
        if (offset or 0) > most:
            raise PromiseBrokenError(f"{spot} is told to go on at {offset}, but has asked for {most} at most")

    def stopped(self) -> None:
        """The process is gone: what was not confirmed was kept, or never will be."""
        for position in self._positions.values():
            late = min((each.offset for each in position.open if each.over), default=None)
            if late is not None:
                position.done = [each for each in position.done if each.offset <= late]
            # One of them may have been the last; the smaller ones as well, if the journal ends there.
            position.sent = sorted({0, *position.sent[-1:], *(each.offset for each in position.open)})
            position.open.clear()

    def power_lost(self, loss: Loss) -> None:
        """What was confirmed and not synced may be gone; then an earlier one holds. Nor is any beyond the end of a log that lost some."""
        self._epoch += 1
        for spot, position in self._positions.items():
            kept = [each for each in position.done if _is_kept(loss, spot.topic, each.done_ns or _NEVER_NS)]
            position.sent = sorted({*position.sent, *(each.offset for each in position.done)})
            position.done = kept

    def moved(self, spot: Spot, asked: int, offered: int) -> None:
        """A group asked for what a queue does not have: only a loss of power may take what was there."""
        if not self._epoch:
            raise PromiseBrokenError(f"{spot} asks for offset {asked}, and is told that the log is at {offered}")

    # -- what is shown -----------------------------------------------------------------------------------------------

    def shown(self, group: str, topic: str, asked: int, records: Sequence[tuple[int, int, bytes]]) -> list[Publication]:
        """A group that asked for a queue from offset `asked` on got (partition number, offset, body) of each; gives the messages."""
        seen = self._seen.setdefault((group, topic), set())
        self.check_run(topic, asked, [(number, offset) for number, offset, _ in records])
        found = []
        for number, offset, body in records:
            publication = self.read(topic, number, offset, body)
            seen.add(publication.serial)
            found.append(publication)
        return found

    def read(self, topic: str, number: int, offset: int, body: bytes) -> Publication:
        """Somebody was shown one record; gives the message. Raises PromiseBrokenError."""
        now_ns = self._ledger.clock.monotonic_ns()
        publication = self._shown.read_record(topic, number, offset, self._epoch, body, now_ns)
        self._ledger.saw(publication, number << OFFSET_BITS | offset, made_ns=now_ns)
        return publication

    def check_run(self, topic: str, asked: int, places: Sequence[tuple[int, int]]) -> None:
        """Records of one answer follow one another, and begin where that was asked for."""
        at = asked
        for number, offset in places:
            if number != places[0][0]:
                raise PromiseBrokenError(f"{topic}: records of the partitions {places[0][0]} and {number} in one answer")
            if offset != at:
                raise PromiseBrokenError(f"{topic}, partition {number}: offset {offset} is shown where {at} should be")
            at = offset + 1

    def owed(self, group: str, topic: str) -> list[Publication]:
        """List what a group that reads a topic from its beginning must still be shown."""
        seen = self._seen.get((group, topic), set())
        return [each for each in self._ledger.open_publications if _is_owed(each, topic, seen)]


def _is_kept(loss: Loss, topic: str, at_ns: int) -> bool:
    return loss.journal_keeps(at_ns) and loss.log_keeps(topic, None, at_ns)


def _is_owed(publication: Publication, topic: str, seen: set[int]) -> bool:
    return publication.topic == topic and publication.promised_ns is not None and publication.serial not in seen
