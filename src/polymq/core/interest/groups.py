"""Queue groups: of all members of a group one gets the message, with a chance that is its share of the weights.

A member that is here weighs 1, one that stands for another server as much as it has members there. Members of the same
group may have come by different patterns; they are one group to a message that matches those.
Hot module: see docs/adr/0001. Read next: `spread.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cython

if TYPE_CHECKING:
    from polymq.core.interest.targets import Entry, Target
    from polymq.core.ports import Random

__all__ = ["Chooser", "Group"]

# Of a group's members few are the sender itself: to draw again is exact, and cheap. After so many vain tries those who
# can take the message are counted.
_DRAWS: Final = 8

# Declared, because Cython makes objects of literals beyond 32 bits. In Python integers do not wrap: hence the mask.
_WORD_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_STEP = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_FIRST_FACTOR = cython.declare(cython.ulonglong, 0xBF58476D1CE4E5B9)
_SECOND_FACTOR = cython.declare(cython.ulonglong, 0x94D049BB133111EB)


@cython.no_gc  # type: ignore[attr-defined]  # Cython's stub lacks it.
@cython.cclass
class Group:
    """The members of one queue group that came by one pattern. Not seen by the garbage collector, as Entry."""

    def __init__(self, queue: bytes) -> None:
        self.queue = queue
        self.members: list[Entry] = []
        self.remotes: list[Entry] = []
        self.remote_weight = 0

    def link(self, entry: Entry) -> None:
        """Add a member."""
        members: list[Entry] = self.members
        if entry.target.remote:
            members = self.remotes
            self.remote_weight += entry.weight
        entry.place = len(members)
        members.append(entry)

    def unlink(self, entry: Entry) -> None:
        """Take a member out: the last one takes its place."""
        members: list[Entry] = self.members
        if entry.target.remote:
            members = self.remotes
            self.remote_weight -= entry.weight
        last: Entry = members.pop()
        if last is not entry:
            last.place = entry.place
            members[entry.place] = last
        entry.place = -1

    def weigh(self, entry: Entry, weight: cython.int) -> None:
        """Change a remote member's weight."""
        assert entry.target.remote
        if entry.place >= 0:
            self.remote_weight += weight - entry.weight
        entry.weight = weight

    def has_members(self) -> bool:
        """Say whether anybody is in it, whatever the weight."""
        return len(self.members) + len(self.remotes) > 0

    def lists(self, entry: Entry) -> bool:
        """Say whether a member is one of these, and not of the same group by another pattern."""
        members: list[Entry] = self.remotes if entry.target.remote else self.members
        return 0 <= entry.place < len(members) and members[entry.place] is entry

    def has_takers(self) -> bool:
        """Say whether a message can be given to one of them."""
        entry: Entry
        for entry in self.members:
            if not entry.target.closed:
                return True
        i: cython.Py_ssize_t = 0
        while i < len(self.remotes):
            entry = self.remotes[i]
            if entry.weight > 0 and not entry.target.closed:
                return True
            i += 1
        return False


@cython.cclass
class Chooser:
    """Draws members. Its own generator of numbers (splitmix64) is seeded by the core's `random` when it is first needed.

    `steps` counts the members that were gone through because drawing was in vain.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.state = 0
        self.seeded = False
        self.able = 0
        self.steps = 0

    def choose(
        self,
        groups: list[Group],
        first: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        local: cython.bint,
        remote: cython.bint,
        avoided: Target | None,
    ) -> Entry | None:
        """Draw one member of `groups[first:end]`, which are one group, from those here, those elsewhere, or both.

        Not `avoided`, and none of a closed target, whom it takes out. None: there is nobody. Cost: O(1) for members here,
        O(servers) for the others; once more for each that is taken out.
        """
        entry: Entry
        total: cython.longlong
        tries: cython.int = _DRAWS
        while tries > 0:
            total = self._weight_of(groups, first, end, local, remote)
            if total == 0:
                return None
            entry = self._member(groups, first, end, local, remote, self._draw(total))
            if entry.target.closed:
                self.take_out(groups, first, end, entry)
            elif entry.target is not avoided:
                return entry
            else:
                tries -= 1
        self._scan(groups, first, end, local, remote, avoided, -1)
        if self.able == 0:
            return None
        return self._scan(groups, first, end, local, remote, avoided, self._draw(self.able))

    def _weight_of(
        self, groups: list[Group], first: cython.Py_ssize_t, end: cython.Py_ssize_t, local: cython.bint, remote: cython.bint
    ) -> int:
        """Add up the weights."""
        total: cython.longlong = 0
        i: cython.Py_ssize_t
        group: Group
        for i in range(first, end):
            group = groups[i]
            if local:
                total += len(group.members)
            if remote:
                total += group.remote_weight
        return total

    def _member(
        self,
        groups: list[Group],
        first: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        local: cython.bint,
        remote: cython.bint,
        number: cython.longlong,
    ) -> Entry:
        """Find the member whose part of the total weight a number falls into."""
        i: cython.Py_ssize_t
        group: Group
        entry: Entry
        for i in range(first, end):
            group = groups[i]
            if local:
                if number < len(group.members):
                    entry = group.members[number]
                    return entry
                number -= len(group.members)
            if remote:
                if number < group.remote_weight:
                    for entry in group.remotes:
                        if number < entry.weight:
                            return entry
                        number -= entry.weight
                number -= group.remote_weight
        msg = "the weights do not add up"
        raise AssertionError(msg)

    def _scan(
        self,
        groups: list[Group],
        first: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        local: cython.bint,
        remote: cython.bint,
        avoided: Target | None,
        number: cython.longlong,
    ) -> Entry | None:
        """Go over all members: find the one that a number falls to among those who can take something, or (-1) add up `able`."""
        i: cython.Py_ssize_t
        group: Group
        entry: Entry
        self.able = 0
        for i in range(first, end):
            group = groups[i]
            self.steps += len(group.members) + len(group.remotes)
            if local:
                for entry in group.members:
                    if entry.target is not avoided and not entry.target.closed:
                        self.able += 1
                        if 0 <= number < self.able:
                            return entry
            if remote:
                for entry in group.remotes:
                    if entry.target is not avoided and not entry.target.closed:
                        self.able += entry.weight
                        if 0 <= number < self.able:
                            return entry
        return None

    def choose_of(self, entries: list[Entry]) -> Entry | None:
        """Draw one of these by weight; None: there are none."""
        entry: Entry
        total: cython.longlong = 0
        number: cython.longlong
        for entry in entries:
            total += entry.weight
        if total == 0:
            return None
        number = self._draw(total)
        for entry in entries:
            if number < entry.weight:
                return entry
            number -= entry.weight
        msg = "the weights do not add up"
        raise AssertionError(msg)

    def take_out(self, groups: list[Group], first: cython.Py_ssize_t, end: cython.Py_ssize_t, entry: Entry) -> None:
        """Take a member out of the one of `groups[first:end]` that it came by; it is still to be removed."""
        i: cython.Py_ssize_t
        group: Group
        for i in range(first, end):
            group = groups[i]
            if group.lists(entry):
                group.unlink(entry)
                return

    def _draw(self, stop: cython.longlong) -> cython.longlong:
        """Give a number below `stop`. Of 2**64 numbers the remainder prefers none by more than stop / 2**64."""
        if not self.seeded:
            self.seeded = True
            self.state = self.random.randrange(1 << 62)
        mixed: cython.ulonglong
        below: cython.ulonglong = stop
        self.state = (self.state + _STEP) & _WORD_MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * _FIRST_FACTOR) & _WORD_MASK
        mixed = ((mixed ^ (mixed >> 27)) * _SECOND_FACTOR) & _WORD_MASK
        mixed = mixed ^ (mixed >> 31)
        return mixed % below
