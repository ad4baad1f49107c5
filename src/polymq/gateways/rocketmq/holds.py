"""Pulls that cannot be answered yet: they wait for messages, for the disk, for a heartbeat, or for room in the output.

The broker asks in each turn: `note` before the commit, `show` when readers see what was committed. A pull that can go on is put into its
connection's `ready`, and the connection is rung for; nobody polls. Every pull that is not answered is in `client.pulls`, and in one place here at most,
which its `place` names. A turn wakes so many, a connection's one after another's: who holds thousands keeps nobody else waiting.

    HELD   no message yet: by partition and connection, in order of `next`; woken when something was appended, at its time at the latest
    COLD   the disk is being read for it: COLD_PULLS_MAX at a time
    LINE   it waits until fewer are COLD, or for a turn that has time to look through messages
    RACE   it knows of a newer subscription than we do: by group; woken by a heartbeat, or soon
    READY  it is to be answered, as soon as there is room
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from polymq.rocketmq_limits import (
    COLD_COPIES_SIZE_BYTES_MAX,
    COLD_PULLS_MAX,
    PULL_LOOKS_NS_PER_TURN_MAX,
    PULLS_MAX,
    PULLS_PER_CONNECTION_MAX,
    PULLS_WOKEN_PER_TURN_MAX,
)

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
        self.spent_ns = 0  # on pulls that looked through messages, or read what is not in memory, in this turn
        self.needed: set[Reader] = set()  # what was asked for is still to be looked at
        self._house = house
        self._kernel = house.broker.kernel
        self._owners = house.broker.catalogue.owners
        self._held: dict[int, dict[RocketmqClient, dict[Pull, None]]] = {}
        self._numbers: dict[tuple[str, str], dict[int, None]] = {}
        self._behind: dict[int, None] = {}
        # Who is to be woken, one pull at a time: as long as it has one that is behind, it comes again after the others.
        self._round: OrderedDict[tuple[int, RocketmqClient], None] = OrderedDict()
        self._cold: dict[Pull, None] = {}
        self._line: OrderedDict[RocketmqClient, dict[Pull, None]] = OrderedDict()
        self._races: dict[str, dict[Pull, None]] = {}
        self._heard: deque[Pull] = deque()
        # Who had most pulls when they were last compared, and how many.
        self._most: RocketmqClient | None = None
        self._most_count = 0
        # Readers that keep a copy of a piece of the log, and its size: the least recently used first.
        self._warm: OrderedDict[Reader, int] = OrderedDict()
        self._warm_size_bytes = 0

    # -- waiting ---------------------------------------------------------------------------------------------------

    def has_room(self, client: RocketmqClient) -> bool:
        """Whether one more pull of a connection may wait."""
        return self.count < PULLS_MAX and len(client.pulls) < PULLS_PER_CONNECTION_MAX

    def in_the_way(self, client: RocketmqClient) -> Pull | None:
        """Give the pull that is to go so that one of a connection can wait: the oldest of who has most; None if that is itself.

        Cost: all connections are looked at when whoever had most has lost half of them.
        """
        most = self._most
        if most is None or most.gone or 2 * len(most.pulls) <= self._most_count:
            most = self._most = max(self._house.clients, key=lambda one: len(one.pulls))
            self._most_count = len(most.pulls)
        return next(iter(most.pulls)) if len(most.pulls) > len(client.pulls) + 1 else None

    def begin(self, pull: Pull) -> None:
        """Count a pull that has come."""
        pull.client.pulls[pull] = None
        self.count += 1

    def end(self, pull: Pull) -> None:
        """A pull has been answered."""
        self.leave(pull)
        if pull.reader is not None:
            self.needed.discard(pull.reader)
        if pull.client.pulls.pop(pull, pull) is None:
            self.count -= 1

    def hold(self, pull: Pull) -> None:
        """Let a pull wait for messages."""
        pull.place = Waiting.HELD
        self._held.setdefault(pull.number, {}).setdefault(pull.client, {})[pull] = None
        self._numbers.setdefault(pull.topic_key, {})[pull.number] = None

    def wait_for_heartbeat(self, pull: Pull) -> None:
        """Let a pull wait for its group's next heartbeat."""
        pull.place = Waiting.RACE
        self._races.setdefault(pull.group, {})[pull] = None

    def wait_for_disk(self, pull: Pull) -> None:
        """Let a pull wait for what its reader has asked for."""
        pull.place = Waiting.COLD
        self._cold[pull] = None
        if pull.reader is not None:
            self.needed.add(pull.reader)

    def wait_in_line(self, pull: Pull) -> None:
        """Let a pull wait until fewer wait for the disk, or for a later turn."""
        pull.place = Waiting.LINE
        self._line.setdefault(pull.client, {})[pull] = None

    @property
    def is_disk_busy(self) -> bool:
        """Whether as many pulls wait for the disk as may."""
        return len(self._cold) >= COLD_PULLS_MAX

    @property
    def is_spent(self) -> bool:
        """Whether this turn has no more time for pulls that take some."""
        return self.spent_ns >= PULL_LOOKS_NS_PER_TURN_MAX

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
            clients = self._held[pull.number]
            pulls = clients[pull.client]
            del pulls[pull]
            if not pulls:
                del clients[pull.client]
            if not clients:
                del self._held[pull.number]
                numbers = self._numbers[pull.topic_key]
                del numbers[pull.number]
                if not numbers:
                    del self._numbers[pull.topic_key]
        elif place is Waiting.COLD:
            del self._cold[pull]
        elif place is Waiting.LINE:
            pulls = self._line[pull.client]
            del pulls[pull]
            if not pulls:
                del self._line[pull.client]
        elif place is Waiting.READY:
            if pull in pull.client.ready:
                pull.client.ready.remove(pull)
        elif place is Waiting.RACE:
            pulls = self._races[pull.group]
            del pulls[pull]
            if not pulls:
                del self._races[pull.group]

    def drop(self, client: RocketmqClient) -> None:
        """Forget the pulls of a connection that has ended."""
        client.ready.clear()
        for pull in list(client.pulls):
            self.end(pull)

    # -- what wakes them -------------------------------------------------------------------------------------------

    def heard(self, group: str) -> None:
        """A heartbeat has told something new about a group's subscriptions."""
        self._heard.extend(self._races.get(group, ()))

    @property
    def is_busy(self) -> bool:
        """Whether some could be made ready at once, and only have to wait for their turn."""
        return bool(self._round or self._heard or (self._line and len(self._cold) < COLD_PULLS_MAX))

    def note(self) -> None:
        """Remember where something is being appended that somebody waits for."""
        held = self._held
        if held:
            for topic in self._kernel.fresh:
                for partition in topic.partitions:
                    if partition.number in held:
                        self._behind[partition.number] = None

    def show(self) -> None:
        """Wake those that have what they waited for, a few in each turn."""
        self.spent_ns = 0
        if self._behind:
            behind, self._behind = self._behind, {}
            for number in behind:
                for client in self._held.get(number, ()):
                    self._round[number, client] = None
        if self._round:
            self._go_round()
        for _ in range(min(len(self._heard), PULLS_WOKEN_PER_TURN_MAX)):
            pull = self._heard.popleft()
            if pull.place is Waiting.RACE:
                self.make_ready(pull)
        if self._cold:
            for pull in [pull for pull in self._cold if pull.reader is None or not pull.reader.is_stalled]:
                self.make_ready(pull)
        left = COLD_PULLS_MAX - len(self._cold) if self._cold else PULLS_WOKEN_PER_TURN_MAX
        while self._line and left > 0:
            left -= 1
            client, pulls = next(iter(self._line.items()))
            self._line.move_to_end(client)
            self.make_ready(next(iter(pulls)))

    def _go_round(self) -> None:
        """Wake one pull of each connection that has some behind, then the next of each, until that is enough for this turn."""
        left = PULLS_WOKEN_PER_TURN_MAX
        while self._round and left:
            (number, client), _ = self._round.popitem(last=False)
            pulls = self._held[number].get(client) if number in self._held else None
            if not pulls:
                continue
            # Each began to wait when it had come to the end: the first has come least far.
            pull = next(iter(pulls))
            log = pull.log
            if log.readable > pull.next or number not in self._owners:
                left -= 1
                self.make_ready(pull)
                if pulls:
                    self._round[number, client] = None
            elif log.readable < log.end:
                # Asked before the commit, as in a turn that the schedule began: the answer is behind it.
                self._behind[number] = None

    def topic_created(self, namespace: str, topic: str) -> None:
        """Nobody waits for it."""

    def topic_deleted(self, namespace: str, topic: str) -> None:
        """Wake those that wait for its messages: there will be none."""
        for number in list(self._numbers.get((namespace, topic), ())):
            self._behind[number] = None

    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Nothing changes."""

    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Nothing changes: whoever pulls commits again."""

    # -- readers ---------------------------------------------------------------------------------------------------

    def used(self, reader: Reader) -> None:
        """Note that a reader has been used: those that keep a copy of a piece of the log may keep so much, all together."""
        warm = self._warm
        if not reader.keeps_copy:
            if warm:
                self._warm_size_bytes -= warm.pop(reader, 0)
            return
        size = reader.copy_size_bytes
        self._warm_size_bytes += size - warm.pop(reader, 0)
        warm[reader] = size
        if self._warm_size_bytes > COLD_COPIES_SIZE_BYTES_MAX:
            for other in list(warm):
                if other is not reader and other not in self.needed:
                    self.let_go(other)
                    if self._warm_size_bytes <= COLD_COPIES_SIZE_BYTES_MAX:
                        break

    def let_go(self, reader: Reader) -> None:
        """Have a reader keep nothing: whoever pulls with it has to find its place again."""
        self._warm_size_bytes -= self._warm.pop(reader, 0)
        if reader.keeps_copy:
            reader.seek(-1)
