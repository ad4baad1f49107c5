from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq import limits
from polymq.config_sections import NatsSettings
from polymq.core.access import Principal
from polymq.core.interest.targets import Target
from polymq.core.live_rules import AnswerRule, NameRule, PatternRules
from polymq.gateways.nats.imports import ImportRule, Imports
from polymq.gateways.nats.log_door import LogDoor
from polymq.gateways.nats.logins import OpenDoor
from polymq.wire.batch import Message
from polymq.wire.live import LiveBatch, LiveMessage
from tests.unit.core.fakes import START_NS
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


def test_a_range_is_read(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", *(b"%d" % number for number in range(10)))
    world.turn()
    first, second, third, end = world.ask(talk, b"READ.t", offset=4, count=3)
    assert [first.body, second.body, third.body] == [b"4", b"5", b"6"]
    assert first.subject == b"in.box"
    assert first.headers == {
        b"Polymq-Topic": b"t",
        b"Polymq-Partition": b"0",
        b"Polymq-Offset": b"4",
        b"Polymq-Time-Ns": b"%d" % START_NS,
    }
    assert (end.status, end.fields) == (b"204 End Of Range", {"next": 7, "readable": 10})
    *found, end = world.ask(talk, b"READ.t")
    assert offsets(found) == list(range(10))
    assert end.fields == {"next": 10, "readable": 10}
    for size, count in ((0, 1), (80, 1), (100, 2), (1000, 10)):
        *found, end = world.ask(talk, b"READ.t", size=size)
        assert offsets(found) == list(range(count))
        assert end.fields["next"] == count
    (end,) = world.ask(talk, b"READ.t", offset=10)
    assert end.fields == {"next": 10, "readable": 10}
    (end,) = world.ask(talk, b"READ.t", count=0)
    assert end.fields["next"] == 0


def test_a_range_begins_at_a_time(world: BridgeWorld, talk: Talk) -> None:
    for number in range(3):
        world.core.publish("t", b"%d" % number)
        world.turn()
        world.clock.now_ns += 10**9
    *found, _ = world.ask(talk, b"READ.t", time_ns=START_NS + 10**9)
    assert offsets(found) == [1, 2]
    world.core.store.logs[0].cold = True
    assert world.ask(talk, b"READ.t", time_ns=START_NS + 2 * 10**9) == []
    world.core.store.logs[0].cold = False
    world.turn()
    assert offsets(messages_in(talk.hear())) == [2]


def test_what_comes_by_nats_is_read_with_its_headers(world: BridgeWorld, talk: Talk) -> None:
    talk.say(b"HPUB c.x answers 18 19\r\nNATS/1.0\r\nK: v\r\n\r\n1\r\n")
    world.core.session.publish_messages("c.x", [Message(b"2", headers=((b"n", b"w"),))], origin=2)
    world.turn()
    one, two, _ = world.ask(talk, b"READ.c.x")
    assert (one.body, one.headers[b"K"], one.headers[b"Polymq-Reply"]) == (b"1", b"v", b"answers")
    assert (two.body, two.headers[b"n"]) == (b"2", b"w")


def test_topics_are_listed_in_pages_and_described(world: BridgeWorld, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_REQUEST_TOPICS_MAX", 2)
    for name in ("b", "a", "c"):
        world.core.session.create_topic(name, partitions=2)
    world.core.publish("a", b"x")
    world.turn()
    (page,) = world.ask(talk, b"TOPICS")
    assert page.fields == {"topics": ["a", "b"], "more": True}
    (page,) = world.ask(talk, b"TOPICS", after="b")
    assert page.fields == {"topics": ["c"], "more": False}
    (found,) = world.ask(talk, b"INFO.a")
    assert found.fields["topic"] == "a"
    assert sorted((row["partition"], row["start"], row["readable"]) for row in found.fields["partitions"]) == [(0, 0, 0), (1, 0, 1)]


@pytest.mark.parametrize(
    ("request_", "fields", "status"),
    [
        (b"READ.no", {}, b"404 Topic Not Found"),
        (b"INFO.no", {}, b"404 Topic Not Found"),
        (b"READ.t", {"partition": 1}, b"404 Topic Not Found"),
        (b"READ.t", {"offset": 9}, b"416 Offset Out Of Range"),
        (b"READ.t", {"offset": 0}, b"416 Offset Out Of Range"),
        (b"READ.t", {"nonsense": 0}, b"400 Bad Request"),
        (b"NONSENSE", {}, b"400 Bad Request"),
        (b"CANCEL", {"follow": "7"}, b"400 Bad Request"),
        (b"FOLLOW.t", {"to": "nobody.listens"}, b"400 Bad Request"),
        (b"FOLLOW.t", {"to": "tail.*"}, b"400 Bad Request"),
        (b"FOLLOW.t", {"to": "$SYS.x"}, b"400 Bad Request"),
    ],
)
def test_what_cannot_be_done_is_said(world: BridgeWorld, talk: Talk, request_: bytes, fields: dict[str, object], status: bytes) -> None:
    world.core.publish("t", b"a", b"b")
    world.turn()
    world.core.store.logs[0].start = 1
    (found,) = world.ask(talk, request_, **fields)
    assert found.status == status
    assert set(found.fields) >= {"error", "message"}
    if status.startswith(b"416"):
        assert (found.fields["start"], found.fields["readable"]) == (1, 2)


def test_who_wants_no_answer_gets_none(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", b"a")
    world.turn()
    for request in (b"READ.t", b"FOLLOW.t", b"TOPICS", b"NONSENSE"):
        assert talk.say(b"PUB $POLYMQ.LOG.%b 0\r\n\r\n" % request) == b""


def test_answers_cannot_be_requests(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", b"a")
    world.turn()
    for reply in (b"$POLYMQ.LOG.TOPICS", b"$POLYMQ.LOG.READ.t"):
        assert talk.say(b"PUB $POLYMQ.LOG.READ.t %b 0\r\n\r\n" % reply) == b""


def test_a_topic_is_followed_until_nobody_listens(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", b"old")
    world.turn()
    begun, old = world.ask(talk, b"FOLLOW.t", offset=0, to="tail.1")
    assert begun.fields == {"follow": begun.fields["follow"], "to": "tail.1", "next": 0}
    assert (old.subject, old.body) == (b"tail.1", b"old")
    world.core.publish("t", b"new")
    world.turn()
    assert offsets(messages_in(talk.hear())) == [1]
    talk.say(b"UNSUB 1\r\n")
    world.core.publish("t", b"more")
    world.turn()
    talk.say(b"SUB tail.* 1\r\n")
    world.core.publish("t", b"still more")
    world.turn()
    assert talk.hear() == b""


def test_following_begins_at_the_end_and_goes_to_the_reply(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", b"old")
    world.turn()
    (begun,) = world.ask(talk, b"FOLLOW.t")
    follow = begun.fields["follow"]
    assert begun.fields == {"follow": follow, "to": "in.box", "next": 1}
    world.core.publish("t", b"new")
    world.turn()
    assert offsets(messages_in(talk.hear())) == [1]
    (ended,) = world.ask(talk, b"CANCEL", follow=follow)
    assert ended.fields == {"follow": follow, "next": 2}
    world.core.publish("t", b"newer")
    world.turn()
    assert talk.hear() == b""
    (again,) = world.ask(talk, b"CANCEL", follow=follow)
    assert again.status == b"400 Bad Request"


def test_what_is_committed_between_two_looks_is_not_missed(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", b"old")
    world.turn()
    world.ask(talk, b"FOLLOW.t")
    world.commits = False
    world.core.publish("t", b"1")
    world.turn()
    assert talk.hear() == b""
    world.settle()
    assert offsets(messages_in(talk.hear())) == [1]


def test_replayed_messages_are_not_stored_again(world: BridgeWorld) -> None:
    talk = world.listening(b"in.box", b"c.copy")
    talk.say(b"PUB c.x 1\r\n1\r\n", b"PUB c.copy 1\r\n0\r\n")
    world.ask(talk, b"FOLLOW.c.x", offset=0, to="c.copy")
    assert world.kept("c.copy") == [b"0"]


def test_a_topic_that_is_deleted_ends_what_is_read_of_it(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", b"old")
    world.turn()
    world.ask(talk, b"FOLLOW.t")
    world.core.publish("t", b"gone")
    world.broker.tick()
    world.core.session.delete_topic("t")
    world.turn()
    world.core.publish("t", b"another")
    world.turn()
    (found,) = messages_in(talk.hear())
    assert found.status == b"404 Topic Not Found"


def test_damage_ends_what_is_read(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", b"old")
    world.turn()
    world.core.store.logs[0].failed = "the disk is gone"
    (found,) = world.ask(talk, b"READ.t")
    assert (found.status, found.fields["message"]) == (b"500 Server Error", "the disk is gone")
    (found,) = world.ask(talk, b"READ.t", time_ns=1)
    assert found.status == b"500 Server Error"


def test_many_requests_are_no_more_than_a_turn_has_time_for(world: BridgeWorld, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.nats.client.NATS_NS_PER_TURN_MAX", 0)
    world.core.publish("t", b"a")
    world.turn()
    talk.stream.incoming.append(b"PUB $POLYMQ.LOG.INFO.t in.box 0\r\n\r\n" * 50)
    found = 0
    while found < 50:
        world.pump.readable(talk.connection)
        world.pump.end_turn()
        answers = len(messages_in(talk.hear()))
        assert 1 <= answers <= limits.LIVE_NEW_TOPICS_PER_PASS_MAX
        found += answers
    world.turn()
    assert talk.hear() == b""


def test_who_has_much_to_receive_is_not_sent_more(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", *(bytes(1000) for _ in range(3000)))
    world.turn()
    talk.stream.room = 0
    talk.send(b'PUB $POLYMQ.LOG.READ.t in.box 14\r\n{"count":3000}\r\n')
    waiting = talk.connection.waiting_size_bytes()
    assert limits.LOG_REQUEST_BACKLOG_BYTES_MAX < waiting < 2 * limits.LOG_REQUEST_BACKLOG_BYTES_MAX
    talk.stream.room = 1 << 40
    world.pump.writable(talk.connection)
    world.turn()
    found = messages_in(talk.hear())
    assert offsets(found) == list(range(3000))
    assert found[-1].status == b"204 End Of Range"


def test_requests_under_way_are_bounded(world: BridgeWorld, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_REQUESTS_MAX", 2)
    world.core.publish("t", b"old")
    world.turn()
    for _ in range(2):
        (begun,) = world.ask(talk, b"FOLLOW.t", to="tail.x")
        assert begun.fields["follow"]
    (refused,) = world.ask(talk, b"FOLLOW.t", to="tail.x")
    assert refused.status == b"429 Too Many Requests"
    # Those to whom nobody listens any more make room.
    talk.say(b"UNSUB 1\r\n")
    (begun,) = world.ask(talk, b"FOLLOW.t")
    assert "follow" in begun.fields


def test_one_client_has_a_part_of_the_requests_under_way(world: BridgeWorld, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_REQUESTS_PER_SESSION_MAX", 2)
    world.core.publish("t", b"old")
    world.turn()
    other = world.listening(b"in.box")
    for _ in range(2):
        (begun,) = world.ask(talk, b"FOLLOW.t", to="tail.x")
    (refused,) = world.ask(talk, b"FOLLOW.t", to="tail.x")
    assert refused.status == b"429 Too Many Requests"
    other.hear()
    (begun,) = world.ask(other, b"FOLLOW.t", to="tail.x")
    assert begun.fields["follow"]


def test_nobody_cancels_what_another_one_follows(world: BridgeWorld, talk: Talk) -> None:
    world.core.publish("t", b"old")
    world.turn()
    (begun,) = world.ask(talk, b"FOLLOW.t", to="tail.1")
    (another,) = world.ask(talk, b"FOLLOW.t", to="tail.2")
    follow = begun.fields["follow"]
    assert min(len(follow), len(another.fields["follow"])) >= 16, "a name that is not guessed"
    other = world.listening(b"in.box")
    (refused,) = world.ask(other, b"CANCEL", follow=follow)
    assert refused.status == b"400 Bad Request"
    talk.hear()
    (ended,) = world.ask(talk, b"CANCEL", follow=follow)
    assert ended.fields["follow"] == follow


class CountingCourier:
    """Counts how often somebody is asked how much waits for him."""

    def __init__(self, world: BridgeWorld) -> None:
        self.count = 0
        courier = world.broker.live.courier
        self.waiting_size_bytes, courier.waiting_size_bytes = courier.waiting_size_bytes, self.counted  # type: ignore[method-assign]

    def counted(self, owner: object) -> int:
        self.count += 1
        return self.waiting_size_bytes(owner)


def test_many_who_wait_for_one_cost_as_much_as_one_does(world: BridgeWorld) -> None:
    slow = world.connect(QUIET)
    slow.send(b"".join(b"SUB tail.f %d\r\n" % sid for sid in range(100)))
    asking = world.listening(b"in.box")
    world.core.publish("t", *(bytes(3000) for _ in range(8)))
    world.turn()
    slow.stream.room = 0
    for _ in range(20):
        world.ask(asking, b"FOLLOW.t", to="tail.f", offset=0)
    waiting = slow.connection.waiting_size_bytes()
    assert limits.LOG_REQUEST_BACKLOG_BYTES_MAX < waiting < 2 * limits.LOG_REQUEST_BACKLOG_BYTES_MAX, (
        "what many listen to is read piece by piece"
    )
    counting = CountingCourier(world)
    for _ in range(10):
        world.turn()
        assert not world.broker.feeders[-1].is_busy
    assert counting.count <= 50, "one look at one of them, however many wait"
    slow.stream.room = 1 << 40
    world.pump.writable(slow.connection)
    for _ in range(250):
        world.pump.end_turn()
    assert len(offsets(messages_in(slow.hear()))) == 100 * 20 * 8


def test_who_left_is_not_waited_for(world: BridgeWorld, talk: Talk) -> None:
    slow = world.connect(QUIET)
    slow.say(b"SUB tail.1 7\r\n")
    world.core.publish("t", *(bytes(1000) for _ in range(3000)))
    world.turn()
    slow.stream.room = 0
    world.ask(talk, b"FOLLOW.t", to="tail.1", offset=0)
    talk.hear()
    assert slow.connection.waiting_size_bytes() > limits.LOG_REQUEST_BACKLOG_BYTES_MAX
    slow.send(b"UNSUB 7\r\n")
    found: list[int] = []
    for _ in range(100):
        world.turn()
        found += offsets(messages_in(talk.hear()))
    assert found[-1] == 2999


def test_few_listeners_are_looked_at_in_a_turn(world: BridgeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_REQUEST_LISTENERS_PER_TURN", 10)
    talk = world.connect(QUIET)
    talk.send(b"".join(b"SUB tail.* %d\r\n" % sid for sid in range(10)) + b"SUB in.box 99\r\n")
    world.core.publish("t", b"1")
    world.turn()
    for number in range(5):
        world.ask(talk, b"FOLLOW.t", to=f"tail.{number}")
    world.core.publish("t", b"2")
    world.broker.tick()
    world.commit()
    door = next(each for each in world.broker.feeders if isinstance(each, LogDoor))
    for number in range(1, 8):
        before = world.broker.live.space().message_count
        door.show()
        assert world.broker.live.space().message_count - before == (number <= 5)


# May publish everything but `closed`, and hear nothing that begins with `secret`.
RESTRICTED = Principal("restricted", live=PatternRules(publish_deny=[NameRule(b"closed")], listen_deny=[NameRule(b"secret.>")]))


class Restricted(OpenDoor):
    nobody: Principal | None = RESTRICTED

    def begin(self, *_: object) -> Principal:
        return RESTRICTED


def test_who_may_not_listen_may_not_read() -> None:
    world = BridgeWorld(logins=Restricted())
    talk = world.listening(b"in.box", b"closed")
    for name in ("secret.t", "t"):
        world.core.publish(name, b"x")
    world.turn()
    (topics,) = world.ask(talk, b"TOPICS")
    assert topics.fields["topics"] == ["t"]
    for request in (b"INFO.secret.t", b"READ.secret.t", b"FOLLOW.secret.t"):
        (found,) = world.ask(talk, request)
        assert found.status == b"403 Forbidden"
    (found,) = world.ask(talk, b"FOLLOW.t", to="closed")
    assert found.status == b"400 Bad Request"


# May ask the log, publish to `orders.new`, and listen to its own inbox and to whatever the orders are.
ASKER = Principal(
    "asker",
    live=PatternRules(
        publish_allow=[NameRule(b"$POLYMQ.LOG.>"), NameRule(b"orders.new")],
        listen_allow=[NameRule(b"_INBOX.asker.>"), NameRule(b"orders.>"), NameRule(b">")],
        answers=AnswerRule(None, None),
    ),
)


class Asking(OpenDoor):
    nobody: Principal | None = None

    def begin(self, connect: Any, *_: object) -> Principal:
        return ASKER if connect.name == "asker" else Principal("admin")


def test_nobody_has_the_log_publish_for_him_where_he_may_not() -> None:
    world = BridgeWorld(NatsSettings(capture=("orders.>",)), logins=Asking())
    admin = world.connect(QUIET)
    admin.say(b"SUB admin.> 1\r\n")
    asker = world.connect(QUIET.replace(b"{", b'{"name":"asker",', 1))
    asker.say(b"SUB _INBOX.asker.* 1\r\nSUB > 2\r\nSUB orders.> 3\r\n", b"PUB orders.new 6\r\nreboot\r\n")
    admin.say(b"PUB orders.new admin.cmd 0\r\n\r\n")  # he is asked, and may answer this: but have nothing answered there
    asker.hear()
    for request in (b"READ.orders.new", b"FOLLOW.orders.new", b"INFO.orders.new", b"TOPICS", b"READ.no", b"NONSENSE", b"CANCEL"):
        asker.say(b"PUB $POLYMQ.LOG.%b admin.cmd 0\r\n\r\n" % request)
        assert (admin.hear(), messages_in(asker.hear())) == (b"", [])
    payload = b'{"to":"admin.cmd","offset":0}'
    said = asker.say(b"PUB $POLYMQ.LOG.FOLLOW.orders.new _INBOX.asker.1 %d\r\n%b\r\n" % (len(payload), payload))
    assert b"400 Bad Request" in [each.status for each in messages_in(said)]
    assert admin.hear() == b""
    found = messages_in(asker.say(b"PUB $POLYMQ.LOG.READ.orders.new _INBOX.asker.2 0\r\n\r\n"))
    assert b"reboot" in [each.body for each in found], "his own inbox, although he may not publish to it"
    found = messages_in(asker.say(b"PUB $POLYMQ.LOG.TOPICS orders.new 0\r\n\r\n"))
    assert found, "what he may publish to"


def test_what_is_imported_reads_no_log() -> None:
    world = BridgeWorld(logins=Accounts())
    live = world.broker.live
    rules = [ImportRule(True, "A", b"$POLYMQ.LOG.>", "B", b"log.>"), ImportRule(False, "A", b"$POLYMQ.LOG.>", "B", b"$POLYMQ.LOG.>")]
    Imports(live, rules, world.clock.monotonic_ns, lambda size: b"x" * size)
    a, b = (world.connect(QUIET.replace(b"{", b'{"name":"%b",' % name, 1)) for name in (b"A", b"B"))
    for talk in (a, b):
        talk.say(b"SUB in.box 1\r\n")
    a.say(b"PUB c.of.a 1\r\nx\r\n")
    b.say(b"PUB c.of.b 1\r\nx\r\n")
    for request in (b"TOPICS", b"INFO.c.of.a", b"READ.c.of.a", b"READ.c.of.b"):
        (found,) = messages_in(b.say(b"PUB log.%b in.box 0\r\n\r\n" % request))
        assert found.status == b"403 Forbidden"
        assert "import" in found.fields["message"]
    b.say(b"SUB $POLYMQ.LOG.> 2\r\n")
    (found,) = messages_in(a.say(b"PUB $POLYMQ.LOG.TOPICS in.box 0\r\n\r\n"))
    assert found.fields["topics"] == ["c.of.a"]
    assert [each.subject for each in messages_in(b.hear())] == [b"$POLYMQ.LOG.TOPICS"], "heard here, and asked there"


@pytest.mark.parametrize("both", [False, True])
def test_other_servers_clients_may_ask_if_they_are_let(both: bool) -> None:
    world = BridgeWorld(NatsSettings(log_requests="both" if both else "clients", log_requests_routed=("t", "open.>")))
    talk = world.listening(b"in.box")
    for name in ("t", "secret.t"):
        world.core.publish(name, b"x")
    world.turn()

    def routed(request: bytes) -> list[Heard]:
        batch = LiveBatch.of([LiveMessage(b"$POLYMQ.LOG." + request, b"", b"in.box")])
        world.broker.live.space().publish(batch, Target(remote=True))
        world.turn()
        return messages_in(talk.hear())

    found = routed(b"READ.t")
    assert offsets(found) == ([0] if both else [])
    # There may be another server that has the topic.
    assert routed(b"READ.no") == routed(b"INFO.no") == routed(b"READ.open.no") == routed(b"CANCEL") == []
    # What they may do at their own servers is not known here: they read what is named for them.
    assert [each.status for each in routed(b"READ.secret.t")] == ([b"403 Forbidden"] if both else [])
    assert [each.fields["topics"] for each in routed(b"TOPICS")] == ([["t"]] if both else [])
    # What other protocols publish is heard under its topic's name, and is no question of anybody's.
    talk.say(b"SUB $POLYMQ.LOG.> 9\r\n")
    world.core.publish("$POLYMQ.LOG.FOLLOW.t", b'{"to":"in.box","offset":0}')
    world.turn()
    assert [each.subject for each in messages_in(talk.hear())] == [b"$POLYMQ.LOG.FOLLOW.t"]


def test_what_was_put_back_by_others_is_heard_and_read_once(world: BridgeWorld, talk: Talk) -> None:
    """A copy that PHPMQ's 005 has made for its group."""
    ears = world.listening(b"t")
    world.core.publish("t", b"a")
    world.turn()
    world.core.renew("t", Message(b"a"))
    world.turn()
    world.core.publish("t", b"b")
    world.turn()
    assert [heard.body for heard in messages_in(ears.hear())] == [b"a", b"b"]
    *found, end = world.ask(talk, b"READ.t")
    assert offsets(found) == [0, 2]
    assert end.fields == {"next": 3, "readable": 3}
