"""Turns of a pump on a fake clock: what the worlds of several protocols have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polymq.server.pump import Pump
    from tests.unit.core.fakes import FakeClock

__all__ = ["Turns"]

_TURNS_MAX = 200
_NS_PER_S = 1_000_000_000


class Turns:
    """A world that has a `pump` and a `clock`."""

    pump: Pump
    clock: FakeClock

    def turn(self) -> None:
        """Take turns until none is wanted at once."""
        for _ in range(_TURNS_MAX):
            self.pump.end_turn()
            due_ns = self.pump.due_ns()
            if due_ns is None or due_ns > self.clock.now_ns:
                return
        raise AssertionError("the pump does not come to rest")

    def wait(self, seconds: float) -> None:
        """Let time pass, from one thing that is due to the next."""
        end_ns = self.clock.now_ns + round(seconds * _NS_PER_S)
        while (due_ns := self.pump.due_ns()) is not None and due_ns <= end_ns:
            self.clock.now_ns = max(self.clock.now_ns, due_ns)
            self.turn()
        self.clock.now_ns = end_ns
        self.turn()
