"""Every (state, command) pair: which are legal, and what the others are answered with."""

from __future__ import annotations

import itertools

import pytest

from polymq.protocols.nsqlookup import problems
from polymq.protocols.nsqlookup.states import TRANSITIONS, Command, State

LEGAL = {
    (State.INIT, Command.PING): State.INIT,
    (State.INIT, Command.IDENTIFY): State.IDENTIFIED,
    (State.IDENTIFIED, Command.PING): State.IDENTIFIED,
    (State.IDENTIFIED, Command.REGISTER): State.IDENTIFIED,
    (State.IDENTIFIED, Command.UNREGISTER): State.IDENTIFIED,
}


@pytest.mark.parametrize(("state", "command"), list(itertools.product(State, Command)))
def test_the_table(state: State, command: Command) -> None:
    assert TRANSITIONS[state].get(command) == LEGAL.get((state, command))
    if (state, command) not in LEGAL:
        assert problems.cannot(command).startswith(b"E_INVALID ")
