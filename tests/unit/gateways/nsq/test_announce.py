"""A node and a directory back to back, and directories that do not behave."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

from polymq.core.access import Principal
from polymq.core.group import GroupKind
from polymq.gateways.effects import Close, Send, SetTimer, TimerName
from polymq.gateways.nsq.announce import AnnouncingGateway
from polymq.limits import LOOKUP_COMMANDS_UNANSWERED_MAX
from polymq.protocols.nsqlookup.encode import OK, response
from polymq.protocols.nsqlookup.frames import PING
from polymq.protocols.nsqlookup.identify import Identity, write_identity
from tests.unit.core.conftest import World
from tests.unit.gateways.nsqlookup.memory import SECOND_NS, MemoryDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.effects import Effect

NODE = Identity("node", "vm", http_port=4151, tcp_port=4150)
HELLO = response(write_identity(Identity("directory", "vm", http_port=4161, tcp_port=4160)))


class Keeper:
    def __init__(self) -> None:
        self.said: list[str] = []

    def settle(self) -> None:
        self.said.append("settled")

    def lost(self, reason: str) -> None:
        self.said.append(reason)


class Story:
    """A broker that announces itself; what it sends is in `sent`, and what it hears is the test's."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World(1)
        self.keeper = Keeper()
        self.gateway = AnnouncingGateway(self.world.broker, NODE, self.keeper, self.world.clock.monotonic_ns)
        self.gateway.ring = self._ring
        self.sent = b""
        self.timers: dict[TimerName, int | None] = {}
        self.closed: str | None = None
        self._rung = False
        self._rest = b""
        self._call(self.gateway.opened)

    def hear(self, *data: bytes) -> None:
        self._rest += b"".join(data)
        while self.closed is None and len(self._rest) >= self.gateway.need:
            effects: list[Effect] = []
            consumed = self.gateway.feed(memoryview(self._rest), effects)
            self._rest = self._rest[consumed:]
            self._apply(effects)
            if not consumed:
                return

    def turn(self) -> None:
        """What the pump does at the end of a turn."""
        if self._rung and self.closed is None:
            self._rung = False
            self._call(self.gateway.woken)

    def wait(self, seconds: float) -> None:
        end_ns = self.world.clock.now_ns + int(seconds * SECOND_NS)
        while self.closed is None:
            due = [(due_ns, name.value) for name, due_ns in self.timers.items() if due_ns is not None and due_ns <= end_ns]
            if not due:
                break
            due_ns, value = min(due)
            self.world.clock.now_ns = due_ns
            name = TimerName(value)
            self.timers[name] = None
            self._call(partial(self.gateway.timer, name))
        self.world.clock.now_ns = end_ns

    def taken(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent

    def call(self, function: Callable[[list[Effect]], None]) -> None:
        self._call(function)

    def _ring(self) -> None:
        self._rung = True

    def _call(self, function: Callable[[list[Effect]], None]) -> None:
        effects: list[Effect] = []
        function(effects)
        self._apply(effects)

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert self.closed is None, f"{effect} after the end"
            if isinstance(effect, Send):
                self.sent += effect.data
            elif isinstance(effect, Close):
                self.closed = effect.reason
                self.gateway.ended()
            else:
                assert isinstance(effect, SetTimer)
                self.timers[effect.name] = effect.due_ns


def announced(world: World | None = None) -> Story:
    story = Story(world)
    story.hear(HELLO)
    story.turn()
    if story.sent.endswith(PING):
        story.hear(OK)
    return story


def registered(count: int) -> World:
    world = World(1)
    for number in range(count):
        world.session.create_topic(f"t{number}")
    return world


def test_the_directory_ends_up_with_everything() -> None:
    directory = MemoryDirectory()
    directory.connect("node")
    world = World(1)
    world.session.create_topic("t")
    world.session.create_group("t", "c")
    story = Story(world)

    def exchange() -> None:
        story.turn()
        while sent := story.taken():
            for answer in directory.send("node", sent):
                assert answer is not None
                story.hear(response(answer))
            story.turn()

    exchange()
    world.session.create_topic("u")
    world.session.create_group("u", "d")
    world.session.create_group("u", "e#ephemeral", ephemeral=True)
    exchange()
    assert directory.registry.topics() == ["t", "u"]
    assert directory.registry.channels("t") == ["c"]
    assert directory.registry.channels("u") == ["d", "e#ephemeral"]
    [node] = directory.registry.nodes()
    assert node.identity == NODE
    world.session.delete_group("u", "e#ephemeral")
    world.session.delete_topic("t")
    exchange()
    assert directory.registry.channels("u") == ["d"]
    assert directory.registry.lookup("t") == []
    assert list(node.topics) == ["u"]
    assert list(node.channels) == [("u", "d")]


def test_the_bytes_are_nsqds() -> None:
    world = World(1)
    world.session.create_topic("t")
    world.session.create_group("t", "c")
    story = Story(world)
    body = b'{"broadcast_address":"node","hostname":"vm","http_port":4151,"tcp_port":4150,"version":"1.3.0"}'
    assert story.taken() == b"  V1IDENTIFY\n" + len(body).to_bytes(4, "big") + body
    assert story.keeper.said == []
    story.hear(HELLO)
    assert story.taken() == b"REGISTER t c\n"
    assert story.gateway.directory == Identity("directory", "vm", http_port=4161, tcp_port=4160)
    story.hear(OK)
    world.session.create_topic("u")
    world.session.create_group("u", "d")
    story.turn()
    assert story.taken() == b"REGISTER u\nREGISTER u d\n"
    story.hear(OK, OK)
    world.session.delete_group("t", "c")
    world.session.delete_topic("t")
    story.turn()
    assert story.taken() == b"UNREGISTER t c\nUNREGISTER t\n"


def test_a_topic_is_named_alone_only_if_it_has_no_channel() -> None:
    world = World(1)
    for topic in ("none", "one", "two", "cursors"):
        world.session.create_topic(topic)
    for topic, channel in (("one", "a"), ("two", "b"), ("two", "c")):
        world.session.create_group(topic, channel)
    world.session.create_group("cursors", "spark", kind=GroupKind.CURSOR)
    story = Story(world)
    story.taken()
    story.hear(HELLO)
    assert story.taken() == b"REGISTER none\nREGISTER one a\nREGISTER two b\nREGISTER two c\nREGISTER cursors\n"


def test_it_has_accepted_us_when_it_has_accepted_everything() -> None:
    story = Story(registered(LOOKUP_COMMANDS_UNANSWERED_MAX + 2))
    story.hear(HELLO)
    story.world.session.create_topic("more")
    story.turn()
    story.hear(OK * LOOKUP_COMMANDS_UNANSWERED_MAX)
    story.hear(OK)
    assert story.keeper.said == []
    story.hear(OK)
    assert story.keeper.said == ["settled"]
    story.hear(OK)
    story.wait(15)
    story.hear(OK)
    assert story.keeper.said == ["settled"]


def test_it_has_accepted_us_with_a_ping_if_there_is_nothing_else() -> None:
    story = Story()
    story.taken()
    story.hear(HELLO)
    assert story.taken() == PING
    assert story.keeper.said == []
    story.hear(OK)
    assert story.keeper.said == ["settled"]


def test_nothing_is_told_before_the_directory_has_said_who_it_is() -> None:
    story = Story()
    story.taken()
    story.world.session.create_topic("t")
    story.turn()
    assert story.taken() == b""
    story.hear(HELLO)
    story.turn()
    assert story.taken() == b"REGISTER t\n"


def test_what_nsq_cannot_spell_is_not_told() -> None:
    world = World(1)
    world.session.create_topic("a/b")
    world.session.create_topic("t")
    world.session.create_group("t", "ü")
    world.session.create_group("t", "cursor", kind=GroupKind.CURSOR)
    world.broker.session(Principal("somebody", "elsewhere")).create_topic("other")
    story = Story(world)
    story.taken()
    story.hear(HELLO)
    world.session.delete_group("t", "cursor")
    story.turn()
    assert story.taken() == b"REGISTER t\n"


def test_a_ping_every_fifteen_seconds() -> None:
    story = announced()
    story.taken()
    for _ in range(3):
        story.wait(14.9)
        assert story.taken() == b""
        story.wait(0.1)
        assert story.taken() == b"PING\n"
        story.hear(OK)
    assert story.closed is None


def test_only_so_many_commands_are_unanswered() -> None:
    most = LOOKUP_COMMANDS_UNANSWERED_MAX
    story = announced(registered(most + 5))
    assert story.taken().count(b"REGISTER ") == most
    story.world.session.create_topic("more")
    story.turn()
    assert story.taken() == b""
    story.hear(OK * 4)
    assert story.taken().count(b"REGISTER ") == 4
    story.hear(OK * most)
    assert story.taken().split(b"\n") == [b"REGISTER t%d" % (most + 4), b"REGISTER more", b""]


def test_answers_that_keep_coming_may_take_their_time() -> None:
    story = announced(registered(3))
    for _ in range(3):
        story.wait(4.9)
        story.hear(OK)
    assert story.closed is None


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_a_directory_that_hangs_is_left(answers: int) -> None:
    story = Story(registered(5))
    for answer in (HELLO, OK, OK)[:answers]:
        story.hear(answer)
    story.wait(4.9)
    assert story.closed is None
    story.wait(0.2)
    assert story.closed == "no answer within 5 s"
    assert story.keeper.said[-1] == "no answer within 5 s"


def test_answers_may_not_come_before_their_commands() -> None:
    story = Story(registered(1))
    story.hear(HELLO, OK)
    assert story.closed == "it answers without having been asked: 'OK'"


def test_a_directory_that_no_longer_answers_to_ping_is_left() -> None:
    story = announced()
    story.wait(15 + 5)
    assert story.closed == "no answer within 5 s"


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "it sends what is no answer of nsqlookupd's"),
        ([b"\xff\xff\xff\xff"], "it sends what is no answer of nsqlookupd's"),
        ([response(b"E_BAD_BODY IDENTIFY x")], "it does not say who it is: 'E_BAD_BODY IDENTIFY x'"),
        ([response(b"OK")], "it does not say who it is: 'OK'"),
        ([response(b"\xff" * 100)], "it does not say who it is: '" + 80 * "\ufffd" + "'"),
        ([HELLO, OK, OK], "it answers without having been asked: 'OK'"),
        ([HELLO, response(b"E_INVALID x")], "it refuses a command: 'E_INVALID x'"),
        ([HELLO, response(b"")], "it refuses a command: ''"),
    ],
)
def test_a_directory_that_answers_nonsense_is_left(answers: list[bytes], reason: str) -> None:
    story = Story(registered(1))
    for answer in answers:
        story.hear(answer)
    assert story.closed == reason
    assert story.keeper.said[-1] == reason


def test_nobody_follows_for_a_connection_that_is_gone() -> None:
    story = announced()
    story.gateway.ended()
    assert story.world.broker.catalogue.followers._listeners == {}
    story.world.session.create_topic("t")
    story.turn()
    assert b"REGISTER" not in story.taken()
    assert story.gateway.directory is None
    assert story.keeper.said == ["settled", "it has closed the connection"]


def test_nobody_calls_again_when_it_was_our_wish() -> None:
    removed, stopped = announced(), announced()
    removed.gateway.leave()
    removed.turn()
    stopped.call(stopped.gateway.stopping)
    for story in (removed, stopped):
        assert story.closed is not None
        assert story.keeper.said == ["settled"]


def test_what_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        story = announced(registered(2))
        story.hear(OK)
        assert caplog.records == []
        story.hear(OK)
    assert [record.getMessage() for record in caplog.records] == ["announced to nsqlookupd directory:4160"]
