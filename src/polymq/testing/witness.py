"""Everything that clients of RocketMQ, PHPMQ and NATS were promised, beside the ledger of what was published and of NSQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from polymq.testing.clients import Surroundings
from polymq.testing.copies import Copies
from polymq.testing.positions import Positions
from polymq.testing.windows import Windows

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from polymq.testing.clients import ClientStream
    from polymq.testing.durability import Loss
    from polymq.testing.ledger import Ledger
    from polymq.testing.options import TopicPlan

__all__ = ["Witness", "WitnessedSurroundings"]


class Witness:
    """Positions of cursor groups, copies that were asked for, windows of queues; all judge by the same publications."""

    def __init__(self, ledger: Ledger) -> None:
        self.positions = Positions(ledger)
        self.copies = Copies(ledger)
        self.windows = Windows(ledger, self.copies)

    def stopped(self) -> None:
        """The process is gone; say so before the ledger is told."""
        self.positions.stopped()
        self.windows.stopped()

    def power_lost(self, loss: Loss) -> None:
        """The power failed: what was not synced is forgiven."""
        self.positions.power_lost(loss)
        self.copies.power_lost(loss)
        self.windows.power_lost(loss)


class WitnessedSurroundings(Surroundings, Protocol):
    """What clients of the other protocols can reach, and whom they tell."""

    witness: Witness
    # Messages, by what published them.
    sent: Counter[str]

    def dial(self, port: str, on_end: Callable[[], None] | None = None) -> ClientStream | None:
        """Reach the broker at one of its ports, if it is up; `on_end` is called when it hangs up, where that can be seen."""

    def topics_of(self, protocol: str) -> list[TopicPlan]:
        """Say what a protocol's clients publish to now."""
