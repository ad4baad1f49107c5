from __future__ import annotations

from polymq.protocols.nsq.states import TRANSITIONS, Command, State

# Spelt out command by command, as the protocol's documentation has it; the table groups them.
LEGAL = {
    State.INIT: {"IDENTIFY", "AUTH", "SUB", "PUB", "MPUB", "DPUB", "NOP"},
    State.SUBSCRIBED: {"RDY", "FIN", "REQ", "TOUCH", "CLS", "PUB", "MPUB", "DPUB", "NOP"},
    State.CLOSING: {"RDY", "FIN", "REQ", "TOUCH", "PUB", "MPUB", "DPUB", "NOP"},
}
MOVES = {(State.INIT, Command.SUB): State.SUBSCRIBED, (State.SUBSCRIBED, Command.CLS): State.CLOSING}


def test_every_pair_of_state_and_command() -> None:
    for state in State:
        for command in Command:
            expected = MOVES.get((state, command), state) if command.name in LEGAL[state] else None
            assert TRANSITIONS[state].get(command) is expected, (state, command)


def test_the_numbers_are_those_of_nsqds_statistics() -> None:
    assert [state.value for state in State] == [0, 3, 4]
