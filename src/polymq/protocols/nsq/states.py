"""The states of a connection as the server sees it, and which command is legal in which: a table and nothing else.

A command without an entry is answered with `E_INVALID cannot <command> in current state` and ends the connection.
The numbers are those that nsqd shows as `state` in its statistics.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TRANSITIONS", "Command", "State"]


class State(enum.IntEnum):
    """Where a connection is in its life. 1 and 2 are nsqd's for states that no client reaches."""

    INIT = 0
    SUBSCRIBED = 3
    CLOSING = 4


class Command(enum.Enum):
    """The first word of a command line. Case matters."""

    IDENTIFY = b"IDENTIFY"
    AUTH = b"AUTH"
    SUB = b"SUB"
    RDY = b"RDY"
    FIN = b"FIN"
    REQ = b"REQ"
    TOUCH = b"TOUCH"
    CLS = b"CLS"
    NOP = b"NOP"
    PUB = b"PUB"
    MPUB = b"MPUB"
    DPUB = b"DPUB"


_ANYWHERE: Final = (Command.NOP, Command.PUB, Command.MPUB, Command.DPUB)
_CONSUMING: Final = (Command.RDY, Command.FIN, Command.REQ, Command.TOUCH)

# RDY after CLS is legal and without effect: clients may have sent it before they saw CLOSE_WAIT.
TRANSITIONS: Final[Mapping[State, Mapping[Command, State]]] = {
    State.INIT: {
        **dict.fromkeys(_ANYWHERE, State.INIT),
        Command.IDENTIFY: State.INIT,
        Command.AUTH: State.INIT,
        Command.SUB: State.SUBSCRIBED,
    },
    State.SUBSCRIBED: {
        **dict.fromkeys(_ANYWHERE, State.SUBSCRIBED),
        **dict.fromkeys(_CONSUMING, State.SUBSCRIBED),
        Command.CLS: State.CLOSING,
    },
    State.CLOSING: {
        **dict.fromkeys(_ANYWHERE, State.CLOSING),
        **dict.fromkeys(_CONSUMING, State.CLOSING),
    },
}
