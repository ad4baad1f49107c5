"""The states of a promise that something is durable: the one thing that store, core and gateways all compare."""

from __future__ import annotations

import enum

__all__ = ["TicketState"]


class TicketState(enum.Enum):
    """PENDING becomes DONE or FAILED once, and stays so."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
