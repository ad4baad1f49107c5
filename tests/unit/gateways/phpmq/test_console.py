"""What people say at the maintenance port, and what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.core.access import STRANGER
from polymq.gateways.effects import Effect, Pause, Resume, SendAfter, SetTimer, TimerName
from polymq.gateways.phpmq import console
from polymq.gateways.phpmq.console import ConsoleGateway
from polymq.phpmq_limits import COMMAND_LINE_SIZE_BYTES_MAX, COMMANDS_PER_TURN_MAX
from polymq.protocols.phpmq import frames
from tests.unit.gateways.phpmq.clients import PEER, Client, Console, closed, house_of

if TYPE_CHECKING:
    from tests.unit.core.conftest import World


@pytest.fixture
def filled(single: World) -> World:
    client = Client(single)
    client.send(b"".join(frames.send(name, b"x" * 2000) for name in ("Foo", "Foo", "foobar", "Bar", "Bar", "Bar")))
    client.send(frames.consume("Bar", 2))
    client.turn()
    single.publish("elsewhere", b"y")
    single.turn()
    return single


def test_it_says_who_it_is_and_prompts(single: World) -> None:
    person = Console(single)
    assert Console.text(person.effects).endswith("phpmq > ")
    assert person.say("") == "phpmq > "


def test_help(single: World) -> None:
    person = Console(single)
    every = person.say("help")
    assert all(word in every for word in ("show QUEUE", "search PATTERN", "flush QUEUE", "flushall", "monitor", "clear", "quit"))
    assert person.say("HELP show").startswith("show QUEUE")
    assert "no command 'nonsense'" in person.say("help nonsense")
    assert "no command 'nonsense'" in person.say("nonsense")
    assert "Say show QUEUE." in person.say("show")
    assert "Say flush QUEUE." in person.say("flush")
    assert "\x1b" not in every + person.say("\x1b[31m")


def test_show_lists_messages_and_who_has_them(filled: World) -> None:
    person = Console(filled)
    lines = person.say("show Bar").splitlines()
    assert lines[0] == "Queue Bar: 3 messages, 2 of them out, 1 consumers"
    assert [line.split()[2] for line in lines[2:5]] == ["→", "→", "•"]
    assert all("2.0 KiB" in line and "2023-11-14 22:13:20" in line for line in lines[2:5])
    assert person.say("show nothing").splitlines()[0] == "There is no queue nothing."
    assert person.say("show elsewhere").splitlines()[0] == "There is no queue elsewhere."


def test_show_waits_for_the_disk(filled: World) -> None:
    person = Console(filled)
    log = filled.store.logs[filled.broker.catalogue.topics["", "Foo"].partitions[0].number]
    log.cold = True
    effects = person.send(b"show Foo\r\nhelp\r\n")
    assert [type(effect) for effect in effects] == [Pause, SetTimer]
    assert person.rest == b"help\r\n"
    assert [type(effect) for effect in person.timer(TimerName.RETRY)] == [Pause, SetTimer]
    log.cold = False
    effects = person.timer(TimerName.RETRY)
    assert "Queue Foo: 2 messages" in Console.text(effects)
    assert isinstance(effects[-1], Resume)
    assert "show QUEUE" in Console.text(person.send(b""))


def test_search_knows_the_star_alone(filled: World) -> None:
    person = Console(filled)

    def found(pattern: str) -> list[str]:
        return [line.split()[0] for line in person.say(f"search {pattern}").splitlines()[:-1]]

    assert found("foo*") == ["Foo", "foobar"]
    assert found("*BAR") == ["Bar", "foobar"]
    assert found("*") == ["Bar", "Foo", "foobar"]
    assert found("?oo") == found("[F]oo") == ["No"]


def test_flush_removes_what_is_out_as_well(filled: World) -> None:
    person = Console(filled)
    effects = person.send(b"flush Bar\n")
    (answer,) = effects
    assert isinstance(answer, SendAfter)
    assert answer.data == b"OK\r\nphpmq > "
    assert b"wrong" in answer.failure("why")
    assert "0 messages" in person.say("show Bar")
    assert "2 messages" in person.say("show Foo")
    assert "no queue" in person.say("flush nothing")


def test_flushall_leaves_other_groups_alone(filled: World) -> None:
    filled.session.create_group("Foo", "other")
    filled.publish("Foo", b"new")
    filled.turn()
    person = Console(filled)
    assert person.say("flushall") == "OK\r\nphpmq > "
    assert all("0 messages" in person.say(f"show {name}") for name in ("Foo", "foobar", "Bar"))
    assert next(group for group in filled.view("Foo").groups if group.name == "other").depth == 1
    filled.turn()
    filled.restart()
    assert filled.view("Bar").groups[0].depth == 0


def test_many_queues_take_several_turns(filled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_STEP_QUEUES", 2)
    person = Console(filled)
    assert [type(effect) for effect in person.send(b"search *\n")] == [Pause, SetTimer]
    assert [type(effect) for effect in person.timer(TimerName.RETRY)] == [Pause, SetTimer]
    assert "foobar" in Console.text(person.timer(TimerName.RETRY))


def test_monitor_goes_on_until_something_is_said(filled: World) -> None:
    person = Console(filled)
    text = person.say("monitor")
    assert "up 1:02:05" in text
    assert "64.0 MiB" in text
    assert "queues 3   messages 6   size ~" in text
    assert "out 2   consumers 1" in text
    assert text.index("Bar") < text.index("Foo")
    assert "queues 3" in Console.text(person.timer(TimerName.FLUSH))
    assert person.say("q") == "phpmq > "
    assert person.timer(TimerName.FLUSH) == []


def test_monitor_looks_at_all_queues_some_in_a_turn(filled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_STEP_QUEUES", 3)
    person = Console(filled)
    begun_ns = filled.clock.monotonic_ns()
    (timer,) = person.send(b"monitor\n")
    assert timer == SetTimer(TimerName.FLUSH, begun_ns + console._MONITOR_STEP_NS)
    shown, again = person.timer(TimerName.FLUSH)
    assert "queues 3" in Console.text([shown])
    assert again == SetTimer(TimerName.FLUSH, begun_ns + console._REFRESH_NS)
    # The next round begins anew, and a word ends it in its middle.
    assert [type(effect) for effect in person.timer(TimerName.FLUSH)] == [SetTimer]
    assert person.say("q") == "phpmq > "
    assert person.timer(TimerName.FLUSH) == []
    person.send(b"monitor\n")
    assert "queues 3" in Console.text(person.timer(TimerName.FLUSH))


def test_monitor_counts_clients_and_adds_up_sizes(single: World) -> None:
    house = house_of(single)
    clients = [Client(single, house) for _ in range(3)]
    for client in clients:
        client.gateway.opened([])
    clients[0].send(frames.send("q", b"x" * 1024) * 4)
    clients[0].turn()
    assert "clients 3" in (text := Console(single, house).say("monitor"))
    assert "messages 4   size ~4.0 KiB" in text
    clients[1].gateway.ended()
    assert "clients 2" in Console(single, house).say("monitor")


def test_quit_and_clear(single: World) -> None:
    person = Console(single)
    assert "\x1b[2J" in person.say("clear")
    for word in (b"quit\n", b"exit\n"):
        assert closed(Console(single).send(word + b"help\n"))


def test_telnets_own_words_are_passed_over(single: World) -> None:
    assert "show QUEUE" in Console.text(Console(single).send(b"\xff\xfd\x03\xff\xfb\x18help\r\n"))


def test_a_line_has_an_end(single: World) -> None:
    person = Console(single)
    assert not closed(person.send(b"x" * COMMAND_LINE_SIZE_BYTES_MAX))
    assert closed(person.send(b"x"))


def test_many_commands_take_several_turns(single: World) -> None:
    person = Console(single)
    effects = person.send(b"q\n" * (COMMANDS_PER_TURN_MAX + 3))
    assert Console.text(effects) == "phpmq > " * COMMANDS_PER_TURN_MAX
    assert [type(effect) for effect in effects[-2:]] == [Pause, SetTimer]
    assert [type(effect) for effect in person.timer(TimerName.RETRY)] == [Resume]
    assert Console.text(person.send(b"")) == "phpmq > " * 3


def test_who_may_do_nothing_is_told(filled: World) -> None:
    gateway = ConsoleGateway(filled.broker.session(STRANGER), PEER, house_of(filled), lambda: (0.0, 0))
    effects: list[Effect] = []
    gateway.feed(memoryview(b"flush Foo\nshow Foo\n"), effects)
    assert Console.text(effects).count("There is no queue") == 2
    gateway.ended()
