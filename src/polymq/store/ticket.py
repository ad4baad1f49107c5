"""The promise that what was appended in a turn is durable, or the reason why it will not be."""

from __future__ import annotations

from polymq.wire.tickets import TicketState

__all__ = ["Ticket", "TicketState"]


class Ticket:
    """One per partition, turn and durability: everything that was appended in that turn shares it."""

    __slots__ = ("failure", "state")

    def __init__(self) -> None:
        self.state = TicketState.PENDING
        self.failure = ""

    def resolve(self) -> None:
        """What was appended is as durable as was asked for."""
        if self.state is TicketState.PENDING:
            self.state = TicketState.DONE

    def fail(self, reason: str) -> None:
        """What was appended may be lost; `reason` is for people."""
        if self.state is TicketState.PENDING:
            self.state = TicketState.FAILED
            self.failure = reason
