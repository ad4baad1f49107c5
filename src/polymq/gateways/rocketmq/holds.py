"""Pulls that cannot be answered yet: they wait for messages, for the disk, for a heartbeat, or for room in the output.

The broker asks in each turn: `note` before the commit, `show` when readers see what was committed. A pull that can go on is put into its
connection's `ready`, and the connection is rung for; nobody polls. Every pull that is not answered is in `client.pulls`, and in one place here at most,
which its `place` names.

    HELD   no message yet: by partition; woken when something was appended, at its time at the latest
    COLD   the disk is being read for it: COLD_PULLS_MAX at a time, the others are in LINE
    RACE   it knows of a newer subscription than we do: by group; woken by a heartbeat, or soon
    READY  it is to be answered, as soon as there is room
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import TYPE_CHECKING

from polymq.rocketmq_limits import COLD_PULLS_MAX, COLD_READERS_MAX

if TYPE_CHECKING:
    from polymq.core.group import GroupKind
    from polymq.core.ports import Reader
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.gateways.rocketmq.house import House
    from polymq.gateways.rocketmq.pulls import Pull

__all__ = ["Holds", "Waiting"]


class Waiting(enum.Enum):
    """Where a pull is; see the module."""

    NOWHERE = "nowhere"
    HELD = "held"
    COLD = "cold"
    LINE = "line"
    RACE = "race"
    READY = "ready"


class Holds:
    """All pulls that wait, of all connections; a feeder, and a listener of the catalogue."""

    def __init__(self, house: House) -> None:
        self.count = 0  # of pulls that are not answered, all connections together
        self._kernel = house.broker.kernel
        self._held: dict[int, dict[Pull, None]] = {}
        self._numbers: dict[tuple[str, str], dict[int, None]] = {}
        self._behind: dict[int, None] = {}
        self._cold: dict[Pull, None] = {}
        self._line: dict[Pull, None] = {}
        self._races: dict[str, dict[Pull, None]] = {}
        # Readers that keep a copy of a piece of the log, the least recently used first.
        self._warm: OrderedDict[Reader, None] = OrderedDict()

    # -- waiting ---------------------------------------------------------------------------------------------------

    def begin(self, pull: Pull) -> None:
        """Count a pull that has come."""
        pull.client.pulls[pull] = None
        self.count += 1

    def end(self, pull: Pull) -> None:
        """A pull has been answered."""
        self.leave(pull)
        if pull.client.pulls.pop(pull, pull) is None:
            self.count -= 1

    def hold(self, pull: Pull) -> None:
        """Let a pull wait for messages."""
        pull.place = Waiting.HELD
        self._held.setdefault(pull.number, {})[pull] = None
        self._numbers.setdefault(pull.topic_key, {})[pull.number] = None

    def wait_for_heartbeat(self, pull: Pull) -> None:
        """Let a pull wait for its group's next heartbeat."""
        pull.place = Waiting.RACE
        self._races.setdefault(pull.group, {})[pull] = None

    def wait_for_disk(self, pull: Pull) -> None:
        """Let a pull wait for what its reader has asked for."""
        pull.place = Waiting.COLD
        self._cold[pull] = None

    def wait_in_line(self, pull: Pull) -> None:
        """Let a pull wait until fewer wait for the disk."""
        pull.place = Waiting.LINE
        self._line[pull] = None

    @property
    def is_disk_busy(self) -> bool:
        """Whether as many pulls wait for the disk as may."""
        return len(self._cold) >= COLD_PULLS_MAX

    def make_ready(self, pull: Pull) -> None:
        """Have a pull looked at again, in this turn if its connection can take an answer."""
        self.leave(pull)
        pull.place = Waiting.READY
        client = pull.client
        if not client.ready:
            client.ring()
        client.ready.append(pull)

    def leave(self, pull: Pull) -> None:
        """Take a pull out of where it waits."""
        place, pull.place = pull.place, Waiting.NOWHERE
        if place is Waiting.HELD:
            pulls = self._held[pull.number]
            del pulls[pull]
            if not pulls:
                del self._held[pull.number]
                numbers = self._numbers[pull.topic_key]
                del numbers[pull.number]
                if not numbers:
                    del self._numbers[pull.topic_key]
        elif place is Waiting.COLD:
            del self._cold[pull]
        elif place is Waiting.LINE:
            del self._line[pull]
        elif place is Waiting.RACE:
            pulls = self._races[pull.group]
            del pulls[pull]
            if not pulls:
                del self._races[pull.group]

    def drop(self, client: RocketmqClient) -> None:
        """Forget the pulls of a connection that has ended."""
        for pull in list(client.pulls):
            self.end(pull)
        client.ready.clear()

    # -- what wakes them -------------------------------------------------------------------------------------------

    def heard(self, group: str) -> None:
        """A heartbeat has told something new about a group's subscriptions."""
        for pull in list(self._races.get(group, ())):
            self.make_ready(pull)

    @property
    def is_busy(self) -> bool:
        """Whether some could be made ready at once: all are, in each turn."""
        return False

    def note(self) -> None:
        """Remember where something is being appended that somebody waits for."""
        held = self._held
        if held:
            for topic in self._kernel.fresh:
                for partition in topic.partitions:
                    if partition.number in held:
                        self._behind[partition.number] = None

    def show(self) -> None:
        """Wake those that have what they waited for."""
        if self._behind:
            behind, self._behind = self._behind, {}
            for number in behind:
                for pull in list(self._held.get(number, ())):
                    if pull.log.readable > pull.next:
                        self.make_ready(pull)
                    elif pull.log.readable < pull.log.end:
                        # Asked before the commit, as in a turn that the schedule began: the answer is behind it.
                        self._behind[number] = None
        if self._cold:
            for pull in [pull for pull in self._cold if pull.reader is None or not pull.reader.is_stalled]:
                self.make_ready(pull)
        if self._line:
            for pull in list(self._line)[: COLD_PULLS_MAX - len(self._cold)]:
                self.make_ready(pull)

    def topic_created(self, namespace: str, topic: str) -> None:
        """Nobody waits for it."""

    def topic_deleted(self, namespace: str, topic: str) -> None:
        """Wake those that wait for its messages: there will be none."""
        for number in list(self._numbers.get((namespace, topic), ())):
            for pull in list(self._held[number]):
                self.make_ready(pull)

    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Nothing changes."""

    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Nothing changes: whoever pulls commits again."""

    # -- readers ---------------------------------------------------------------------------------------------------

    def used(self, reader: Reader) -> None:
        """Note that a reader has been used: of those that keep a copy of a piece of the log, there may be so many."""
        warm = self._warm
        if not reader.keeps_copy:
            if warm:
                warm.pop(reader, None)
            return
        warm[reader] = None
        warm.move_to_end(reader)
        if len(warm) > COLD_READERS_MAX:
            for other in warm:
                if not other.is_stalled:
                    self.let_go(other)
                    break

    def let_go(self, reader: Reader) -> None:
        """Have a reader keep nothing; it reads it again if it has to."""
        self._warm.pop(reader, None)
        if reader.keeps_copy:
            reader.seek(reader.offset)
