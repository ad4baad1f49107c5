"""PHPMQ's windows: who has which message, and which settles are known to be done, in a protocol that answers nothing.

A consumer asks for so many messages at a time. When more have come than that, the first of what it settled must have been
carried out, for nothing else frees a slot: so a dispatch is the answer to a settle. A message put back (005) frees its
slot when its copy is written, perhaps later than settles behind it; each of those makes one settle less certain.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.testing.promises import PromiseBrokenError

if TYPE_CHECKING:
    from polymq.testing.copies import Copies
    from polymq.testing.durability import Loss
    from polymq.testing.ledger import Ledger
    from polymq.testing.promises import Publication

__all__ = ["Settle", "Window", "Windows"]

_SECOND_NS: Final = 1_000_000_000


class Settle(enum.Enum):
    """What a consumer can do with a message."""

    DONE = "004"
    AGAIN = "005"
    DEAD = "006"


@dataclass(slots=True)
class _Fate:
    """What becomes of one message of a queue. `gone`: somebody has said that it is done with; `wanted`: it must come (again)."""

    gone: bool = False
    wanted: bool = False


@dataclass(slots=True, eq=False)
class Window:
    """One connection that consumes: since its 002, in which life. `exact`: it has sent one 002 only, so what comes can be counted."""

    queue: str
    name: str
    size: int
    life: int
    exact: bool = True
    open: bool = True
    received: int = 0
    confirmed: int = 0
    again: int = 0  # 005s sent
    settles: deque[bytes] = field(default_factory=deque)  # ids of 004 and 006 that are not known to be done
    held: dict[bytes, int] = field(default_factory=dict)  # ids that it has, by serial


class Windows:
    """What consumers of queues were given and have settled. `dispatches`, `settled`: how many were seen, and known to be done."""

    def __init__(self, ledger: Ledger, copies: Copies) -> None:
        self.dispatches = 0
        self.settled = 0
        self._ledger = ledger
        self._copies = copies
        # How long a message lives, by everything that was said of it: (seconds, end), (0, 0) for ever.
        self._lifetimes: dict[int, list[tuple[int, int]]] = {}
        self._done: dict[bytes, tuple[str, int]] = {}  # ids known to be settled, of which queue and since when
        self._holders: dict[bytes, Window] = {}
        self._fates: dict[tuple[str, int], _Fate] = {}

    # -- what clients do ---------------------------------------------------------------------------------------------

    def lives(self, serial: int, lifetime_s: int) -> None:
        """A message is sent, or put back, with so long to live; 0: for ever."""
        ends_ns = self._ledger.clock.wall_ns() + lifetime_s * _SECOND_NS if lifetime_s else 0
        self._lifetimes.setdefault(serial, []).append((lifetime_s, ends_ns))

    def shown_max(self, serial: int) -> int:
        """How often readers of the queue's log may be shown a message: once more each time that it may have been put back to live longer."""
        lifetimes = self._lifetimes.get(serial, ())
        return len(lifetimes) if lifetimes and lifetimes[0][1] else 1

    def consumes(self, name: str, queue: str, size: int) -> Window:
        """A new connection sends 002."""
        return Window(queue, name, size, self._ledger.life)

    def consumes_anew(self, window: Window, size: int) -> None:
        """A connection sends another 002: what it has goes back, nobody can count any more, and it settles nothing from now on."""
        window.exact = False
        window.size = size
        self._let_go(window)

    def settles(self, window: Window, message_id: bytes, how: Settle, *, lifetime_s: int = 0) -> None:
        """A consumer settles what it has."""
        serial = window.held.pop(message_id)
        self._holders.pop(message_id, None)
        fate = self._fate(window.queue, serial)
        if how is Settle.AGAIN:
            window.again += 1
            fate.wanted = True
            self._copies.asks(serial, window.queue)
            self._lifetimes.setdefault(serial, [(0, 0)])  # nothing was said of it, so far: it lived for ever
            self.lives(serial, lifetime_s)
        else:
            window.settles.append(message_id)
            fate.gone, fate.wanted = True, False

    def ended(self, window: Window) -> None:
        """A connection has ended at one of its ends."""
        window.open = False
        window.settles.clear()
        self._let_go(window)

    def _let_go(self, window: Window) -> None:
        for message_id in window.held:
            self._holders.pop(message_id, None)
        window.held.clear()

    def _fate(self, queue: str, serial: int) -> _Fate:
        return self._fates.setdefault((queue, serial), _Fate())

    # -- what the broker sends ---------------------------------------------------------------------------------------

    def dispatched(self, window: Window, message_id: bytes, publication: Publication, lifetime_s: int | None) -> None:
        """A message came to a consumer. Raises PromiseBrokenError."""
        self.dispatches += 1
        self._check_lifetime(publication.serial, lifetime_s)
        fate = self._fate(window.queue, publication.serial)
        fate.wanted = False
        if not window.open or window.life != self._ledger.life:
            return  # sent by a process that is gone, or before this end hung up
        if not window.exact:
            return  # sent before the last 002, perhaps; so nobody may settle it here
        window.received += 1
        self._confirm(window)
        if message_id in self._done:
            raise PromiseBrokenError(f"message {publication.serial} of {window.queue} was settled and came back, to {window.name}")
        holder = self._holders.get(message_id)
        if holder is not None and holder.life == self._ledger.life:
            raise PromiseBrokenError(f"message {publication.serial} came to {window.name} while {holder.name} has it")
        fate.gone = False
        self._holders[message_id] = window
        window.held[message_id] = publication.serial

    def _confirm(self, window: Window) -> None:
        """More has come than the window holds: so many settles are done."""
        freed = window.received - window.size
        if freed > window.confirmed + len(window.settles) + window.again:
            raise PromiseBrokenError(f"{window.name} has {window.received} messages of a window of {window.size}, and settled fewer")
        while window.settles and window.confirmed < freed - window.again:
            self._done[window.settles.popleft()] = (window.queue, self._ledger.clock.monotonic_ns())
            window.confirmed += 1
            self.settled += 1

    def _check_lifetime(self, serial: int, lifetime_s: int | None) -> None:
        """What is left is no more than was given, and no less than what is left by now."""
        given = self._lifetimes.get(serial)
        if lifetime_s is None or not given:
            return
        slack_ns = self._ledger.book.wall_slack_ns
        now_ns = self._ledger.clock.wall_ns()
        for most_s, ends_ns in given:
            if not most_s and not lifetime_s:
                return
            least_ns = ends_ns - now_ns - slack_ns
            if most_s and lifetime_s and lifetime_s <= most_s + slack_ns // _SECOND_NS + 1 and lifetime_s * _SECOND_NS >= least_ns:
                return
        raise PromiseBrokenError(f"message {serial} has {lifetime_s} s to live, and was given {[each for each, _ in given]}")

    # -- ends --------------------------------------------------------------------------------------------------------

    def stopped(self) -> None:
        """The process is gone, and with it who has what."""
        self._holders.clear()

    def power_lost(self, loss: Loss) -> None:
        """Settles that were not synced may be undone; places, and so ids, may be given to other messages."""
        self._done = {
            message_id: (queue, at_ns)
            for message_id, (queue, at_ns) in self._done.items()
            if loss.journal_keeps(at_ns) and loss.log_keeps(queue, None, at_ns)
        }

    def owed(self, queue: str) -> list[Publication]:
        """List what must still be dispatched to consumers of a queue: what nobody has said to be done with."""
        return [each for each in self._ledger.open_publications if each.topic == queue and self._is_owed(queue, each)]

    def _is_owed(self, queue: str, publication: Publication) -> bool:
        fate = self._fate(queue, publication.serial)
        if publication.promised_ns is None or (fate.gone and not fate.wanted):
            return False
        soon_ns = self._ledger.clock.wall_ns() + _SECOND_NS + self._ledger.book.wall_slack_ns
        return not any(ends_ns and ends_ns < soon_ns for _, ends_ns in self._lifetimes.get(publication.serial, ()))
