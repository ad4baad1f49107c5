"""Runs of messages mean what their messages mean one by one, for whoever publishes them, and are handed on as runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.core.access import Principal
from polymq.core.live import LiveSpace
from polymq.core.live_rules import AnswerRule, NameRule, PatternRules
from polymq.core.policies import Full, TopicPolicy
from polymq.gateways.nats.logins import NatsUser, UserLogins
from polymq.limits import LIVE_REFUSALS_TOLD_MAX
from polymq.protocols.nats.settings import NatsSettings
from tests.unit.gateways.nats.bridge_world import BridgeWorld
from tests.unit.gateways.nats.harness import PLAIN, World, hurry

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.interest.targets import Target
    from polymq.wire.live import LiveBatch

NAMES = (b"a", b"a.b", b"b", b"a.*", b"a..b", b"_GR_.x", b"$NRG.x", b"c.a", b"c.b", b"c.\xff", b"no.a", b"in.1")
REPLIES = (b"", b"", b"in.1", b"b", b"_R_.x", b"nowhere")
SUBSCRIPTIONS = (b"a", b"a.>", b"in.*", b">", b"c.a", b"c.* q", b"b q")
USERS = [
    NatsUser(Principal("free"), "free"),
    NatsUser(Principal("bound", live=PatternRules(publish_deny=[NameRule(b"no.>"), NameRule(b"b")])), "bound"),
    NatsUser(Principal("asked", live=PatternRules(publish_deny=[NameRule(b"b")], answers=AnswerRule(1, None))), "asked"),
]


def wish(**wanted: object) -> bytes:
    return b"CONNECT " + json.dumps({"pedantic": False, **wanted}).encode() + b"\r\n"


def pub(subject: bytes, reply: bytes = b"", body: bytes = b"x") -> bytes:
    return b"PUB %b %b%d\r\n%b\r\n" % (subject, reply and reply + b" ", len(body), body)


@settings(max_examples=300)
@given(
    st.fixed_dictionaries(
        {
            "verbose": st.booleans(),
            "pedantic": st.booleans(),
            "echo": st.booleans(),
            "no_responders": st.booleans(),
            "user": st.sampled_from(("free", "bound", "asked")),
        }
    ),
    st.lists(st.sampled_from(SUBSCRIPTIONS), max_size=3, unique=True),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(REPLIES)), min_size=2, max_size=12),
)
def test_a_run_is_its_messages_one_by_one(
    wanted: dict[str, object], subscriptions: list[bytes], limited: bool, messages: list[tuple[bytes, bytes]]
) -> None:
    if not wanted["verbose"]:
        # Who is not verbose is told once for each batch.
        messages = [each for each in messages if not each[0].endswith(b"\xff")] or [(b"a", b"")]
    said = [pub(subject, reply, b"%d" % number) for number, (subject, reply) in enumerate(messages)]
    heard = []
    for pieces, hurried in (([b"".join(said)], False), (said, False), ([b"".join(said)], True)):
        world = BridgeWorld(logins=UserLogins(USERS, digest_key=b"k"))
        other = world.connect(wish(verbose=False, user="free") + b"SUB a 1\r\nSUB c.b 2\r\n")
        talk = world.connect()
        talk.say(wish(headers=True, **wanted), b"PING\r\n")
        for sid, name in enumerate(subscriptions):
            talk.say(b"SUB %b %d\r\n" % (name, sid))
        if limited:
            talk.say(b"UNSUB 0 2\r\n")
        with pytest.MonkeyPatch.context() as patch:
            if hurried:
                hurry(patch)
            talk.send(*pieces)
        heard.append((talk.hear(), other.hear(), world.kept("c.a") if ("", "c.a") in world.broker.catalogue.topics else []))
    assert heard[0] == heard[1] == heard[2]


class Counted:
    """Counts what is published to spaces: batches, and the messages of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        publish = LiveSpace.publish_some

        def counted(space: LiveSpace, batch: LiveBatch, sender: Target | None, late: Callable[[], bool] | None) -> tuple[int, int]:
            self.sizes.append(batch.count)
            return publish(space, batch, sender, late)

        monkeypatch.setattr(LiveSpace, "publish_some", counted)


@pytest.mark.parametrize("wanted", [{"verbose": True}, {"verbose": False, "pedantic": True}, {"verbose": True, "pedantic": True}])
@pytest.mark.parametrize("subscription", [b"", b"SUB in.* 1\r\n", b"SUB a.> 1\r\n"], ids=["alone", "inbox", "hears itself"])
@pytest.mark.parametrize("name", [b"a.b", b"c.a"], ids=["live", "stored"])
def test_a_run_is_one_batch(wanted: dict[str, bool], subscription: bytes, name: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    world = BridgeWorld()
    talk = world.connect()
    talk.say(wish(headers=True, no_responders=True, **wanted) + subscription)
    counted = Counted(monkeypatch)
    heard = talk.say(pub(name) * 50)
    assert counted.sizes == [50]
    assert heard.count(b"+OK\r\n") == (50 if wanted["verbose"] else 0)


def test_a_run_ends_where_something_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = BridgeWorld().connect()
    talk.say(wish(pedantic=True))
    counted = Counted(monkeypatch)
    assert talk.say(pub(b"a") * 5 + pub(b"_GR_.x") + pub(b"a") * 3 + pub(b"a.*") + pub(b"a") * 2) == (
        b"+OK\r\n" * 5
        + b"-ERR 'Permissions Violation for Publish to \"_GR_.x\"'\r\n"
        + b"+OK\r\n" * 3
        + b"-ERR 'Invalid Publish Subject'\r\n"
        + b"+OK\r\n" * 3
    )
    assert counted.sizes == [5, 3, 3]


def test_the_ok_of_each_comes_before_what_the_client_hears_of_it() -> None:
    talk = BridgeWorld().connect()
    talk.say(wish(), b"SUB a 1\r\n", b"SUB a 2\r\n", b"SUB b 3\r\n", b"UNSUB 2 1\r\n")
    assert talk.say(pub(b"x") + pub(b"a", body=b"1") + pub(b"x") * 2 + pub(b"b", body=b"2") + pub(b"a", body=b"3") + pub(b"x")) == (
        b"+OK\r\n+OK\r\nMSG a 1 1\r\n1\r\nMSG a 2 1\r\n1\r\n+OK\r\n+OK\r\n+OK\r\nMSG b 3 1\r\n2\r\n+OK\r\nMSG a 1 1\r\n3\r\n+OK\r\n"
    )


def test_the_ok_of_each_comes_before_an_answer_from_within_the_broker() -> None:
    """The door to the log listens, and answers at once."""
    talk = BridgeWorld().connect()
    talk.say(wish(headers=True), b"SUB in.box 1\r\n")
    heard = talk.say(pub(b"x") + pub(b"$POLYMQ.LOG.TOPICS", b"in.box", b"") + pub(b"x"))
    assert heard.startswith(b"+OK\r\n" * 2)
    assert heard.count(b"+OK\r\n") == 3
    assert heard.count(b"MSG in.box 1 ") == 1


def test_the_oks_of_a_run_wait_until_what_is_stored_of_it_is_durable() -> None:
    world = BridgeWorld()
    talk = world.connect()
    talk.say(wish())
    world.commits = False
    assert talk.say(pub(b"c.a") * 2 + pub(b"c.b") + pub(b"live") + b"PING\r\n") == b""
    assert talk.say(pub(b"live")) == b""
    world.settle()
    assert talk.hear() == b"+OK\r\n" * 4 + b"PONG\r\n" + b"+OK\r\n"


def test_what_is_not_stored_is_told_in_the_place_of_its_ok() -> None:
    world = BridgeWorld()
    talk = world.connect()
    talk.say(wish())
    talk.say(pub(b"c.full"))
    world.core.session.set_topic_policy("c.full", TopicPolicy(messages_max=1, full=Full.REJECT))
    refused = b"-ERR 'Permissions Violation for Publish to \"c.full\": not stored: topic c.full holds 1 of 1 messages'\r\n"
    assert talk.say(pub(b"c.free") + pub(b"c.full") * 2 + pub(b"live") + pub(b"c.full") + pub(b"c.free")) == (
        b"+OK\r\n" + refused * 2 + b"+OK\r\n" + refused + b"+OK\r\n"
    )
    assert len(world.kept("c.free")) == 2


def test_few_refusals_are_told_to_who_is_not_verbose() -> None:
    world = BridgeWorld()
    quiet, verbose = world.connect(PLAIN), world.connect()
    verbose.say(wish())
    names = [b"c.\xff%d" % number for number in range(3 * LIVE_REFUSALS_TOLD_MAX)]
    said = b"".join(map(pub, names))
    assert quiet.say(said).count(b": not stored: ") == LIVE_REFUSALS_TOLD_MAX
    told = verbose.say(said + pub(b"live"))
    assert told.count(b": not stored: ") == len(names)
    assert told.endswith(b"\r\n+OK\r\n")


def test_the_oks_of_a_run_count_when_a_client_does_not_keep_up() -> None:
    message_size_max, line_size = 2 + 64, 5  # names and payload, and what is reckoned for the rest of a MSG
    for limit, closed in ((17 * (message_size_max + line_size), False), (17 * message_size_max + line_size, True)):
        world = World(NatsSettings(pending_size_bytes_max=limit))
        talk = world.connect()
        talk.say(wish(), b"SUB a 1\r\n")
        talk.stream.room = 0
        talk.send(pub(b"a") * 17)
        assert talk.closed is closed
        talk.stream.room = 1 << 20
        if not closed:
            world.pump.writable(talk.connection)
            world.turn()
            assert talk.hear() == b"+OK\r\nMSG a 1 1\r\nx\r\n" * 17
