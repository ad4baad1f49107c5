"""NATS clients as members of work groups: a PONG settles what stood before its PING, and what is not read goes to others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from polymq.core.access import Principal
from polymq.core.group import GroupKind
from polymq.core.live_rules import NameRule, PatternRules
from polymq.gateways.nats import sharing
from polymq.gateways.nats.logins import NatsUser, UserLogins
from polymq.gateways.nats.records import NatsCodec
from polymq.gateways.nats.sharing import WorkGroups
from polymq.limits import MESSAGE_SIZE_BYTES_MAX, NATS_MEMBERSHIPS_MAX, NATS_UNREAD_MESSAGES_MAX
from polymq.wire.batch import Message
from tests.unit.core.fakes import Inbox
from tests.unit.gateways.nats.bridge_world import Accounts, BridgeWorld, messages_in
from tests.unit.gateways.nats.harness import PLAIN, QUIET, SECOND_NS, Talk

if TYPE_CHECKING:
    from polymq.core.views import GroupView

PINGS = re.compile(rb"(?:^|\r\n)PING\r\n")


class WorkWorld(BridgeWorld):
    """A server whose queue groups `workers` and `others` are work groups."""

    def __init__(self, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        self.house.work_groups = WorkGroups(("workers", "others"), NatsCodec())

    def publish(self, *bodies: bytes, topic: str = "orders") -> None:
        self.core.publish(topic, *bodies)
        self.settle()

    def group(self, topic: str = "orders", name: str = "workers") -> GroupView:
        self.turn()
        return next(group for group in self.core.view(topic).groups if group.name == name)

    def member(self, *said: bytes, first: bytes = QUIET) -> Talk:
        talk = self.connect(first)
        for each in said or (b"SUB orders workers 1\r\n",):
            assert talk.say(each) == b""
        return talk


def bodies(heard: bytes) -> list[bytes]:
    return [each.body for each in messages_in(heard)]


@pytest.fixture
def world() -> WorkWorld:
    return WorkWorld()


def test_a_pong_settles_what_stood_before_its_ping(world: WorkWorld) -> None:
    talk = world.member()
    world.publish(b"1", b"2")
    assert talk.hear() == b"MSG orders 1 1\r\n1\r\nMSG orders 1 1\r\n2\r\nPING\r\n"
    world.publish(b"3")
    assert talk.hear() == b"MSG orders 1 1\r\n3\r\nPING\r\n"
    assert (world.group().depth, world.group().leased) == (0, 3)
    assert talk.say(b"PONG\r\n") == b""
    assert world.group().leased == 1
    assert talk.say(b"PONG\r\n") == b""
    assert world.group().leased == 0
    assert talk.say(b"PONG\r\nPONG\r\n") == b""  # nobody has asked
    world.publish(b"4")
    assert bodies(talk.hear()) == [b"4"]
    assert world.group().leased == 1


def test_a_ping_of_the_server_s_own_settles_nothing(world: WorkWorld) -> None:
    talk = world.member()
    world.wait(3)
    assert talk.hear() == b"PING\r\n"
    world.publish(b"1")
    assert bodies(talk.hear()) == [b"1"]
    assert talk.say(b"PONG\r\n") == b""
    assert world.group().leased == 1
    assert talk.say(b"PONG\r\n") == b""
    assert world.group().leased == 0


def test_members_of_several_protocols_share_one_group(world: WorkWorld) -> None:
    talk, inbox = world.member(), Inbox()
    other = world.core.session.subscribe("orders", "workers", kind=GroupKind.WORK, listener=inbox, lease_ns=SECOND_NS)
    world.core.session.credit(other, 1)
    assert world.group().consumer_count == 2
    world.publish(*[b"%d" % number for number in range(10)])
    assert len(bodies(talk.hear())) + other.leased == 10
    assert world.group().leased == 10


@pytest.mark.parametrize("leaving", ["hang up", "unsubscribe", "connect anew"])
def test_what_is_not_read_when_a_member_leaves_goes_to_another(world: WorkWorld, leaving: str) -> None:
    talk = world.member()
    world.publish(b"1")
    talk.say(b"PONG\r\n")
    world.publish(b"2", b"3")
    other = world.member()
    assert bodies(talk.hear())[-2:] == [b"2", b"3"]
    if leaving == "hang up":
        talk.hang_up()
    else:
        talk.say(b"UNSUB 1\r\n" if leaving == "unsubscribe" else QUIET)
        talk.say(b"PONG\r\n")  # it comes too late
    heard = other.hear()
    assert bodies(heard) == [b"2", b"3"]
    assert other.say(b"PONG\r\n" * len(PINGS.findall(heard))) == b""
    group = world.group()
    assert (group.leased, group.depth, group.consumer_count) == (0, 0, 1)


def test_who_does_not_answer_for_a_minute_has_not_read_it(world: WorkWorld) -> None:
    slow = world.member()
    world.publish(b"1")
    other = world.member()
    world.wait(59)
    assert bodies(other.hear()) == []
    world.wait(2)
    assert bodies(other.hear()) == [b"1"]
    slow.say(b"PONG\r\nPONG\r\n")
    assert world.group().leased == 1


def test_no_more_than_a_window_is_unread(world: WorkWorld) -> None:
    talk = world.member()
    world.publish(*[b"x"] * (NATS_UNREAD_MESSAGES_MAX + 10))
    heard = talk.hear()
    assert len(bodies(heard)) == NATS_UNREAD_MESSAGES_MAX
    assert bodies(talk.say(b"PONG\r\n" * len(PINGS.findall(heard)))) == [b"x"] * 10


def test_a_maximum_is_kept(world: WorkWorld) -> None:
    talk = world.member(b"SUB orders workers 1\r\nUNSUB 1 3\r\n")
    world.publish(*[b"%d" % number for number in range(5)])
    heard = talk.hear()
    assert bodies(heard) == [b"0", b"1", b"2"]
    assert world.group().consumer_count == 1  # until that is read
    talk.say(b"PONG\r\n" * len(PINGS.findall(heard)))
    group = world.group()
    assert (group.consumer_count, group.leased, group.depth) == (0, 0, 2)
    # The sid is free again, and a maximum that has been reached is the end.
    assert bodies(talk.say(b"SUB orders workers 1\r\n")) == [b"3", b"4"]
    assert talk.say(b"UNSUB 1 2\r\n") == b""
    group = world.group()
    assert (group.consumer_count, group.depth) == (0, 2)


def test_who_has_had_its_maximum_and_does_not_answer_is_given_nothing_more(world: WorkWorld) -> None:
    talk = world.member(b"SUB orders workers 1\r\nUNSUB 1 3\r\n")
    world.publish(*[b"%d" % number for number in range(5)])
    assert len(bodies(talk.hear())) == 3
    talk.client.full([])
    talk.client.writable([])
    world.wait(61)
    assert bodies(talk.hear()) == []
    assert (world.group().leased, world.group().depth) == (0, 5)
    assert bodies(talk.say(b"SUB orders workers 1\r\n")) == [b"3", b"4", b"0", b"1", b"2"]
    talk.say(b"PONG\r\n" * 10)
    group = world.group()
    assert (group.leased, group.depth, group.consumer_count) == (0, 0, 1)


def test_a_maximum_is_kept_when_leases_have_run_out_since(world: WorkWorld) -> None:
    talk = world.member(b"SUB orders workers 1\r\nUNSUB 1 3\r\n")
    world.publish(b"0", b"1")
    assert bodies(talk.hear()) == [b"0", b"1"]
    world.wait(61)
    world.publish(*[b"%d" % number for number in range(2, 9)])
    again = talk.hear()
    assert len(bodies(again)) == 1
    other = bodies(world.connect(QUIET).say(b"SUB orders workers 1\r\n"))
    assert sorted(other + bodies(again)) == [b"%d" % number for number in range(9)]
    assert bodies(talk.hear()) == []


def test_a_slow_library_that_answers_gets_each_message_once(world: WorkWorld) -> None:
    slow = world.member()
    sent = [b"%d" % number for number in range(200)]
    world.publish(*sent)
    other = world.member()
    said, got = b"", []
    for _ in range(1000):
        said += slow.hear()
        if not said:
            break
        line, _, said = said.partition(b"\r\n")
        if line == b"PING":
            said += slow.say(b"PONG\r\n")
            continue
        body, _, said = said.partition(b"\r\n")
        got.append(body)
        world.wait(1)
    assert got == sent
    assert bodies(other.hear()) == []
    group = world.group()
    assert (group.leased, group.depth, group.timeout_count) == (0, 0, 0)


def test_pieces_are_waited_for_anew_some_at_a_time(world: WorkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sharing._PIECES_ANEW * sharing._MESSAGES_PER_PING >= NATS_UNREAD_MESSAGES_MAX
    monkeypatch.setattr(sharing, "_PIECES_ANEW", 1)
    talk = world.member()
    world.publish(*[b"x"] * 48)
    assert len(PINGS.findall(talk.hear())) == 3
    world.wait(50)
    talk.say(b"PONG\r\n")
    world.member(b"SUB live 1\r\n")
    talk.client.full([])
    world.wait(11)
    assert (world.group().leased, world.group().depth) == (16, 16)


def test_what_headers_make_larger_than_any_is_not_settled_unseen(world: WorkWorld) -> None:
    talk = world.member()
    message = Message(b"x" * (MESSAGE_SIZE_BYTES_MAX - 10), headers=((b"name", b"a value"),))
    world.core.session.publish_messages("orders", [message], origin=1)
    world.settle()
    assert bodies(talk.hear()) == [message.body]
    assert talk.client.out_message_count == 1
    talk.say(b"PONG\r\n")
    assert world.group().leased == 0


def test_a_maximum_of_who_has_read_some(world: WorkWorld) -> None:
    talk = world.member()
    world.publish(b"0")
    talk.say(b"UNSUB 1 2\r\n", b"PONG\r\n")
    world.publish(b"1", b"2")
    assert bodies(talk.hear())[-1:] == [b"1"]
    talk.say(b"PONG\r\n")
    assert world.group().consumer_count == 0


def test_key_headers_and_reply_are_those_of_live_messages(world: WorkWorld) -> None:
    rich, plain = world.member(b"SUB orders workers 1\r\n"), world.member(b"SUB orders others 7\r\n", first=PLAIN)
    message = Message(b"body", key=b"k", headers=((b"gate", b"A7"), (b"reply-to", b"in.box")))
    world.core.session.publish_messages("orders", [message], origin=1)
    world.settle()
    block = b"NATS/1.0\r\nKEYS: k\r\ngate: A7\r\n\r\n"
    assert rich.hear() == b"HMSG orders 1 in.box %d %d\r\n%bbody\r\nPING\r\n" % (len(block), len(block) + 4, block)
    assert plain.hear() == b"MSG orders 7 in.box 4\r\nbody\r\nPING\r\n"
    assert rich.client.out_message_count == 1
    assert rich.client.out_size_bytes == len(block) + 4


def test_what_nats_publishes_is_shared_as_well(world: WorkWorld) -> None:
    talk = world.member()
    publisher = world.connect(QUIET)
    publisher.say(b"HPUB orders in.box 18 19\r\nNATS/1.0\r\na: b\r\n\r\nx\r\n")
    world.settle()
    (message,) = messages_in(talk.hear())
    assert (message.headers, message.body) == ({b"a": b"b"}, b"x")


@pytest.mark.parametrize(
    "command",
    [b"SUB orders 1\r\n", b"SUB orders strangers 1\r\n", b"SUB orders.* workers 1\r\n", b"SUB > workers 1\r\n", b"SUB _INBOX.a workers 1\r\n", b"SUB $a workers 1\r\n"],
)  # fmt: skip
def test_all_other_subscriptions_are_live(world: WorkWorld, command: bytes) -> None:
    talk = world.member(command)
    assert list(talk.client.subscriptions) == [b"1"]
    assert not world.broker.catalogue.topics


def test_a_sid_is_taken_once(world: WorkWorld) -> None:
    talk = world.member(b"SUB orders workers 1\r\n", b"SUB other 1\r\n", b"SUB live 2\r\n", b"SUB orders workers 2\r\n")
    assert list(talk.client.subscriptions) == [b"2"]
    assert world.group().consumer_count == 1


def test_there_are_so_many_memberships_and_no_more(world: WorkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NATS_MEMBERSHIPS_MAX >= 1000
    monkeypatch.setattr("polymq.gateways.nats.sharing.NATS_MEMBERSHIPS_MAX", 2)
    talk = world.member(b"SUB a workers 1\r\nSUB b workers 2\r\n")
    assert talk.say(b"SUB c workers 3\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert talk.say(b"UNSUB 1\r\n", b"SUB c workers 3\r\n") == b""


def test_a_name_that_is_none_is_refused(world: WorkWorld) -> None:
    talk = world.connect(QUIET)
    assert talk.say(b"SUB \xff workers 3\r\n") == b"-ERR 'Invalid Subject'\r\n"


def test_a_group_that_is_none_of_work_is_refused(world: WorkWorld) -> None:
    world.core.session.create_topic("orders")
    world.core.session.create_group("orders", "workers", kind=GroupKind.CURSOR)
    talk = world.connect(QUIET)
    assert talk.say(b"SUB orders workers 3\r\n").startswith(b"-ERR ")


def test_who_does_not_read_is_given_nothing_more(world: WorkWorld) -> None:
    talk = world.member()
    talk.client.full([])
    world.publish(b"1")
    assert bodies(talk.hear()) == []
    assert talk.say(b"SUB more workers 2\r\n") == b""
    world.publish(b"2", topic="more")
    assert bodies(talk.hear()) == []
    talk.client.writable([])
    world.turn()
    assert sorted(bodies(talk.hear())) == [b"1", b"2"]


def test_who_loses_its_topic_is_closed_and_may_come_again(world: WorkWorld) -> None:
    talk = world.member()
    world.core.session.delete_topic("orders")
    world.turn()
    assert talk.closed
    world.member()
    assert world.group().consumer_count == 1


def test_accounts_have_topics_of_their_own() -> None:
    world = WorkWorld(logins=Accounts())
    talk = world.connect()
    talk.say(b'CONNECT {"verbose":false,"name":"A"}\r\n', b"SUB orders workers 1\r\n")
    assert [key for key in world.broker.catalogue.topics if key[1] == "orders"] == [("A", "orders")]
    world.publish(b"x")
    assert bodies(talk.hear()) == []


def ruled(*allowed: bytes) -> UserLogins:
    rules = PatternRules(listen_allow=[NameRule(*each.split()) for each in allowed])
    return UserLogins([NatsUser(Principal("ann", live=rules), "ann")], digest_key=b"k")


def test_who_may_not_listen_may_not_share() -> None:
    world = WorkWorld(logins=ruled(b"orders workers", b"more workers", b"live"))
    talk = world.connect()
    talk.say(b'CONNECT {"verbose":false,"user":"ann"}\r\n')
    assert talk.say(b"SUB orders others 1\r\n").startswith(b'-ERR \'Permissions Violation for Subscription to "orders" using queue')
    assert talk.say(b"SUB orders workers 1\r\nSUB more workers 2\r\n") == b""
    # Somebody reads the settings again, and it may do less.
    world.house.logins = ruled(b"more workers")
    talk.client.reconsider()
    world.turn()
    assert talk.hear() == b'-ERR \'Permissions Violation for Subscription to "orders" (sid "1")\'\r\n'
    world.publish(b"x")
    world.publish(b"y", topic="more")
    assert bodies(talk.hear()) == [b"y"]
    assert world.group().consumer_count == 0
