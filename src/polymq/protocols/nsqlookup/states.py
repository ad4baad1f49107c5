"""The states of a node's connection as the directory sees it, and which command is legal in which: a table and nothing else.

A command without an entry is answered with what `problems.cannot` says, and ends the connection.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TRANSITIONS", "Command", "State"]


class State(enum.Enum):
    """Whether the directory knows who is there."""

    INIT = "init"
    IDENTIFIED = "identified"


class Command(enum.Enum):
    """The first word of a command line. Case matters."""

    PING = b"PING"
    IDENTIFY = b"IDENTIFY"
    REGISTER = b"REGISTER"
    UNREGISTER = b"UNREGISTER"


TRANSITIONS: Final[Mapping[State, Mapping[Command, State]]] = {
    State.INIT: {
        Command.PING: State.INIT,
        Command.IDENTIFY: State.IDENTIFIED,
    },
    State.IDENTIFIED: {
        Command.PING: State.IDENTIFIED,
        Command.REGISTER: State.IDENTIFIED,
        Command.UNREGISTER: State.IDENTIFIED,
    },
}
