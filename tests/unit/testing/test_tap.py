"""Tests of the tap: frames, however they are cut, become facts of the ledger, with bounds on when they were made."""

from __future__ import annotations

import pytest

from polymq.testing.clock import FakeClock
from polymq.testing.ledger import Ledger
from polymq.testing.promises import Connection, PromiseBrokenError, Verb
from polymq.testing.tap import Tap
from polymq.testing.trace import Trace

BODY = b"00000000body"
OK = (6).to_bytes(4, "big") + (0).to_bytes(4, "big") + b"OK"
MESSAGE = (4 + 26 + len(BODY)).to_bytes(4, "big") + (2).to_bytes(4, "big") + bytes(8) + b"\0\1" + b"0" * 16 + BODY


def error(text: bytes) -> bytes:
    return (4 + len(text)).to_bytes(4, "big") + (1).to_bytes(4, "big") + text


class Stage:
    """A consumer that is subscribed, and a message that was published."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ledger = Ledger(self.clock)
        publisher = Connection("publisher")
        self.ledger.connected(publisher)
        self.ledger.publishes(publisher, "t", [(0, BODY)])
        self.ledger.responded(publisher)
        self.connection = Connection("consumer")
        self.ledger.connected(self.connection)
        self.tap = Tap(self.ledger, self.connection, Trace(self.clock))
        self.ledger.subscribes(self.connection, "t", "c")
        self.tap.sent(OK, True)
        self.ledger.readies(self.connection, 1)

    @property
    def lease_from_ns(self) -> int:
        return self.ledger.channels["t", "c"].shares[0].lease_from_ns


@pytest.mark.parametrize("cut", range(len(MESSAGE)))
def test_a_frame_counts_when_it_is_whole(cut: int) -> None:
    stage = Stage()
    stage.tap.sent(MESSAGE[:cut], False)
    assert stage.ledger.delivered_count == 0
    stage.tap.sent(MESSAGE[cut:], True)
    assert stage.ledger.delivered_count == 1


def test_what_is_sent_at_once_was_made_at_once() -> None:
    stage = Stage()
    stage.clock.advance(5)
    stage.tap.sent(MESSAGE, True)
    assert stage.lease_from_ns == stage.clock.monotonic_ns()


def test_what_the_network_held_up_was_made_since_it_did() -> None:
    stage = Stage()
    held_up_ns = stage.clock.monotonic_ns()
    stage.tap.sent(b"", False)
    stage.clock.advance(5)
    stage.tap.sent(MESSAGE, True)
    assert stage.lease_from_ns == held_up_ns


def test_what_an_answer_held_up_was_made_since_it_was_asked_for() -> None:
    stage = Stage()
    asked_ns = stage.clock.monotonic_ns()
    stage.ledger.asks(stage.connection)
    stage.clock.advance(5)
    stage.tap.sent(OK + MESSAGE, True)
    assert stage.lease_from_ns == asked_ns


def test_what_was_received_is_as_old_as_the_connection_at_most() -> None:
    stage = Stage()
    opened_ns = stage.clock.monotonic_ns()
    stage.clock.advance(5)
    stage.tap.received(MESSAGE)
    assert stage.lease_from_ns == opened_ns


def test_refused_settles_are_told_by_verb_and_id() -> None:
    stage = Stage()
    stage.tap.sent(MESSAGE, True)
    stage.ledger.settles(stage.connection, Verb.REQUEUE, 0, 0)
    stage.tap.sent(error(b"E_REQ_FAILED REQ " + b"0" * 16 + b" failed ID not in flight"), True)
    stage.ledger.provokes(stage.connection)
    stage.tap.sent(error(b"E_FIN_FAILED FIN " + b"f" * 16 + b" failed ID not in flight"), True)
    assert not stage.connection.commands


def test_a_fatal_error_answers_nothing() -> None:
    stage = Stage()
    stage.ledger.asks(stage.connection)
    stage.tap.sent(error(b"E_INVALID invalid command"), True)
    assert stage.connection.dying
    assert [command.verb for command in stage.connection.commands] == [Verb.READY, Verb.ASK]


def test_an_answer_to_nothing_is_noticed_and_a_heartbeat_is_none() -> None:
    stage = Stage()
    stage.tap.sent((15).to_bytes(4, "big") + bytes(4) + b"_heartbeat_", True)
    with pytest.raises(PromiseBrokenError, match="nothing that was asked"):
        stage.tap.sent(OK, True)


def test_after_the_end_nothing_counts() -> None:
    stage = Stage()
    stage.tap.closed()
    assert not stage.connection.open
    stage.tap.sent(MESSAGE, True)
    assert stage.ledger.delivered_count == 0
