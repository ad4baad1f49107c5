from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.nsq import events
from polymq.protocols.nsq.commands import BodyAhead, Situation, interpret, parse_id
from polymq.protocols.nsq.settings import NsqSettings
from polymq.protocols.nsq.states import TRANSITIONS, Command, State

SETTINGS = NsqSettings(requeue_delay_ms_max=60_000)
ID = b"0123456789abcdef"
ARGUMENTS = {Command.SUB: b" t c", Command.PUB: b" t", Command.MPUB: b" t", Command.DPUB: b" t 1"} | dict.fromkeys(
    (Command.FIN, Command.REQ, Command.TOUCH), b" " + ID + b" 1"
)


def said(line: bytes, state: State = State.SUBSCRIBED) -> object:
    return interpret(line, Situation(state, heartbeats=True, tls_missing=False, settings=SETTINGS))[0]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("command", Command)
def test_every_command_in_every_state(state: State, command: Command) -> None:
    line = command.value + ARGUMENTS.get(command, b"")
    outcome, after = interpret(line, Situation(state, heartbeats=True, tls_missing=False, settings=SETTINGS))
    if command in TRANSITIONS[state]:
        assert not isinstance(outcome, events.Violation)
        assert after is TRANSITIONS[state][command]
    else:
        assert outcome == events.Violation(b"E_INVALID cannot %b in current state" % command.value)
        assert after is state


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        (b"RDY", events.Ready(1)),
        (b"RDY ", events.Ready(0)),
        (b"RDY 0002500", events.Ready(2500)),
        (b"RDY 18446744073709551617", events.Ready(1)),
        (b"RDY " + b"0" * 9000 + b"5", events.Ready(5)),
        (b"RDY 18446744073709551615", events.Violation(b"E_INVALID RDY count -1 out of range 0-2500")),
        (b"RDY \xff", events.Violation(b"E_INVALID RDY could not parse count \xff")),
        (b"RDY +1", events.Violation(b"E_INVALID RDY could not parse count +1")),
        (b"RDY \xd9\xa1", events.Violation(b"E_INVALID RDY could not parse count \xd9\xa1")),
        (b"REQ " + ID + b" 5", events.Requeue(0x0123456789ABCDEF, 5)),
        (b"REQ " + ID + b" ", events.Requeue(0x0123456789ABCDEF, 0)),
        (b"REQ " + ID + b" 60001", events.Requeue(0x0123456789ABCDEF, 60_000)),
        # 2**63 ms, in nanoseconds and 64 bits, is 0; one less is negative, which counts as 0 too.
        (b"REQ " + ID + b" 9223372036854775808", events.Requeue(0x0123456789ABCDEF, 0)),
        (b"REQ " + ID + b" 9223372036855", events.Requeue(0x0123456789ABCDEF, 0)),
        (b"REQ x y", events.Violation(b"E_INVALID invalid message ID")),
        (b"REQ ffffffffffffffff 1", events.ForeignId(Command.REQ, b"ffffffffffffffff")),
        (b"REQ ffffffffffffffff 1.5", events.Violation(b"E_INVALID REQ could not parse timeout 1.5")),
        (b"TOUCH " + ID + b" x", events.Touch(0x0123456789ABCDEF)),
        (b"FIN ", events.Violation(b"E_INVALID invalid message ID")),
        (b"DPUB t 60000", BodyAhead(Command.DPUB, b"t", 60_000)),
        (b"DPUB t ", BodyAhead(Command.DPUB, b"t", 0)),
        (b"DPUB t 60001", events.Violation(b"E_INVALID DPUB timeout 60001 out of range 0-60000")),
        # A delay that is negative once it is in nanoseconds is shown as it was written.
        (b"DPUB t 9223372036855", events.Violation(b"E_INVALID DPUB timeout 9223372036855 out of range 0-60000")),
        (b"DPUB a!b x", events.Violation(b'E_BAD_TOPIC DPUB topic name "a!b" is not valid')),
        (b"MPUB ", events.Violation(b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "" is not valid')),
        (b"PUB  t", events.Violation(b'E_BAD_TOPIC PUB topic name "" is not valid')),
        (b"fin " + ID, events.Violation(b"E_INVALID invalid command fin")),
    ],
)
def test_words(line: bytes, outcome: object) -> None:
    assert said(line) == outcome


def test_ready_after_cls_has_no_effect_and_is_not_looked_at() -> None:
    assert said(b"RDY nonsense", State.CLOSING) == events.Nop()


def test_a_single_finish_is_a_run_of_one() -> None:
    event = said(b"FIN " + ID)
    assert isinstance(event, events.Finish)
    assert list(event.ids[event.first : event.first + event.count]) == [0x0123456789ABCDEF]


@given(st.integers(0, 2**63 - 1))
def test_ids_round_trip(message_id: int) -> None:
    assert parse_id(b"%016x" % message_id) == message_id


@pytest.mark.parametrize(
    "raw_id",
    [b"8000000000000000", b"0123456789ABCDEF", b"0123456789abcde", b"0123456789abcdef0", b"0123456789abcde\n", b"0x23456789abcdef"],
)
def test_what_is_no_id_of_ours(raw_id: bytes) -> None:
    assert parse_id(raw_id) == -1


@given(st.binary(max_size=40), st.sampled_from(State), st.booleans(), st.booleans())
def test_no_line_raises(line: bytes, state: State, heartbeats: bool, tls_missing: bool) -> None:
    interpret(line, Situation(state, heartbeats, tls_missing, SETTINGS))
