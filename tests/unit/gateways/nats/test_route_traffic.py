"""What crosses a route, in the lines of real servers; and much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.core.live import Stored
from polymq.gateways.effects import SendAfterEach
from polymq.gateways.nats import route as route_module
from polymq.gateways.nats.route_rules import RouteRules
from polymq.protocols.nats.info import Permissions
from polymq.protocols.nats.settings import NatsSettings
from tests.unit.gateways.nats.route_world import World, connect_line, info_line
from tests.unit.server.fakes import Ticket

if TYPE_CHECKING:
    from polymq.core.interest.targets import Target
    from polymq.wire.live import LiveBatch

JOINED = (connect_line(), info_line())


@pytest.fixture
def world() -> World:
    return World()


# -- interest and messages: the lines of real servers ---------------------------------------------------------------


def test_what_is_wanted_here_is_told_when_it_begins_and_ends(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    one, other = server.listener(), server.listener()
    entries = [one.listen(b"foo"), other.listen(b"foo")]
    assert stranger.heard() == b"RS+ $G foo\r\n"
    server.live.leave(entries[0])
    assert stranger.heard() == b""
    server.live.leave(entries[1])
    assert stranger.heard() == b"RS- $G foo\r\n"


def test_of_a_queue_group_each_change_is_told(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    listener = server.listener()
    first = [listener.listen(b"foo", b"q1") for _ in range(3)]
    second = listener.listen(b"foo", b"q2")
    assert stranger.heard() == b"RS+ $G foo q1 1\r\nRS+ $G foo q1 2\r\nRS+ $G foo q1 3\r\nRS+ $G foo q2 1\r\n"
    for entry in (*first, second):
        server.live.leave(entry)
    assert stranger.heard() == b"RS+ $G foo q1 2\r\nRS+ $G foo q1 1\r\nRS- $G foo q1\r\nRS- $G foo q2\r\n"


def test_messages_go_out_as_a_real_server_writes_them(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    stranger.send(b"RS+ $G foo\r\n")
    server.publish(b"foo", b"hello")
    server.publish(b"foo", b"hello2", reply=b"my.reply")
    headers = b"NATS/1.0\r\nK: v\r\n\r\n"
    server.publish(b"foo", headers + b"body", header_size=18)
    server.publish(b"foo", headers + b"body", header_size=18, reply=b"my.reply")
    assert stranger.heard() == (
        b"RMSG $G foo 5\r\nhello\r\nRMSG $G foo my.reply 6\r\nhello2\r\n"
        b"HMSG $G foo 18 22\r\n" + headers + b"body\r\nHMSG $G foo my.reply 18 22\r\n" + headers + b"body\r\n"
    )
    stranger.send(b"RS+ $G foo q1 3\r\nRS+ $G foo q2 1\r\n")
    server.publish(b"foo", b"q-no-reply")
    server.publish(b"foo", b"q-reply", reply=b"rr")
    server.publish(b"foo", headers + b"body..."[:7], header_size=18, reply=b"rr")
    assert stranger.heard() == (
        b"RMSG $G foo | q1 q2 10\r\nq-no-reply\r\nRMSG $G foo + rr q1 q2 7\r\nq-reply\r\n"
        b"HMSG $G foo + rr q1 q2 18 25\r\n" + headers + b"body...\r\n"
    )


def test_an_automatic_unsubscribe_is_told_when_it_happens(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    listener = server.listener()
    listener.listen(b"au", limit=2)
    for number in range(4):
        stranger.send(b"RMSG $G au 1\r\n%d\r\n" % number)
    assert listener.bodies() == [b"0", b"1"]
    assert stranger.heard() == b"RS+ $G au\r\nRS- $G au\r\n"


def test_the_inbox_is_told_before_the_request(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    stranger.send(b"RS+ $G svc\r\n")
    asking = server.listener()
    asking.listen(b"_INBOX.x.*")
    server.publish(b"svc", b"ping", reply=b"_INBOX.x.1")
    assert stranger.heard() == b"RS+ $G _INBOX.x.*\r\nRMSG $G svc _INBOX.x.1 4\r\nping\r\n"
    stranger.send(b"RMSG $G _INBOX.x.1 4\r\npong\r\n")
    assert asking.bodies() == [b"pong"]


def test_a_message_goes_out_once_whatever_matches(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    stranger.send(b"RS+ $G foo\r\nRS+ $G foo\r\nRS+ $G *\r\nRS+ $G >\r\n")
    server.publish(b"foo", b"1")
    assert stranger.heard() == b"RMSG $G foo 1\r\n1\r\n"
    stranger.send(b"RS- $G foo\r\nRS- $G *\r\nRS- $G >\r\n")
    assert server.publish(b"foo", b"2") == 1
    assert stranger.heard() == b""


def test_interest_of_leaf_nodes_counts_as_any_other(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    stranger.send(b"LS+ leaf $G foo\r\nLS+ leaf $G foo q 1\r\n")
    assert server.cluster.routes["NX"].subscription_count == 2
    stranger.send(b"LS-  $G foo\r\nLS- $G foo q\r\n")
    assert server.cluster.routes["NX"].subscription_count == 0


def test_who_has_no_headers_gets_the_body(world: World) -> None:
    server = world.server()
    stranger = world.joined(server, headers=False)
    stranger.send(b"RS+ $G foo\r\n")
    server.publish(b"foo", b"NATS/1.0\r\n\r\nbody", header_size=12)
    assert stranger.heard() == b"RMSG $G foo 4\r\nbody\r\n"


def test_what_comes_in_goes_to_plain_listeners_and_the_groups_that_are_named(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    plain, first, second = server.listener(), server.listener(), server.listener()
    plain.listen(b"foo")
    first.listen(b"foo", b"q1")
    second.listen(b"*", b"q2")
    stranger.send(
        b"RMSG $G foo 1\r\n1\r\n", b"RMSG $G foo | q1 1\r\n2\r\n", b"RMSG $G foo + r q1 q2 1\r\n3\r\n", b"HMSG $G foo | q2 0 1\r\n4\r\n"
    )
    assert plain.bodies() == [b"1", b"2", b"3", b"4"]
    assert first.bodies() == [b"2", b"3"]
    assert second.bodies() == [b"3", b"4"]
    assert [message.reply for message in plain.got] == [b"", b"", b"r", b""]


def test_what_comes_in_goes_one_step_far(world: World) -> None:
    server = world.server()
    one, other = world.joined(server, "X"), world.joined(server, "Y")
    one.send(b"RS+ $G foo\r\n")
    other.send(b"RS+ $G foo\r\nRS+ $G foo q 1\r\n")
    one.send(b"RMSG $G foo 1\r\n1\r\n")
    assert one.heard() == b""
    assert other.heard() == b""


def test_a_group_without_a_member_here_is_served_elsewhere(world: World) -> None:
    server = world.server()
    one, other = world.joined(server, "X"), world.joined(server, "Y")
    listener = server.listener()
    entry = listener.listen(b"foo", b"q1")
    other.send(b"RS+ $G foo q1 1\r\n")
    one.heard(), other.heard()
    server.live.leave(entry)
    one.send(b"RMSG $G foo + r q1 1\r\n1\r\n")
    assert other.heard() == b"RS- $G foo q1\r\nRMSG $G foo + r q1 1\r\n1\r\n"
    other.send(b"RS- $G foo q1\r\n", b"RMSG $G foo | q1 1\r\n2\r\n")
    assert other.heard() == b""
    # Only the sender has one itself, which may have come since.
    one.heard()
    one.send(b"RS+ $G foo q1 1\r\n", b"RMSG $G foo | q1 1\r\n3\r\n")
    assert one.heard() == b"RMSG $G foo | q1 1\r\n3\r\n"


def test_accounts_are_apart(world: World) -> None:
    server = world.server(accounts=["A1", "A2"])
    stranger = world.joined(server)
    listeners = {account: server.listener() for account in ("", "A1", "A2", "SECRET")}
    for account, listener in listeners.items():
        listener.listen(b"foo", account=account)
    assert stranger.heard() == b"RS+ $G foo\r\nRS+ A1 foo\r\nRS+ A2 foo\r\n"
    stranger.send(b"RMSG A1 foo 1\r\n1\r\nRMSG $G foo 1\r\n2\r\nRMSG SECRET foo 1\r\n3\r\nRMSG $SYS foo 1\r\n4\r\nRMSG A1 foo 1\r\n5\r\n")
    assert {account: listener.bodies() for account, listener in listeners.items()} == {
        "": [b"2"],
        "A1": [b"1", b"5"],
        "A2": [],
        "SECRET": [],
    }
    stranger.send(b"RS+ A2 bar\r\n")
    assert server.publish(b"bar", b"6") == 1
    assert server.publish(b"bar", b"6", account="A2") == 0
    assert stranger.heard() == b"RMSG A2 bar 1\r\n6\r\n"


def test_import_and_export_are_what_may_cross(world: World) -> None:
    rules = RouteRules(Permissions(allow=("in.>",), deny=("in.secret",)), Permissions(allow=("out.>",), deny=("out.secret",)))
    server = world.server(rules=rules)
    listener = server.listener()
    for pattern in (b"in.a", b"out.a", b"in.secret", b"in.*", b">"):
        listener.listen(pattern)
    stranger = world.stranger(server)
    (line,) = stranger.infos()
    assert b'"import":{"allow":["in.>"],"deny":["in.secret"]},"export":{"allow":["out.>"],"deny":["out.secret"]}' in line
    stranger.send(*JOINED)
    assert stranger.heard() == b"RS+ $G in.a\r\nRS+ $G in.*\r\n"
    stranger.send(*[b"RMSG $G %b 1\r\n1\r\n" % name for name in (b"in.a", b"in.secret", b"out.a", b"in.b")])
    assert {message.subject for message in listener.got} == {b"in.a", b"in.b"}
    stranger.send(b"RS+ $G out.>\r\nRS+ $G in.a\r\nRS+ $G >\r\nRS+ $G out.secret\r\n")
    assert server.cluster.routes["NX"].subscription_count == 1
    for name in (b"out.a", b"out.secret", b"in.a"):
        server.publish(name, b"1")
    assert stranger.heard() == b"RMSG $G out.a 1\r\n1\r\n"


@pytest.mark.parametrize("ours", [True, False])
def test_servers_of_ours_are_told_what_is_stored(world: World, ours: bool) -> None:
    server = world.server()
    stranger = world.joined(server, polymq=ours)
    stranger.send(b"RS+ $G foo\r\n")
    server.publish(b"foo", b"2", kept=True)
    server.publish(b"foo", b"3")
    told = b"RMSG $G foo | _sys_ 1\r\n2\r\n" if ours else b"RMSG $G foo 1\r\n2\r\n"
    assert stranger.heard() == told + b"RMSG $G foo 1\r\n3\r\n"


@pytest.mark.parametrize("ours", [True, False])
def test_servers_of_ours_are_believed_what_is_stored(world: World, ours: bool) -> None:
    server = world.server()
    stranger = world.joined(server, polymq=ours)
    listener = server.listener()
    listener.listen(b"foo")
    stranger.send(b"RMSG $G foo | _sys_ 1\r\n1\r\nRMSG $G foo + r q _sys_ 1\r\n2\r\nRMSG $G foo 1\r\n3\r\n")
    assert listener.bodies() == [b"1", b"2", b"3"]
    assert listener.kept == [ours, ours, False]


def test_messages_that_name_no_groups_are_not_looked_through_for_marks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(route_module, "hear_marks", lambda batch: looked.append(batch.count))
    stranger = world.joined(world.server(), polymq=True)
    stranger.send(b"RMSG $G foo 1\r\n1\r\nRMSG $G foo r 1\r\n2\r\n")
    stranger.send(b"RMSG $G foo 1\r\n1\r\nRMSG $G foo | q 1\r\n2\r\n")
    stranger.send(b"RMSG $G foo 1\r\n1\r\n")
    assert looked == [2]


def test_a_route_waits_for_the_disk(world: World) -> None:
    server = world.server()
    stranger = world.joined(server)
    listener = server.listener()
    listener.listen(b"foo")
    ticket = Ticket()
    publish = server.deliver

    def deliver(batch: LiveBatch, targets: list[Target], *, more: bool) -> None:
        publish(batch, targets, more=more)
        server.live.note_stored(Stored([ticket]))

    server.live.courier.deliver = deliver  # type: ignore[method-assign]  # an archive stores just before
    stranger.send(b"RMSG $G foo 1\r\n1\r\nRMSG $G foo 1\r\n2\r\n")
    (effect,) = [effect for effect in stranger.end.effects if isinstance(effect, SendAfterEach)]
    assert (effect.tickets, effect.sizes, effect.data, effect.failure("disk full")) == ([ticket], [0], b"", b"")
    assert server.live.stored is None


def test_a_message_that_is_too_large_is_left_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    server = world.server(settings=NatsSettings(routed_payload_size_bytes_max=4))
    stranger = world.joined(server)
    listener = server.listener()
    listener.listen(b"foo")
    caplog.clear()
    stranger.send(b"RMSG $G foo 5\r\nhello\r\nRMSG $G foo 5\r\nhello\r\nRMSG $G foo 4\r\nhell\r\n")
    assert listener.bodies() == [b"hell"]
    assert server.cluster.routes["NX"].left_out_count == 2
    assert len(caplog.records) == 1


def test_input_may_come_in_any_pieces(world: World) -> None:
    server = world.server()
    listener = server.listener()
    listener.listen(b"foo")
    stranger = world.stranger(server)
    for byte in b"".join(JOINED) + b"RS+ $G bar\r\nRMSG $G foo 5\r\nhello\r\nPING\r\n":
        stranger.send(bytes((byte,)))
    assert listener.bodies() == [b"hello"]
    assert stranger.heard() == b"RS+ $G foo\r\nPONG\r\n"


# -- much of it ------------------------------------------------------------------------------------------------------


def test_much_that_is_wanted_is_told_a_part_in_each_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "ROUTE_LINES_PER_TURN_MAX", 4)
    server = world.server()
    listener = server.listener()
    entries = [listener.listen(b"s.%d" % number) for number in range(9)]
    group = listener.listen(b"s", b"q")
    stranger = world.stranger(server)
    stranger.end.feed(b"".join(JOINED))
    stranger.end.take()
    # Meanwhile some of it changes.
    server.live.leave(entries[8])
    listener.listen(b"new")
    server.live.leave(group)
    stranger.end.call("woken")
    assert stranger.end.take() == (
        b"RS- $G s.8\r\nRS+ $G new\r\nRS- $G s q\r\n" + b"".join(b"RS+ $G s.%d\r\n" % number for number in range(4, 8))
    )
    assert stranger.end.rung
    assert stranger.heard() == b""


def test_what_is_wanted_waits_while_the_other_does_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "ROUTE_LINES_PER_TURN_MAX", 2)
    server = world.server()
    listener = server.listener()
    for number in range(4):
        listener.listen(b"s.%d" % number)
    stranger = world.stranger(server)
    stranger.end.feed(b"".join(JOINED))
    stranger.end.take()
    stranger.end.call("full")
    assert stranger.heard() == b""
    listener.listen(b"new")
    assert stranger.heard() == b"RS+ $G new\r\n"
    stranger.end.call("writable")
    assert stranger.heard() == b"RS+ $G s.2\r\nRS+ $G s.3\r\n"


def test_a_route_that_does_not_read_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "ROUTE_PENDING_SIZE_BYTES_MAX", 1000)
    server = world.server()
    stranger = world.joined(server)
    stranger.send(b"RS+ $G foo\r\n")
    stranger.heard()
    for _ in range(9):
        server.publish(b"foo", b"x" * 100)
    assert stranger.end.rung
    world.run()
    assert stranger.closed == "Slow Consumer (Pending Bytes)"
    assert stranger.end.at_once
    assert server.publish(b"foo") == 1


def test_who_publishes_waits_before_a_route_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "ROUTE_PRESSED_SIZE_BYTES", 500)
    server = world.server()
    stranger = world.joined(server)
    stranger.send(b"RS+ $G foo\r\n")
    stranger.heard()
    pressed = []
    for _ in range(6):
        server.publish(b"foo", b"x" * 100)
        pressed.append(server.house.pressed)
    assert pressed == [False] * 4 + [True] * 2
    assert stranger.closed is None


def test_a_storm_of_interest_does_not_fill_the_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "ROUTE_PENDING_SIZE_BYTES_MAX", 1000)
    server = world.server()
    stranger = world.joined(server)
    stranger.end.call("full")
    listener = server.listener()
    for number in range(100):
        listener.listen(b"s.%d" % number)
    stranger.end.call("woken")
    assert stranger.closed == "Slow Consumer (Pending Bytes)"


def test_a_route_is_read_although_much_waits_for_it() -> None:
    assert route_module.RouteGateway.unread_above == limits.ROUTE_PENDING_SIZE_BYTES_MAX


def test_what_takes_long_is_left_for_the_next_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "ROUTE_PIECE_SIZE_BYTES", 100)
    monkeypatch.setattr(route_module, "ROUTE_NS_PER_TURN_MAX", 0)
    server = world.server()
    listener = server.listener()
    listener.listen(b"foo")
    stranger = world.joined(server)
    lines = b"".join(b"RS+ $G s.%d\r\n" % number for number in range(30))
    stranger.end.feed(lines + b"RMSG $G foo 500\r\n" + b"x" * 500 + b"\r\nPING\r\n")
    route = server.cluster.routes["NX"]
    counts = []
    while stranger.end.paused:
        counts.append(route.subscription_count)
        stranger.end.rung = False
        stranger.end.call("woken")
    # A message that is larger than a piece is handled as well.
    assert counts[:3] == [8, 16, 23]
    assert route.subscription_count == 30
    assert listener.bodies() == [b"x" * 500]
    assert stranger.heard() == b"RS+ $G foo\r\nPONG\r\n"


def test_what_is_larger_than_a_piece_takes_no_more_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "ROUTE_PIECE_SIZE_BYTES", 100)
    monkeypatch.setattr(route_module, "ROUTE_NS_PER_TURN_MAX", 0)
    server = world.server()
    stranger = world.joined(server)
    line = b"RS+ $G " + b"a" * 2000 + b"\r\n"
    stranger.end.feed(line[:300])
    stranger.end.call("woken")
    stranger.end.feed(line[300:] + b"PING\r\n")
    turns = 0
    while stranger.end.paused:
        turns += 1
        stranger.end.call("woken")
    assert turns <= 3
    assert stranger.heard() == b"PONG\r\n"
    assert server.cluster.routes["NX"].subscription_count == 1


@pytest.mark.parametrize("imports", [None, Permissions(("a.*", "b"))])
def test_messages_that_take_long_go_on_in_the_next_turn(world: World, monkeypatch: pytest.MonkeyPatch, imports: Permissions | None) -> None:
    server = world.server(accounts=("X",), rules=RouteRules(imports=imports))
    listener, other = server.listener(), server.listener()
    listener.listen(b"a.>")
    other.listen(b"b", account="X")
    stranger = world.joined(server)
    monkeypatch.setattr(route_module, "ROUTE_NS_PER_TURN_MAX", 0)
    monkeypatch.setattr("polymq.core.live.LIVE_STEPS_PER_PASS_MAX", 1)
    said = b"".join(b"RMSG $G a.%d 1\r\n%d\r\n" % (number, number) for number in range(9)) + b"RMSG X b 1\r\nx\r\nRMSG ? c 1\r\nx\r\n" * 2
    stranger.end.feed(said + b"PING\r\nRMSG $G a.9 1\r\n9\r\n")
    route = server.cluster.routes["NX"]
    counts = []
    while stranger.end.paused:
        counts.append(route.in_message_count)
        stranger.end.rung = False
        stranger.end.call("woken")
    assert counts[:3] == [1, 2, 3]
    assert listener.bodies() == [b"%d" % number for number in range(10)]
    assert other.bodies() == [b"x"] * 2
    assert (route.in_message_count, route.in_size_bytes) == (14, 14)
    assert stranger.heard().endswith(b"PONG\r\n")


def test_lines_of_interest_are_counted_in_few(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    server = world.server()
    stranger = world.joined(server)
    monkeypatch.setattr(route_module, "ROUTE_NS_PER_TURN_MAX", 0)
    stranger.end.feed(b"".join(b"RS+ $G s.%d\r\n" % number for number in range(1000)))
    assert server.cluster.routes["NX"].subscription_count == limits.NATS_EVENTS_PER_FEED_MAX
