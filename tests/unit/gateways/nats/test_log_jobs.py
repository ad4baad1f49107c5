"""What is under way at the log's door, turn by turn: bounded, told of what is gone, and ended when it may not be had any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq import limits
from polymq.core.access import Principal
from polymq.core.live_rules import NameRule, PatternRules
from polymq.gateways.nats.logins import UNKNOWN, OpenDoor
from tests.unit.gateways.nats.bridge_world import Accounts, BridgeWorld, Heard, messages_in, offsets
from tests.unit.gateways.nats.harness import QUIET

if TYPE_CHECKING:
    from tests.unit.gateways.nats.harness import Talk


@pytest.fixture
def world() -> BridgeWorld:
    return BridgeWorld()


@pytest.fixture
def talk(world: BridgeWorld) -> Talk:
    return world.listening(b"in.box", b"tail.*")


def test_what_retention_removes_before_it_is_read_is_told(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", *(b"%d" % number for number in range(10)))
    world.turn()
    store_log = world.core.store.logs[0]
    (begun,) = world.ask(talk, b"FOLLOW.t", to="tail.1")
    talk.stream.room = 0
    world.core.publish("t", bytes(limits.LOG_REQUEST_BACKLOG_BYTES_MAX), b"11", b"12")
    world.turn()
    talk.send(b'PUB $POLYMQ.LOG.READ.t in.box 12\r\n{"offset":0}\r\n')
    store_log.start = 12
    talk.stream.room = 1 << 40
    world.pump.writable(talk.connection)
    world.turn()
    found = messages_in(talk.hear())
    assert offsets(found) == [10]
    for gone in found[1:]:
        assert gone.status == b"416 Offset Out Of Range"
        assert (gone.fields["start"], gone.fields["readable"]) == (12, 13)
    assert sorted(each.subject for each in found[1:]) == [b"in.box", b"tail.1"]
    (again,) = world.ask(talk, b"CANCEL", follow=begun.fields["follow"])
    assert again.status == b"400 Bad Request", "it has ended"
    # What was there when it was read is no gap.
    *found, end = world.ask(talk, b"READ.t", offset=12)
    assert (offsets(found), end.fields) == ([12], {"next": 13, "readable": 13})


def test_few_names_are_looked_at_in_a_turn(world: BridgeWorld, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        world.core.session.create_topic(f"{number:04}")
    world.turn()
    monkeypatch.setattr(limits, "LOG_REQUEST_SIZE_BYTES_PER_TURN", 3200)
    talk.stream.incoming.append(b"PUB $POLYMQ.LOG.TOPICS in.box 0\r\n\r\n" * 3)
    world.pump.readable(talk.connection)
    turns = 0
    pages: list[Heard] = []
    while len(pages) < 3:
        world.pump.end_turn()
        due_ns = world.pump.due_ns()
        turns += 1
        pages += messages_in(talk.hear())
        assert len(pages) == 3 or due_ns == world.clock.now_ns, "there is more to do at once"
    assert all(page.fields == {"topics": [f"{number:04}" for number in range(1000)], "more": False} for page in pages)
    assert turns >= 15, "a hundred each time that something is handed out, which is twice in a turn"


def test_lists_of_topics_under_way_are_bounded(world: BridgeWorld, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_REQUESTS_PER_SESSION_MAX", 2)
    world.core.publish("t", b"a")
    world.turn()
    found = messages_in(talk.say(b"PUB $POLYMQ.LOG.TOPICS in.box 0\r\n\r\n" * 3))
    assert sorted(each.status for each in found) == [b"", b"", b"429 Too Many Requests"]


class Changing(OpenDoor):
    """Lets in by the name that a client gives: as a principal of that name that may hear what is written here for it now."""

    nobody: Principal | None = None

    def __init__(self, **heard: tuple[bytes, ...]) -> None:
        self.heard = heard
        self.made: dict[tuple[str, tuple[bytes, ...]], Principal] = {}

    def begin(self, connect: Any, *_: object) -> Any:
        names = self.heard.get(connect.name)
        if names is None:
            return UNKNOWN
        live = PatternRules(publish_deny=[NameRule(b"tail.>")] if b"!" in names else (), listen_allow=[NameRule(name) for name in names])
        return self.made.setdefault((connect.name, names), Principal(connect.name, live=live))


def as_user(name: bytes) -> bytes:
    return QUIET.replace(b"{", b'{"name":"%b",' % name, 1)


def changing(**heard: tuple[bytes, ...]) -> tuple[BridgeWorld, Changing, Talk]:
    """A world with a topic, and somebody who hears all."""
    logins = Changing(all=(b">",), **heard)
    world = BridgeWorld(logins=logins)
    world.core.publish("t", b"0")
    world.turn()
    other = world.connect(as_user(b"all"))
    other.say(b"SUB tail.> 1\r\n")
    return world, logins, other


def reload(world: BridgeWorld) -> None:
    for client in list(world.house.clients.values()):
        client.reconsider()
    world.turn()


def grow(world: BridgeWorld, *talks: Talk) -> list[list[Heard]]:
    """Have one more message in the topic; what each hears."""
    world.core.publish("t", b"more")
    world.turn()
    return [messages_in(talk.hear()) for talk in talks]


def test_who_may_not_read_any_more_follows_no_more() -> None:
    world, logins, other = changing(reader=(b"t", b"in.box"))
    reader = world.connect(as_user(b"reader"))
    reader.say(b"SUB in.box 1\r\n")
    world.ask(reader, b"FOLLOW.t")
    world.ask(reader, b"FOLLOW.t", to="tail.1")
    mine, theirs = grow(world, reader, other)
    assert (offsets(mine), offsets(theirs)) == ([1], [1])
    logins.heard["reader"] = (b"t", b"in.box", b"something.else")
    reload(world)
    mine, theirs = grow(world, reader, other)
    assert (offsets(mine), offsets(theirs)) == ([2], [2]), "he still may"
    logins.heard["reader"] = (b"in.box",)
    reload(world)
    assert reader.hear() == b"", "the subscription stays"
    mine, theirs = grow(world, reader, other)
    assert [each.status for each in mine + theirs] == [b"403 Forbidden"] * 2
    assert grow(world, reader, other) == [[], []]


def test_what_is_under_way_ends_when_it_may_not_be_read_any_more() -> None:
    world, logins, _ = changing(reader=(b"t", b"in.box"))
    world.core.publish("t", *(bytes(1000) for _ in range(3000)))
    world.turn()
    reader = world.connect(as_user(b"reader"))
    reader.say(b"SUB in.box 1\r\n")
    reader.stream.room = 0
    reader.send(b'PUB $POLYMQ.LOG.READ.t in.box 14\r\n{"count":3000}\r\n')
    logins.heard["reader"] = (b"in.box",)
    reload(world)
    reader.stream.room = 1 << 40
    world.pump.writable(reader.connection)
    world.turn()
    found = messages_in(reader.hear())
    assert found[-1].status == b"403 Forbidden"
    assert len(found) < 2000


def test_who_may_not_publish_there_any_more_has_nothing_sent_there() -> None:
    world, logins, other = changing(reader=(b"t", b"in.box"))
    reader = world.connect(as_user(b"reader"))
    reader.say(b"SUB in.box 1\r\n")
    world.ask(reader, b"FOLLOW.t", to="tail.1")
    logins.heard["reader"] = (b"t", b"in.box", b"!")
    reload(world)
    assert grow(world, reader, other) == [[], []]


def test_what_somebody_follows_ends_with_his_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_REQUESTS_MAX", 1)
    world, logins, other = changing(reader=(b"t", b"in.box"), gone=(b"t", b"in.box"))
    reader, gone = world.connect(as_user(b"reader")), world.connect(as_user(b"gone"))
    gone.say(b"SUB in.box 1\r\n")
    reader.say(b"SUB in.box 1\r\n")
    (begun,) = world.ask(gone, b"FOLLOW.t", to="tail.1")
    assert "follow" in begun.fields
    reader.hear()
    del logins.heard["gone"]
    reload(world)
    assert gone.closed
    (begun,) = world.ask(reader, b"FOLLOW.t", to="tail.2")
    assert "follow" in begun.fields, "what nobody asks for any more makes room"
    (mine,) = grow(world, other)
    assert [each.subject for each in mine] == [b"tail.2"]
    reader.hang_up()
    assert grow(world, other) == [[]]


def test_who_becomes_somebody_else_follows_what_that_one_may() -> None:
    world, _, _ = changing(reader=(b"t", b"in.box"), lesser=(b"in.box",), other=(b"t", b"in.box"))
    reader = world.connect(as_user(b"reader"))
    reader.say(b"SUB in.box 1\r\n")
    world.ask(reader, b"FOLLOW.t")
    reader.say(as_user(b"other") + b"SUB in.box 1\r\n")
    (mine,) = grow(world, reader)
    assert offsets(mine) == [1]
    reader.say(as_user(b"lesser") + b"SUB in.box 1\r\n")
    (mine,) = grow(world, reader)
    assert [each.status for each in mine] == [b"403 Forbidden"]


def test_who_changes_the_account_follows_nothing_of_the_one_before() -> None:
    world = BridgeWorld(logins=Accounts())
    talk, other = world.connect(QUIET.replace(b"{", b'{"name":"A",', 1)), world.connect(QUIET.replace(b"{", b'{"name":"A",', 1))
    other.say(b"SUB tail.1 1\r\nSUB in.box 2\r\n", b"PUB c.x 1\r\n0\r\n")
    (begun,) = messages_in(talk.say(b"SUB in.box 1\r\n", b'PUB $POLYMQ.LOG.FOLLOW.c.x in.box 15\r\n{"to":"tail.1"}\r\n'))
    assert "follow" in begun.fields
    talk.say(QUIET.replace(b"{", b'{"name":"B",', 1))
    other.hear()
    assert messages_in(other.say(b"PUB c.x 1\r\n1\r\n")) == []
