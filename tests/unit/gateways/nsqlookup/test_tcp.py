"""What the golden script does not reach: limits and silence."""

from __future__ import annotations

from polymq.gateways.contract import Peer
from polymq.gateways.effects import TimerName
from polymq.gateways.nsqlookup.tcp import LookupGateway
from polymq.limits import LOOKUP_COMMANDS_PER_TURN_MAX, LOOKUP_SILENCE_NS_MAX
from tests.unit.gateways.nsqlookup.golden_script import identify, node
from tests.unit.gateways.nsqlookup.memory import DIRECTORY, Link, MemoryDirectory


def test_a_full_directory_refuses_and_hangs_up() -> None:
    directory = MemoryDirectory(registrations_max=2)
    directory.connect("a")
    answers = directory.send("a", b"  V1" + identify(node(1)) + b"REGISTER t\nREGISTER u\nPING\n")
    assert answers[1:] == [b"OK", b"E_INVALID REGISTER limit of 2 registrations reached", None]
    assert directory.registry.nodes() == []


def test_a_refusal_in_the_middle_of_much_is_the_end() -> None:
    directory = MemoryDirectory(registrations_max=2)
    directory.connect("a")
    registering = b"".join(b"REGISTER t%d\n" % number for number in range(2 * LOOKUP_COMMANDS_PER_TURN_MAX))
    answers = directory.send("a", b"  V1" + identify(node(1)) + registering)
    assert answers[2:] == [b"E_INVALID REGISTER limit of 2 registrations reached", None]


def test_somebody_who_is_silent_for_too_long_is_hung_up_on() -> None:
    directory = MemoryDirectory()
    directory.connect("a")
    link = directory.links["a"]
    directory.send("a", b"  V1" + identify(node(1)))
    directory.clock.now_ns += LOOKUP_SILENCE_NS_MAX - 1
    directory.send("a", b"PING\n")
    first_ns = link.timers[TimerName.READ_DEADLINE]
    directory.clock.now_ns += 1
    link.timer(TimerName.READ_DEADLINE)
    assert not link.closed
    due_ns = link.timers[TimerName.READ_DEADLINE]
    assert first_ns is not None
    assert due_ns is not None
    assert due_ns == first_ns + LOOKUP_SILENCE_NS_MAX - 1
    directory.clock.now_ns = due_ns
    link.timer(TimerName.READ_DEADLINE)
    assert link.closed
    assert link.reason == "no command for a long time"
    assert directory.registry._nodes == {}


def test_an_ipv6_address_is_written_in_brackets() -> None:
    directory = MemoryDirectory()
    link = Link(LookupGateway(directory.registry, DIRECTORY, Peer("::1", 5), directory.clock.monotonic_ns))
    link.send(b"  V1" + identify(node(1)))
    assert [each.remote_address for each in directory.registry.nodes()] == ["[::1]:5"]


def test_a_node_with_much_to_say_does_not_hold_the_others_up() -> None:
    directory = MemoryDirectory()
    directory.connect("a")
    count = 2 * LOOKUP_COMMANDS_PER_TURN_MAX + 7
    assert directory.send("a", b"  V1" + b"PING\n" * count) == [b"OK"] * count
    assert directory.links["a"].turns == 2
    directory.close("a")


def test_what_is_too_much_for_a_turn_ends_with_the_connection() -> None:
    directory = MemoryDirectory()
    directory.connect("a")
    count = LOOKUP_COMMANDS_PER_TURN_MAX
    answers = directory.send("a", b"  V1" + b"PING\n" * count + b"nonsense\nPING\n")
    assert answers[count:] == [b"E_INVALID invalid command nonsense", None]


def test_the_answers_of_one_read_go_out_together() -> None:
    directory = MemoryDirectory()
    directory.connect("a")
    assert directory.send("a", b"  V1" + b"PING\n" * 3) == [b"OK"] * 3
    directory.close("a")
