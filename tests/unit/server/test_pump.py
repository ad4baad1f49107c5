"""The pump over a world of fakes: what is called when, what is read, what is written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from polymq.gateways.effects import Ask, Pause, Resume, Send, SendAfter, SetTimer, TimerName
from polymq.server.settings import PumpSettings
from tests.unit.server.fakes import Gateway, Publisher, Ticket, World, echo, failure

if TYPE_CHECKING:
    from collections.abc import Callable


SECOND_NS = 1_000_000_000


class Outside:
    """Keeps the questions. Each is its own `Asked`."""

    def __init__(self) -> None:
        self.questions: list[tuple[object, Callable[[object], None]]] = []
        self.cancelled = 0

    def ask(self, request: object, answered: Callable[[object], None]) -> Outside:
        self.questions.append((request, answered))
        return self

    def cancel(self) -> None:
        self.cancelled += 1


def test_a_turn_that_answers_has_its_order() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = echo
    stream.incoming.append(b"line\n")
    world.pump.readable(connection)
    world.deliver(gateway, b"message")
    world.store.on_commit = lambda: world.broker.calls.append(f"sent {bytes(stream.outgoing)!r}")
    world.pump.end_turn()
    assert world.broker.calls == ["tick", "commit", "sent b''", "poll", "dispatch"]
    assert stream.outgoing == b"line\nmessage"
    assert stream.sends == 1


def test_deliveries_do_not_wait_for_the_commit_where_nobody_is_answered() -> None:
    world = World()
    stream, gateway, _ = world.connect()
    world.deliver(gateway, b"message")
    world.store.on_commit = lambda: world.broker.calls.append(f"sent {bytes(stream.outgoing)!r}")
    world.pump.end_turn()
    assert world.broker.calls == ["tick", "dispatch", "commit", "sent b'message'", "poll", "dispatch"]


def test_deliveries_wait_for_the_commit_with_an_answer_of_anybody() -> None:
    world = World()
    stream, gateway, _ = world.connect()
    _, publishing, publisher = world.connect()
    publishing.on_line = Publisher()
    world.send(publisher, b"a\n")
    world.deliver(gateway, b"message")
    world.store.on_commit = lambda: world.broker.calls.append(f"sent {bytes(stream.outgoing)!r}")
    world.broker.calls.clear()
    world.pump.end_turn()
    assert world.broker.calls == ["tick", "commit", "sent b''", "poll", "dispatch"]


def test_who_publishes_and_consumes_is_written_to_once() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    world.deliver(gateway, b"first")
    world.turn()
    publisher = Publisher()
    gateway.on_line = publisher
    stream.incoming.append(b"a\n")
    world.pump.readable(connection)
    publisher.resolve_all()
    world.deliver(gateway, b"second")
    sends = stream.sends
    world.pump.end_turn()
    assert stream.outgoing.startswith(b"first")
    assert stream.outgoing.endswith(b"second")
    assert len(stream.outgoing) > len(b"firstsecond")
    assert stream.sends == sends + 1


def test_who_only_publishes_is_answered_before_deliveries_are_looked_for() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    publisher = Publisher()
    gateway.on_line = publisher
    stream.incoming.append(b"a\n")
    world.pump.readable(connection)
    publisher.resolve_all()
    world.store.on_poll = lambda: world.broker.calls.append(f"sent {bytes(stream.outgoing)!r}")
    world.pump.end_turn()
    assert world.broker.calls[-4:] == ["commit", "poll", "sent b'OK a\\n'", "dispatch"]
    assert stream.sends == 1


def test_input_is_answered_in_one_write() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = echo
    world.send(connection, b"one\ntwo\nthr", b"ee\n")
    assert stream.outgoing == b"one\ntwo\nthree\n"
    assert stream.sends == 2
    assert gateway.calls == ["opened", b"one", b"two", b"three"]


def test_every_cut_of_the_input_means_the_same() -> None:
    data = b"a\nbb\n\nccc\n"
    for cut in range(len(data) + 1):
        world = World()
        stream, gateway, connection = world.connect()
        gateway.on_line = echo
        world.send(connection, *[piece for piece in (data[:cut], data[cut:]) if piece])
        assert stream.outgoing == data


def test_spurious_readiness_is_harmless() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    world.send(connection, b"par")
    world.pump.readable(connection)
    world.send(connection, b"tial\n")
    assert gateway.calls == ["opened", b"partial"]
    assert not stream.closed()


# Commits


def test_an_answer_waits_for_its_commit_and_later_output_behind_it() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = publisher = Publisher()
    world.send(connection, b"ping\na\nping\nb\nping\n")
    assert stream.outgoing == b"pong\n"
    publisher.tickets[1].resolve()
    world.turn()
    assert stream.outgoing == b"pong\n"
    publisher.tickets[0].resolve()
    world.turn()
    assert stream.outgoing == b"pong\nOK a\npong\nOK b\npong\n"


def test_a_commit_of_the_same_turn_is_answered_in_it() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = publisher = Publisher()
    world.store.on_commit = publisher.resolve_all
    stream.incoming.append(b"a\nb\n")
    world.pump.readable(connection)
    world.pump.end_turn()
    assert stream.outgoing == b"OK a\nOK b\n"
    assert stream.sends == 1


def test_a_failed_commit_is_said_and_ends_the_connection() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = publisher = Publisher()
    world.send(connection, b"ping\na\nping\nb\n")
    publisher.tickets[1].resolve()
    publisher.tickets[0].fail("disk on fire")
    world.turn()
    assert stream.outgoing == b"pong\nFAILED disk on fire\n"
    assert stream.output_ended
    assert gateway.calls[-1] == "ended"


def test_deliveries_queue_behind_a_gate() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = publisher = Publisher()
    world.send(connection, b"a\n")
    world.deliver(gateway, b"message\n")
    world.turn()
    assert stream.outgoing == b""
    publisher.tickets[0].resolve()
    world.turn()
    assert stream.outgoing == b"OK a\nmessage\n"


# Pausing, asking


def test_a_paused_connection_is_not_read_and_goes_on_with_what_it_had() -> None:
    world = World()
    _, gateway, connection = world.connect()
    gateway.stop_after = {b"wait"}
    gateway.on_line = lambda line, effects: effects.append(Pause()) if line == b"wait" else None
    gateway.on["woken"] = lambda effects: effects.append(Resume())
    world.send(connection, b"wait\nnext\n")
    assert gateway.calls == ["opened", b"wait"]
    assert connection.watched == (False, False)
    gateway.ring()
    world.turn()
    assert gateway.calls == ["opened", b"wait", "woken", b"next"]
    assert connection.watched == (True, False)


def test_a_question_stops_input_until_it_is_answered() -> None:
    world = World()
    _, gateway, connection = world.connect()
    gateway.stop_after = {b"ask"}
    gateway.on_line = lambda line, effects: effects.append(Ask(7, "who?", world.clock.now_ns + SECOND_NS)) if line == b"ask" else None
    world.pump.outside = outside = Outside()
    world.send(connection, b"ask\nnext\n")
    assert connection.watched == (False, False)
    [(request, answered)] = outside.questions
    assert request == "who?"
    answered("me")
    world.turn()
    assert gateway.calls == ["opened", b"ask", "answered 7 me", b"next"]
    answered("me again")
    world.pass_time(2 * SECOND_NS)
    assert gateway.calls[-1] == b"next"
    assert connection.watched == (True, False)


def test_a_question_without_an_answer_is_over_at_its_deadline() -> None:
    world = World()
    _, gateway, connection = world.connect()
    gateway.on_line = lambda _line, effects: effects.append(Ask(7, "who?", world.clock.now_ns + SECOND_NS))
    world.pump.outside = outside = Outside()
    world.send(connection, b"ask\n")
    world.pass_time(SECOND_NS - 1)
    assert outside.cancelled == 0
    assert gateway.calls[-1] == b"ask"
    world.pass_time(1)
    assert gateway.calls[-1] == "answered 7 None"
    assert connection.watched == (True, False)
    assert outside.cancelled == 1


def test_a_question_is_over_when_whoever_asked_it_is() -> None:
    world = World()
    _, gateway, connection = world.connect()
    gateway.on_line = lambda _line, effects: effects.append(Ask(7, "who?", world.clock.now_ns + SECOND_NS))
    world.pump.outside = outside = Outside()
    world.send(connection, b"ask\n")
    world.pump.stop()
    world.turn()
    assert outside.cancelled == 1
    assert gateway.calls[-1] == "ended"


def test_nobody_outside_means_no_answer() -> None:
    world = World()
    _, gateway, connection = world.connect()
    gateway.on_line = lambda _line, effects: effects.append(Ask(7, "who?", world.clock.now_ns + SECOND_NS))
    world.send(connection, b"ask\n")
    assert gateway.calls[-1] == "answered 7 None"


# Timers


def test_timers_are_called_once_at_their_time_and_can_be_moved() -> None:
    world = World()
    _, gateway, _ = world.connect()
    gateway.on["woken"] = lambda effects: effects.extend(
        [SetTimer(TimerName.HEARTBEAT, world.clock.now_ns + 5), SetTimer(TimerName.FLUSH, world.clock.now_ns + 7)]
    )
    gateway.ring()
    world.turn()
    gateway.on["woken"] = lambda effects: effects.extend(
        [SetTimer(TimerName.HEARTBEAT, world.clock.now_ns + 50), SetTimer(TimerName.FLUSH, None)]
    )
    gateway.ring()
    world.turn()
    assert world.pump.due_ns() is not None
    world.pass_time(49)
    assert gateway.calls == ["opened", "woken", "woken"]
    world.pass_time(1)
    world.pass_time(1000)
    assert gateway.calls == ["opened", "woken", "woken", "timer heartbeat"]
    assert world.pump.due_ns() is None


def test_the_due_time_is_the_earliest_of_all() -> None:
    world = World()
    assert world.pump.due_ns() is None
    world.broker.due = 50
    assert world.pump.due_ns() == 50
    world.store.due_ns = 40
    assert world.pump.due_ns() == 40
    _, gateway, _ = world.connect()
    gateway.on["woken"] = lambda effects: effects.append(SetTimer(TimerName.FLUSH, 30))
    gateway.ring()
    assert world.pump.due_ns() == 0
    world.clock.now_ns = 20
    world.pump.end_turn()
    assert world.pump.due_ns() == 30


# Output


def test_publishers_are_not_read_while_the_store_is_congested() -> None:
    world = World()
    _, publishing, publisher = world.connect()
    publishing.on_line = answers = Publisher()
    _, _, other = world.connect()
    world.send(publisher, b"a\n")
    answers.tickets[0].resolve()
    world.store.congested = True
    world.turn()
    assert publisher.watched == (False, False)
    assert other.watched == (True, False)
    world.store.congested = False
    world.turn()
    assert publisher.watched == (True, False)


def test_who_waits_for_a_commit_without_publishing_is_read_on() -> None:
    world = World()
    _, gateway, connection = world.connect()
    gateway.on_line = lambda _line, effects: effects.append(SendAfter(Ticket(), b"OK\n", failure, publishes=False))
    world.send(connection, b"subscribe\n")
    world.store.congested = True
    world.turn()
    assert connection.watched == (True, False)


def test_a_first_publish_under_congestion_stops_input_too() -> None:
    world = World()
    _, gateway, connection = world.connect()
    gateway.on_line = Publisher()
    world.store.congested = True
    world.turn()
    world.send(connection, b"a\n")
    assert connection.watched == (False, False)


# Our own bugs


@pytest.mark.parametrize("where", ["feed", "deliver", "timer", "woken", "ended"])
def test_a_bug_in_a_gateway_costs_one_connection(where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    stream, gateway, connection = world.connect()
    other_stream, other, _ = world.connect()

    def bug(*_: object) -> None:
        raise ZeroDivisionError

    if where == "feed":
        gateway.on_line = bug
        world.send(connection, b"x\n")
    elif where == "deliver":
        monkeypatch.setattr(gateway, "deliver", bug)
        world.deliver(gateway, b"x")
        world.deliver(gateway, b"y")
    elif where == "ended":
        monkeypatch.setattr(gateway, "ended", bug)
        stream.input_ended = True
        world.pump.readable(connection)
        world.turn()
        world.pump.readable(connection)
    else:
        gateway.on["woken"] = bug if where == "woken" else lambda effects: effects.append(SetTimer(TimerName.FLUSH, 0))
        gateway.on["timer flush"] = bug
        gateway.ring()
    world.deliver(other, b"message")
    world.turn()
    assert stream.closed()
    assert other_stream.outgoing == b"message"
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]


# The server's end


def test_stopping_lets_gateways_finish() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = publisher = Publisher()
    gateway.on["stopping"] = lambda effects: effects.append(Send(b"bye\n"))
    idle, _, idling = world.connect()
    world.send(connection, b"a\n")
    world.pump.stop()
    world.turn()
    assert idle.output_ended
    idle.input_ended = True
    world.pump.readable(idling)
    assert len(world.pump.connections) == 1
    publisher.tickets[0].resolve()
    world.turn()
    assert stream.outgoing == b"OK a\nbye\n"
    assert stream.output_ended
    world.pass_time(PumpSettings().linger_timeout_ns)
    assert not world.pump.connections


def test_abandoning_closes_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    stream, gateway, _ = world.connect(Gateway())
    monkeypatch.setattr(gateway, "stopping", lambda _effects: None)
    world.pump.stop()
    world.turn()
    assert not stream.closed()
    world.pump.abandon()
    assert stream.closed()
    assert gateway.calls[-1] == "ended"


def test_an_idle_connection_holds_no_buffer() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = echo
    world.send(connection, b"hello\n")
    assert stream.outgoing == b"hello\n"
    assert not connection.outbox.data
    assert not connection.rest
    assert connection.private is None


def test_nothing_is_said_of_a_turn_that_the_journal_did_not_take() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    other, _, _ = world.connect()
    gateway.on_line = echo
    world.store.unwritten = "the disk is full"
    world.send(connection, b"settle\n")
    assert stream.outgoing == b""
    assert stream.closed()
    assert other.closed()
    assert not world.pump.connections


def test_connections_are_taken_again_once_the_journal_takes_entries() -> None:
    world = World()
    world.store.unwritten = "the disk is full"
    world.pump.end_turn()
    world.store.unwritten = ""
    stream, gateway, connection = world.connect()
    gateway.on_line = echo
    world.send(connection, b"one\n")
    assert stream.outgoing == b"one\n"


def test_what_has_no_connection_is_called_in_time() -> None:
    world = World()
    rung: list[int] = []
    world.pump.call_at(world.clock.now_ns + 10, lambda: rung.append(world.clock.now_ns))
    cancelled = world.pump.call_at(world.clock.now_ns + 10, lambda: rung.append(0))
    cancelled.cancel()
    assert world.pump.due_ns() == world.clock.now_ns + 10
    world.pass_time(9)
    assert rung == []
    world.pass_time(1)
    world.pass_time(100)
    assert len(rung) == 1


def test_who_comes_while_it_stops_is_asked_to_end_at_once() -> None:
    world = World()
    world.pump.stop()
    stream, gateway, _ = world.connect()
    world.turn()
    assert gateway.calls == ["opened", "stopping", "ended"]
    assert stream.output_ended
