"""Playbooks: what a NATS client sends, and what it and others get."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from polymq.errors import Refusal, RefusalCode
from polymq.protocols.nats.settings import NatsSettings
from tests.unit.gateways.nats.harness import PLAIN, QUIET, SECOND_NS, World

if TYPE_CHECKING:
    from tests.unit.gateways.nats.harness import Talk


@pytest.fixture
def world() -> World:
    return World()


def test_the_greeting_says_who_is_here(world: World) -> None:
    first, second = world.connect(), world.connect(host="2001:db8::1")
    infos = [json.loads(world.house.info_line(client_id=each.client.id, peer=each.client.peer)[5:]) for each in (first, second)]
    assert infos[0]["client_id"] == 1
    assert infos[1] == {**infos[0], "client_id": 2, "client_ip": "2001:db8::1"}
    assert infos[0]["max_payload"] == 1 << 20


def test_who_says_nothing_of_itself_is_verbose_and_pedantic(world: World) -> None:
    talk = world.connect()
    assert talk.say(b"SUB a.* 1\r\nPUB a.* 1\r\nx\r\nUNSUB 1\r\nPING\r\n") == (
        b"+OK\r\n-ERR 'Invalid Publish Subject'\r\n+OK\r\nMSG a.* 1 1\r\nx\r\n+OK\r\nPONG\r\n"
    )


def test_every_cut_of_the_input_means_the_same() -> None:
    said = QUIET + b"SUB a q 1\r\nPUB a r 2\r\nxy\r\nPING\r\nHPUB a 12 13\r\nNATS/1.0\r\n\r\nz\r\nUNSUB 1 3\r\nPUB b a 0\r\n\r\n"
    whole = World().connect().say(said)
    assert whole.count(b"MSG a 1") == 2
    for cut in range(1, len(said)):
        assert World().connect().say(said[:cut], said[cut:]) == whole, cut


def test_a_run_for_one_who_is_verbose_and_listens_not_is_answered_at_once(world: World) -> None:
    talk = world.connect()
    talk.say(b'CONNECT {"pedantic":false}\r\n')
    listener = world.connect(PLAIN + b"SUB > 1\r\n")
    assert talk.say(b"PUB a 1\r\nx\r\n" * 3) == b"+OK\r\n" * 3
    assert listener.hear() == b"MSG a 1 1\r\nx\r\n" * 3


def test_own_messages_come_behind_the_answers_to_what_was_said_before(world: World) -> None:
    talk = world.connect(QUIET + b"SUB a 1\r\n")
    assert talk.say(b"PING\r\nPUB a 1\r\n1\r\nPING\r\nPUB a 1\r\n2\r\n") == (
        b"PONG\r\n" + talk_info(talk) + b"MSG a 1 1\r\n1\r\nPONG\r\nMSG a 1 1\r\n2\r\n"
    )


def talk_info(talk: Talk) -> bytes:
    return talk.world.house.info_line(client_id=talk.client.id, peer=talk.client.peer, connect_info=True)


def test_echo_off(world: World) -> None:
    talk = world.connect(b'CONNECT {"verbose":false,"echo":false}\r\nSUB a 1\r\n')
    other = world.connect(PLAIN + b"SUB a 9\r\n")
    assert talk.say(b"PUB a 1\r\nx\r\n") == b""
    assert other.hear() == b"MSG a 9 1\r\nx\r\n"
    assert other.say(b"PUB a 1\r\ny\r\n") == b"MSG a 9 1\r\ny\r\n"
    assert talk.hear() == b"MSG a 1 1\r\ny\r\n"


def test_headers_are_cut_for_who_has_none(world: World) -> None:
    having, without = world.connect(QUIET + b"SUB a 1\r\n"), world.connect(PLAIN + b"SUB a 2\r\n")
    message = b"NATS/1.0\r\nK: v\r\n\r\nok\r\n"
    assert having.say(b"HPUB a r 18 20\r\n" + message) == b"HMSG a 1 r 18 20\r\n" + message
    assert without.hear() == b"MSG a 2 r 2\r\nok\r\n"
    assert without.say(b"HPUB a 18 20\r\n" + message) == b""
    assert without.closed


# -- questions that nobody hears ------------------------------------------------------------------------------------------


def unheard(reply: bytes, sid: bytes, subject: bytes) -> bytes:
    size = 32 + len(subject)
    return b"HMSG %b %b %d %d\r\nNATS/1.0 503\r\nNats-Subject: %b\r\n\r\n\r\n" % (reply, sid, size, size, subject)


def test_nobody_hears(world: World) -> None:
    talk = world.connect(QUIET + b"SUB in.* 7\r\n")
    assert talk.say(b"PUB a in.1 1\r\nx\r\n") == unheard(b"in.1", b"7", b"a")
    assert talk.say(b"PUB a elsewhere 1\r\nx\r\nPUB a 1\r\nx\r\n") == b""
    world.connect(PLAIN + b"SUB a q 1\r\n")
    assert talk.say(b"PUB a in.2 1\r\nx\r\n") == b""


def test_nobody_hears_and_nobody_wants_to_know(world: World) -> None:
    talk = world.connect(PLAIN + b"SUB in.* 7\r\n")
    assert talk.say(b"PUB a in.1 1\r\nx\r\n") == b""


def test_a_queue_is_not_told_that_nobody_hears(world: World) -> None:
    talk = world.connect(QUIET + b"SUB in.* q 7\r\n")
    assert talk.say(b"PUB a in.1 1\r\nx\r\n") == b""


def test_nobody_hears_within_a_run_is_told_in_its_place(world: World) -> None:
    talk = world.connect(QUIET + b"SUB in.* 7\r\nSUB here 8\r\n")
    heard = talk.say(b"PUB here 1\r\n1\r\nPUB a in.1 1\r\nx\r\nPUB here in.2 1\r\n2\r\nPUB b in.3 1\r\nx\r\nPUB here 1\r\n3\r\n")
    assert heard == (
        b"MSG here 8 1\r\n1\r\n"
        + unheard(b"in.1", b"7", b"a")
        + b"MSG here 8 in.2 1\r\n2\r\n"
        + unheard(b"in.3", b"7", b"b")
        + b"MSG here 8 1\r\n3\r\n"
    )


def test_that_nobody_hears_counts_for_nothing(world: World) -> None:
    talk = world.connect(QUIET + b"SUB in 7\r\nUNSUB 7 1\r\n")
    assert talk.say(b"PUB a in 1\r\nx\r\nPUB in 1\r\ny\r\nPUB in 1\r\nz\r\n") == unheard(b"in", b"7", b"a") + b"MSG in 7 1\r\ny\r\n"
    assert talk.client.out_message_count == 1


# -- subscriptions --------------------------------------------------------------------------------------------------------


def test_unsubscribing_at_a_number(world: World) -> None:
    talk, other = world.connect(PLAIN + b"SUB a 1\r\nUNSUB 1 3\r\n"), world.connect(PLAIN)
    other.send(b"PUB a 1\r\n1\r\nPUB a 1\r\n2\r\n", b"PUB a 1\r\n3\r\nPUB a 1\r\n4\r\n")
    assert talk.hear() == b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\nMSG a 1 1\r\n3\r\n"
    assert not talk.client.subscriptions
    assert world.broker.live.space("").interest.count == 0


def test_unsubscribing_at_what_has_come_is_at_once(world: World) -> None:
    talk = world.connect(PLAIN + b"SUB a 1\r\n")
    talk.say(b"PUB a 1\r\n1\r\nPUB a 1\r\n2\r\n")
    assert talk.say(b"UNSUB 1 2\r\nPUB a 1\r\n3\r\n") == b""
    assert not talk.client.subscriptions


def test_the_first_of_two_with_a_sid_stays(world: World) -> None:
    talk = world.connect()
    assert talk.say(b"SUB a 1\r\nSUB b q 1\r\n") == b"+OK\r\n+OK\r\n"
    assert talk.say(b'CONNECT {"verbose":false,"pedantic":false}\r\n') == b""
    talk = world.connect(PLAIN + b"SUB a 1\r\nSUB b q 1\r\n")
    assert talk.say(b"PUB a 1\r\nx\r\nPUB b 1\r\ny\r\n") == b"MSG a 1 1\r\nx\r\n"


def test_a_sid_is_free_again(world: World) -> None:
    talk = world.connect(PLAIN + b"SUB a 1\r\nUNSUB 1\r\nSUB b 1\r\n")
    assert talk.say(b"PUB a 1\r\nx\r\nPUB b 1\r\ny\r\nUNSUB unknown\r\n") == b"MSG b 1 1\r\ny\r\n"


def test_of_a_group_one_member_gets_it(world: World) -> None:
    one, other = (world.connect(PLAIN + b"SUB a q 1\r\nSUB a.> q 2\r\n") for _ in range(2))
    publisher = world.connect(PLAIN)
    publisher.send(b"PUB a 1\r\nx\r\n" * 100)
    shares = [each.hear().count(b"MSG") for each in (one, other)]
    assert sum(shares) == 100
    assert min(shares) >= 40


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"SUB a..b 1\r\n", b"Invalid Subject"),
        (b"SUB a _sys_ 1\r\n", b'Permissions Violation for Subscription to "a" using queue "_sys_"'),
        (b"PUB _GR_.x 1\r\nx\r\n", b'Permissions Violation for Publish to "_GR_.x"'),
        (b"PUB $NRG.x 1\r\nx\r\n", b'Permissions Violation for Publish to "$NRG.x"'),
        (b"PUB a _R_.x 1\r\nx\r\n", b'Permissions Violation for Publish with Reply of "_R_.x"'),
    ],
)
def test_what_is_refused(world: World, said: bytes, error: bytes) -> None:
    listener = world.connect(PLAIN + b"SUB > 1\r\n")
    talk = world.connect()
    talk.say(b'CONNECT {"pedantic":false}\r\n')
    assert talk.say(said) == b"-ERR '" + error + b"'\r\n"
    assert not talk.closed
    assert listener.hear() == b""


def test_a_subscription_that_the_core_refuses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = world.connect(PLAIN)

    def refuse(*_: object, **__: object) -> None:
        raise Refusal(RefusalCode.LIMIT_REACHED, "full")

    monkeypatch.setattr(talk.client.session, "listen", refuse)
    assert talk.say(b"SUB a 1\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert not talk.client.subscriptions


# -- CONNECT --------------------------------------------------------------------------------------------------------------


def test_a_second_connect_begins_anew(world: World) -> None:
    talk = world.connect(QUIET + b"SUB a 1\r\n")
    assert talk.say(b'CONNECT {"verbose":true}\r\nPUB a 1\r\nx\r\n') == b"+OK\r\n+OK\r\n"
    assert not talk.client.subscriptions


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b'CONNECT {"protocol":2}\r\n', b"-ERR 'invalid client protocol'\r\n"),
        (b'CONNECT {"no_responders":true}\r\n', b"-ERR 'no responders requires headers support'\r\n"),
        (b'CONNECT {"account":"x"}\r\n', b"-ERR 'Authorization Violation'\r\n"),
        (b"CONNECT {]\r\n", b""),
        (b"-ERR 'x'\r\n", b""),
        (b"PUB a x\r\n", b""),
        (b"NOPE\r\n", b"-ERR 'Unknown Protocol Operation'\r\n"),
    ],
)
def test_what_ends_a_connection(world: World, said: bytes, answer: bytes) -> None:
    other = world.connect(PLAIN + b"SUB a 1\r\n")
    talk = world.connect()
    assert talk.say(b"PUB a 1\r\nx\r\n" + said + b"PUB a 1\r\ny\r\n") == b"+OK\r\n" + answer
    assert talk.closed
    assert other.hear() == b"MSG a 1 1\r\nx\r\n"
    assert talk.client.id not in world.house.clients


def test_info_comes_behind_the_first_pong_of_who_has_connected(world: World) -> None:
    talk = world.connect()
    assert talk.say(b"PING\r\n") == b"PONG\r\n"
    talk.say(QUIET)
    heard = talk.say(b"PING\r\n")
    assert heard == b"PONG\r\n" + talk_info(talk)
    assert json.loads(heard[len(b"PONG\r\nINFO ") :])["connect_info"] is True
    assert talk.say(b"PING\r\n") == b"PONG\r\n"


def test_news_are_for_those_who_understand_them(world: World) -> None:
    greeted, silent, old = world.connect(QUIET), world.connect(QUIET), world.connect(PLAIN)
    for talk in (greeted, old):
        talk.say(b"PING\r\n")
    world.tell(connect_urls=("192.0.2.1:4222",))
    assert json.loads(greeted.hear()[5:])["connect_urls"] == ["192.0.2.1:4222"]
    assert silent.hear() == old.hear() == b""


# -- limits ---------------------------------------------------------------------------------------------------------------


def test_a_payload_that_is_too_large() -> None:
    world = World(NatsSettings(payload_size_bytes_max=10))
    talk = world.connect(QUIET + b"SUB a 1\r\n")
    assert talk.say(b"PUB a 10\r\n0123456789\r\n").endswith(b"0123456789\r\n")
    assert talk.say(b"PUB a 11\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"
    assert talk.closed


def test_a_line_that_is_too_long() -> None:
    talk = World(NatsSettings(line_size_bytes_max=80)).connect(PLAIN)
    assert talk.say(b"SUB " + b"a" * 78 + b" 1\r\n") == b""
    assert talk.say(b"SUB " + b"a" * 79 + b" 1\r\n") == b"-ERR 'maximum control line exceeded'\r\n"
    assert talk.closed


def test_more_subscriptions_than_allowed() -> None:
    talk = World(NatsSettings(subscriptions_max=2)).connect(PLAIN)
    assert talk.say(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert talk.say(b"UNSUB 1\r\nSUB c 3\r\nPUB c 1\r\nx\r\n") == b"MSG c 3 1\r\nx\r\n"


def test_more_tokens_than_allowed() -> None:
    talk = World(NatsSettings(subscription_tokens_max=2)).connect(PLAIN)
    assert talk.say(b"SUB a.b 1\r\nSUB a.b.c 2\r\n") == b"-ERR 'Permissions Violation for Subscription to \"a.b.c\", too many tokens'\r\n"
    assert not talk.closed


def test_more_connections_than_allowed() -> None:
    world = World(NatsSettings(connections_max=1))
    first = world.connect(PLAIN)
    second = world.connect()
    assert second.closed
    assert not first.closed
    assert list(world.house.clients) == [first.client.id]
    first.hang_up()
    assert not world.connect(PLAIN).closed


def test_more_connections_than_allowed_are_told() -> None:
    world = World(NatsSettings(connections_max=0))
    effects: list[object] = []
    from polymq.gateways.nats.client import NatsClient
    from tests.unit.server.fakes import PEER

    NatsClient(world.house, PEER).opened(effects)  # type: ignore[arg-type]
    assert "maximum connections exceeded" in repr(effects[-2])


def test_who_does_not_keep_up_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    world = World(NatsSettings(pending_size_bytes_max=1000))
    slow, quick = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN + b"SUB a 1\r\n")
    publisher = world.connect(PLAIN)
    slow.stream.room = 0
    with caplog.at_level(logging.WARNING):
        for _ in range(30):
            publisher.send(b"PUB a 100\r\n" + b"x" * 100 + b"\r\n")
    assert slow.connection.state.name == "CLOSED"
    assert slow.hear() == b""
    assert quick.hear().count(b"MSG") == 30
    assert "does not keep up" in caplog.text
    assert world.broker.live.space("").interest.count == 1
    assert world.house.departed.slow_consumer_count == 1


def test_who_takes_nothing_for_the_deadline_is_shown_as_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    world = World(NatsSettings(write_deadline_ns=1_500_000_000))
    slow, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    slow.stream.room = 0
    publisher.send(b"PUB a 1\r\nx\r\n")
    world.wait(1.4)
    assert not slow.closed
    world.wait(0.2)
    assert slow.closed
    assert "has taken nothing for 1.5 s (write_deadline)" in caplog.text
    assert [each.reason for each in world.house.departed.last] == ["Slow Consumer (Write Deadline)"]
    assert world.house.departed.slow_consumer_count == 1


# -- time -----------------------------------------------------------------------------------------------------------------


def test_who_is_silent_is_pinged_and_given_up() -> None:
    world = World(NatsSettings(ping_interval_ns=10 * SECOND_NS, pings_unanswered_max=2))
    talk = world.connect(PLAIN)
    world.wait(2.1)
    assert talk.hear() == b"PING\r\n"
    world.wait(10)
    assert talk.hear() == b"PING\r\n"
    assert not talk.closed
    world.wait(10)
    assert talk.hear() == b"-ERR 'Stale Connection'\r\n"
    assert talk.closed


def test_who_answers_and_talks_is_left_alone() -> None:
    world = World(NatsSettings(ping_interval_ns=10 * SECOND_NS))
    talk = world.connect(PLAIN)
    world.wait(2.1)
    assert talk.hear() == b"PING\r\n"
    talk.say(b"PONG\r\n")
    for _ in range(10):
        world.wait(5)
        talk.send(b"PUB a 0\r\n\r\n")
    assert talk.hear() == b""
    world.wait(11)
    assert talk.hear() == b"PING\r\n"


def test_who_talks_need_not_answer() -> None:
    world = World(NatsSettings(ping_interval_ns=10 * SECOND_NS))
    talk = world.connect(PLAIN)
    for _ in range(30):
        world.wait(2)
        talk.send(b"PUB a 0\r\n\r\n")
    assert talk.hear() == b"PING\r\n"
    world.wait(20)
    assert talk.hear() == b"PING\r\n-ERR 'Stale Connection'\r\n"


def test_who_does_not_say_connect_is_pinged_later() -> None:
    world = World(NatsSettings(ping_interval_ns=10 * SECOND_NS))
    talk = world.connect()
    world.wait(9.9)
    assert talk.hear() == b""
    world.wait(0.2)
    assert talk.hear() == b"PING\r\n"


def test_how_far_away_it_is(world: World) -> None:
    talk = world.connect(PLAIN)
    world.wait(2)
    assert talk.hear() == b"PING\r\n"
    world.clock.now_ns += 5_000_000
    talk.say(b"PONG\r\n")
    assert talk.client.rtt_ns == 5_000_000


# -- the end --------------------------------------------------------------------------------------------------------------


def test_who_hangs_up_listens_no_more(world: World) -> None:
    talk, other = world.connect(PLAIN + b"SUB a 1\r\nSUB b q 2\r\n"), world.connect(QUIET + b"SUB in 1\r\n")
    talk.hang_up()
    assert other.say(b"PUB a in 1\r\nx\r\n") == unheard(b"in", b"1", b"a")
    world.turn()
    assert world.broker.live.space("").interest.count == 1
    assert list(world.house.clients) == [other.client.id]


def test_the_server_stops(world: World) -> None:
    talk = world.connect(PLAIN)
    world.pump.stop()
    world.turn()
    assert talk.closed


def test_what_is_counted(world: World) -> None:
    one, other = world.connect(QUIET + b"SUB a 1\r\n"), world.connect(PLAIN + b"SUB a 1\r\nSUB a 2\r\n")
    one.send(b"PUB a 3\r\nabc\r\nHPUB a 12 14\r\nNATS/1.0\r\n\r\nxy\r\n")
    assert (one.client.in_message_count, one.client.in_size_bytes) == (2, 17)
    assert (one.client.out_message_count, one.client.out_size_bytes) == (2, 17)
    assert (other.client.out_message_count, other.client.out_size_bytes) == (4, 10)


# -- somebody who hardly keeps up ------------------------------------------------------------------------------------------


def test_who_publishes_to_somebody_who_hardly_keeps_up_waits() -> None:
    world = World(NatsSettings(pending_size_bytes_max=10_000))
    slow, publisher, other = (world.connect(PLAIN) for _ in range(3))
    slow.send(b"SUB a 1\r\n")
    slow.stream.room = 0
    publisher.send(b"PUB a 7000\r\n" + b"x" * 7000 + b"\r\n")
    assert publisher.connection.watched[0]
    publisher.send(b"PUB a 700\r\n" + b"x" * 700 + b"\r\n")
    assert not publisher.connection.watched[0], "it is read no more"
    assert other.say(b"PUB b 0\r\n\r\nPING\r\n") == b"PONG\r\n"
    assert (publisher.client.stall_count, other.client.stall_count, world.house.stall_count) == (1, 0, 1)
    world.wait(0.009)
    assert not publisher.connection.watched[0]
    world.wait(0.002)
    assert publisher.connection.watched[0]
    slow.stream.room = 1 << 40
    world.pump.writable(slow.connection)
    world.turn()
    assert publisher.say(b"PUB a 1\r\nx\r\nPING\r\n") == b"PONG\r\n"
    assert publisher.connection.watched[0]
    assert slow.hear().count(b"MSG") == 3


def test_who_says_more_at_once_waits_longer_but_not_for_ever() -> None:
    world = World(NatsSettings(pending_size_bytes_max=400_000))
    slow, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    slow.stream.room = 0
    publisher.send(b"PUB a 299900\r\n" + b"x" * 299900 + b"\r\n")
    before_ns = world.clock.now_ns
    publisher.send(b"PUB a 70000\r\n" + b"x" * 70000 + b"\r\n")
    due_ns = world.pump.due_ns()
    assert due_ns is not None
    assert due_ns - before_ns == 20_000_000


def test_who_takes_nothing_for_too_long_is_given_up() -> None:
    world = World(NatsSettings(write_deadline_ns=3 * SECOND_NS))
    slow, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    slow.stream.room = 0
    publisher.send(b"PUB a 1\r\nx\r\n")
    world.wait(2.9)
    assert not slow.closed
    world.wait(0.2)
    assert slow.closed


# -- cut off in the middle of what it says ---------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [b"SUB b 2\r\n", b"UNSUB 1 1000\r\n", b"UNSUB 1\r\n", QUIET, b"PUB a 1\r\nx\r\n", b"PING\r\n"])
def test_who_is_cut_off_is_heard_no_more(behind: bytes, caplog: pytest.LogCaptureFixture) -> None:
    world = World(NatsSettings(pending_size_bytes_max=1000))
    talk = world.connect(PLAIN + b"SUB a 1\r\n")
    talk.send(b"PUB a 900\r\n%b\r\n" % bytes(900) + b"PUB a 100\r\n%b\r\n" % bytes(100) + b"PING\r\n" + behind)
    assert talk.closed
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    world.turn()
    assert world.broker.live.space("").interest.count == 0


def test_what_a_listener_had_before_a_failure_elsewhere_is_known_when_it_says_more(world: World) -> None:
    talk, other = world.connect(PLAIN + b"SUB a 1\r\nUNSUB 1 1\r\n"), world.connect(PLAIN)

    class Failing:
        target = talk.client._target

        def store(self, batch: object) -> None:
            raise ValueError

    space = world.broker.live.space("")
    space.archive = Failing()  # type: ignore[assignment]
    other.send(b"PUB a 1\r\nx\r\n")
    assert other.closed
    space.archive = None
    assert talk.say(b"UNSUB 1 5\r\nPING\r\n").endswith(b"PONG\r\n")
    assert not talk.client.subscriptions


def test_how_much_may_wait_holds_for_who_is_connected_when_it_changes() -> None:
    world = World(NatsSettings(pending_size_bytes_max=100_000))
    listener, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    listener.stream.room = 0
    publisher.send(b"PUB a 2000\r\n%b\r\n" % (b"x" * 2000))
    assert not listener.closed
    world.house.settings = NatsSettings(pending_size_bytes_max=3000)
    listener.client.limit_anew()
    publisher.send(b"PUB a 2000\r\n%b\r\n" % (b"x" * 2000))
    assert listener.closed
