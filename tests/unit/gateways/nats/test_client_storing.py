"""What clients are told of messages that are to be stored: nothing before they are, and clearly if they are not."""

from __future__ import annotations

import pytest

from polymq.config_sections import NatsSettings
from polymq.core.policies import Full, TopicPolicy
from polymq.protocols.nats.problems import not_stored
from polymq.wire.tickets import TicketState
from tests.unit.gateways.nats.bridge_world import BridgeWorld, messages_in
from tests.unit.gateways.nats.harness import PLAIN, QUIET

VERBOSE = b'CONNECT {"verbose":true,"pedantic":false,"headers":true,"no_responders":true}\r\n'


@pytest.fixture
def world() -> BridgeWorld:
    return BridgeWorld()


def test_a_pong_waits_until_what_was_published_before_is_durable(world: BridgeWorld) -> None:
    talk = world.connect(QUIET)
    world.commits = False
    assert talk.say(b"PUB c.a 1\r\nx\r\nPUB c.b 1\r\ny\r\nPING\r\n") == b""
    assert talk.say(b"PING\r\n") == b""
    other = world.connect(QUIET)
    assert other.say(b"PUB live 1\r\nx\r\n", b"PING\r\n").startswith(b"PONG\r\n")
    world.settle()
    assert talk.hear().startswith(b"PONG\r\n")
    world.commits = True
    assert talk.say(b"PUB c.a 1\r\nz\r\nPING\r\n") == b"PONG\r\n"
    assert (world.kept("c.a"), world.kept("c.b")) == ([b"x", b"z"], [b"y"])


def test_a_verbose_client_has_its_ok_when_the_message_is_durable(world: BridgeWorld) -> None:
    talk = world.connect()
    assert talk.say(VERBOSE) == b"+OK\r\n"
    world.commits = False
    assert talk.say(b"PUB live 1\r\nx\r\n") == b"+OK\r\n"
    assert talk.say(b"PUB c.a 1\r\nx\r\n") == b""
    assert talk.say(b"PUB live 1\r\nx\r\n") == b""
    world.settle()
    assert talk.hear() == b"+OK\r\n+OK\r\n"


def test_own_messages_come_though_they_are_stored(world: BridgeWorld) -> None:
    talk = world.connect()
    assert talk.say(VERBOSE, b"SUB c.* 1\r\n") == b"+OK\r\n+OK\r\n"
    assert talk.say(b"PUB c.a 1\r\nx\r\n") == b"MSG c.a 1 1\r\nx\r\n+OK\r\n"
    assert talk.say(b"PUB live 1\r\nx\r\n") == b"+OK\r\n"


def test_who_asks_a_subject_that_is_only_stored_is_told_that_nobody_answers(world: BridgeWorld) -> None:
    talk = world.listening(b"in.box")
    (answer,) = messages_in(talk.say(b"PUB c.question in.box 2\r\n??\r\n"))
    assert answer.status == b"503"
    assert world.kept("c.question") == [b"??"]


def test_others_have_a_message_before_it_is_durable(world: BridgeWorld) -> None:
    listener, talk = world.listening(b"c.a"), world.connect(QUIET)
    world.commits = False
    talk.send(b"PUB c.a 1\r\nx\r\n")
    assert listener.hear() == b"MSG c.a 0 1\r\nx\r\n"


def test_what_cannot_be_stored_is_told_and_handed_on(world: BridgeWorld) -> None:
    listener, talk, verbose = world.listening(b"c.>"), world.connect(PLAIN), world.connect()
    verbose.say(VERBOSE)
    talk.say(b"PUB c.full 1\r\n1\r\n")
    world.core.session.set_topic_policy("c.full", TopicPolicy(messages_max=1, full=Full.REJECT))
    listener.hear()
    refused = b"-ERR 'Permissions Violation for Publish to \"c.full\": not stored: topic c.full holds 1 of 1 messages'\r\n"
    assert talk.say(b"PUB c.full 1\r\n2\r\nPUB c.full 1\r\n3\r\nPUB c.free 1\r\n4\r\nPING\r\n") == refused + b"PONG\r\n"
    assert verbose.say(b"PUB c.full 1\r\n5\r\nPUB c.free 1\r\n6\r\n") == refused + b"+OK\r\n"
    assert [message.body for message in messages_in(listener.hear())] == [b"2", b"3", b"4", b"5", b"6"]
    assert (world.kept("c.full"), world.kept("c.free")) == ([b"1"], [b"4", b"6"])


def test_a_full_disk_is_no_reason_to_leave(world: BridgeWorld) -> None:
    talk = world.connect(PLAIN)
    talk.say(b"PUB c.a 1\r\n1\r\n")
    world.core.store.journal.full = True
    assert talk.say(b"PUB c.a 1\r\n2\r\n").startswith(b'-ERR \'Permissions Violation for Publish to "c.a": not stored: ')
    assert not talk.closed
    world.core.store.journal.full = False
    assert talk.say(b"PUB c.a 1\r\n3\r\nPING\r\n") == b"PONG\r\n"


def test_a_write_that_fails_afterwards_ends_the_connection(world: BridgeWorld) -> None:
    talk = world.connect(QUIET)
    world.commits = False
    talk.say(b"PUB c.a 1\r\n1\r\nPING\r\n")
    ticket = world.core.store.logs[0].ticket
    assert ticket is not None
    ticket.state, ticket.failure = TicketState.FAILED, "it's broken"
    world.turn()
    assert talk.hear() == b"-ERR 'Permissions Violation for Publish: not stored: the partition cannot be written'\r\n"
    assert talk.closed


def test_reasons_stay_within_their_line() -> None:
    assert not_stored(b"s", "a\r\n'b'") == b'Permissions Violation for Publish to "s": not stored: a  `b`'


def test_who_stores_is_not_read_while_there_is_too_much_to_write(world: BridgeWorld) -> None:
    talk, other = world.connect(QUIET), world.connect(QUIET)
    talk.say(b"PUB c.a 1\r\n1\r\n")
    other.say(b"PUB live 1\r\n1\r\n")
    world.files.congested = True
    world.turn()
    assert talk.connection.watched[0] is False
    assert other.connection.watched[0] is True


def test_topics_heard_live_are_published_by_others_or_by_nats_once(world: BridgeWorld) -> None:
    talk = world.listening(b">")
    world.core.publish("c.x", b"by others")
    world.turn()
    talk.send(b"PUB c.x 4\r\nlive\r\n")
    assert [message.body for message in messages_in(talk.hear())] == [b"by others", b"live"]
    assert world.kept("c.x") == [b"by others", b"live"]


def test_without_patterns_topics_that_are_there_are_stored() -> None:
    world = BridgeWorld(NatsSettings())
    world.core.session.ensure_topic("t")
    talk = world.connect(QUIET)
    talk.say(b"PUB t 1\r\n1\r\nPUB u 1\r\n2\r\n")
    assert world.kept("t") == [b"1"]
    assert len(world.broker.catalogue.topics) == 1
