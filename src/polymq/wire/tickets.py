"""Where a promised write stands: the one word about durability that the store, the core and the gateways share."""

from __future__ import annotations

import enum

__all__ = ["TicketState"]


class TicketState(enum.Enum):
    """PENDING becomes DONE or FAILED once, and stays so."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
