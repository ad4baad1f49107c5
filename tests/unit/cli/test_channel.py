"""`polymq channel`, against the real endpoints."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from polymq.cli.channel import place
from polymq.core.policies import GroupPolicy
from polymq.errors import ConfigError
from polymq.wire.batch import Message
from tests.unit.cli.at_hand import AtHand
from tests.unit.core.conftest import inbox

SECOND_NS = 10**9


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> AtHand:
    broker = AtHand(monkeypatch)
    broker.world.post("/topic/create?topic=t")
    broker.world.post("/channel/create?topic=t&channel=c")
    return broker


def test_channels_are_made_and_removed(broker: AtHand) -> None:
    assert broker.output("channel", "create", "t", "d#ephemeral") == "created channel d#ephemeral of topic t\n"
    assert [group.name for group in broker.world.view().groups] == ["c", "d#ephemeral"]
    assert broker.output("channel", "delete", "t", "c") == "deleted channel c of topic t\n"
    assert [group.name for group in broker.world.view().groups] == ["d#ephemeral"]
    assert broker.asked[-1] == ("POST", "/channel/delete?topic=t&channel=c")


def test_channels_are_paused_and_emptied(broker: AtHand) -> None:
    assert broker.output("channel", "pause", "t", "c") == "paused channel c of topic t\n"
    assert broker.world.view().groups[0].paused
    assert broker.output("channel", "unpause", "t", "c") == "unpaused channel c of topic t\n"
    assert not broker.world.view().groups[0].paused
    broker.world.publish("t", b"x")
    broker.world.turn()
    assert broker.output("channel", "empty", "t", "c") == "emptied channel c of topic t\n"
    assert broker.world.view().groups[0].depth == 0


def test_a_policy_is_shown(broker: AtHand) -> None:
    lines = [line.split("  ", 1) for line in broker.output("channel", "policy", "t", "c").splitlines()]
    assert [(name, value.strip()) for name, value in lines] == [
        ("topic", "t"),
        ("channel", "c"),
        ("max attempts", "no limit"),
        ("dead letter topic", "t.c.dead"),
        ("ordered", "no"),
        ("on disconnect", "default"),
    ]
    assert json.loads(broker.output("channel", "policy", "t", "c", "--json"))["dead_letter"] == ""


def test_a_policy_is_chosen_option_by_option(broker: AtHand) -> None:
    broker.output("channel", "policy", "t", "c", "--max-attempts", "5", "--dead-letter", "failed")
    found = broker.output("channel", "policy", "t", "c", "--ordered", "--on-disconnect", "requeue")
    assert "max attempts       5\n" in found
    assert "ordered            yes\n" in found
    assert broker.world.session.group_policy("t", "c") == GroupPolicy(5, "failed", ordered=True, requeue_on_close=True)
    broker.output("channel", "policy", "t", "c", "--max-attempts", "0", "--dead-letter", "", "--unordered", "--on-disconnect", "default")
    assert broker.world.session.group_policy("t", "c") == GroupPolicy()


def test_the_backlog_is_looked_at(broker: AtHand) -> None:
    broker.world.session.publish_messages("t", (Message(b"x", key=b"k", headers=((b"n", b"v"),)),), origin=1)
    broker.world.turn()
    line = broker.output("channel", "peek", "t", "c")
    assert line.endswith("  0000000000000000  k → x\n")
    found = json.loads(broker.output("channel", "peek", "t", "c", "--format", "json"))
    assert (found["topic"], found["channel"], found["key"], found["headers"]) == ("t", "c", "k", [["n", "v"]])


def test_attempts_are_shown(broker: AtHand) -> None:
    consumer = broker.world.consume("t", "c", 1)
    broker.world.publish("t", b"x")
    broker.world.turn()
    broker.world.session.credit(consumer, 0)
    broker.world.session.requeue(consumer, *inbox(consumer).ids, delay_ns=0)
    broker.world.turn()
    assert "0000000000000000 ×1  x\n" in broker.output("channel", "peek", "t", "c")


def test_what_was_given_back_for_later_is_listed(broker: AtHand) -> None:
    assert broker.output("channel", "deferred", "t", "c") == "nothing is deferred\n"
    consumer = broker.world.consume("t", "c", 1)
    broker.world.publish("t", b"x")
    broker.world.turn()
    broker.world.session.requeue(consumer, *inbox(consumer).ids, delay_ns=3700 * SECOND_NS)
    titles, row = (line.split() for line in broker.output("channel", "deferred", "t", "c").splitlines())
    assert titles == ["id", "due", "in", "attempts"]
    assert (row[0], row[3:]) == ("0000000000000000", ["1h1m", "1"])


def test_a_channel_goes_back(broker: AtHand) -> None:
    broker.world.publish("t", *[b"%d" % index for index in range(5)])
    broker.world.turn()
    assert broker.output("channel", "replay", "t", "c", "--from", "end") == "channel c of topic t goes on from end\n"
    assert broker.world.view().groups[0].depth == 0
    broker.output("channel", "replay", "t", "c", "--from", "2", "--partition", "0")
    assert broker.world.view().groups[0].depth == 3
    assert broker.asked[-1] == ("POST", "/channel/replay?topic=t&channel=c&partition=0&offset=2")
    broker.output("channel", "replay", "t", "c", "--from", "1h")
    assert broker.world.view().groups[0].depth == 5


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("start", ("from", "start")),
        ("end", ("from", "end")),
        ("0", ("offset", "0")),
        ("1700000000", ("offset", "1700000000")),
        ("1700000000000000000", ("time", "1700000000000000000")),
        ("2h", ("ago", "7200000")),
        ("1h30m", ("ago", "5400000")),
        ("2026-02-28T13:00:00+01:00", ("time", None)),
        ("2026-02-28T13:00Z", ("time", None)),
        ("2026-02-28 13:00", ("time", None)),
        ("2026-02-28", ("time", None)),
    ],
)
def test_where_to_go_on(text: str, found: tuple[str, str | None]) -> None:
    name, value = place(text)
    assert name == found[0]
    if found[1] is None:
        moment = datetime.fromisoformat(value)
        assert moment.tzinfo is not None
        assert moment == datetime.fromisoformat(text).astimezone()
    else:
        assert value == found[1]


@pytest.mark.parametrize("text", ["", "off", "yesterday", "-1", "2026-02-30"])
def test_places_that_there_are_not(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--from '.*': expected start, end, an offset \(a number\), how long ago, such as 2h, or a time"):
        place(text)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("policy", "nope", "c"), "there is no topic 'nope': polymq stats lists all"),
        (("policy", "t", "nope"), "topic 't' has no channel 'nope': polymq stats t lists them"),
        (
            ("create", "t", "c$"),
            "'c$' cannot be the name of a channel: 1 to 64 letters, digits and . _ -, and perhaps #ephemeral behind them",
        ),
        (
            ("policy", "t", "c", "--dead-letter", "t"),
            "'t' cannot be the dead-letter topic of 't': another topic, not an ephemeral one",
        ),
        (("policy", "t", "c", "--max-attempts", "70000"), "--max-attempts: 0 (no limit) to 65534"),
        (("replay", "t", "c", "--from", "start", "--partition", "3"), "topic 't' has no partition 3: they are counted from 0"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(broker: AtHand, arguments: tuple[str, ...], problem: str) -> None:
    assert broker.problem("channel", *arguments) == problem


def test_replay_needs_a_place(broker: AtHand) -> None:
    done = broker.run("channel", "replay", "t", "c")
    assert done.exit_code == 2
    assert "--from" in done.output
    assert broker.asked == []
