"""`polymq topic`, against the real endpoints."""

from __future__ import annotations

import json

import pytest

from polymq.core.policies import Expired, Full, TopicPolicy
from tests.unit.cli.at_hand import AtHand

SECOND_NS = 10**9


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> AtHand:
    broker = AtHand(monkeypatch)
    broker.world.post("/topic/create?topic=t")
    return broker


def test_topics_are_made_and_removed(broker: AtHand) -> None:
    assert broker.output("topic", "create", "u") == "created topic u\n"
    assert broker.world.session.topic_names() == ["t", "u"]
    assert broker.output("topic", "delete", "u") == "deleted topic u\n"
    assert broker.world.session.topic_names() == ["t"]
    assert broker.asked[-1] == ("POST", "/topic/delete?topic=u")
    assert (broker.reached, broker.closed) == ([("h", 1, "")] * 2, 2)


def test_a_topic_is_made_as_it_is_to_be(broker: AtHand) -> None:
    broker.output("topic", "create", "u", "--partitions", "4", "--durability", "fsync")
    topic = broker.world.broker.catalogue.topics["", "u"]
    assert (len(topic.partitions), topic.sync) == (4, True)


def test_topics_are_paused_and_emptied(broker: AtHand) -> None:
    assert broker.output("topic", "pause", "t") == "paused topic t\n"
    assert broker.world.view().paused
    assert broker.output("topic", "unpause", "t") == "unpaused topic t\n"
    assert not broker.world.view().paused
    broker.world.publish("t", b"x")
    broker.world.turn()
    assert broker.output("topic", "empty", "t") == "emptied topic t\n"
    assert broker.world.view().held == 0


def test_a_policy_is_shown(broker: AtHand) -> None:
    lines = [line.split("  ", 1) for line in broker.output("topic", "policy", "t").splitlines()]
    assert [(name, value.strip()) for name, value in lines] == [
        ("topic", "t"),
        ("ttl", "off"),
        ("expired", "drop"),
        ("max messages", "no limit"),
        ("max bytes", "no limit"),
        ("full", "reject"),
    ]
    assert json.loads(broker.output("topic", "policy", "t", "--json"))["ttl"] == 0
    assert {method for method, _ in broker.asked} == {"GET"}


def test_a_policy_is_chosen_option_by_option(broker: AtHand) -> None:
    broker.output("topic", "policy", "t", "--ttl", "7d", "--expired", "dead-letter")
    found = broker.output("topic", "policy", "t", "--max-messages", "1000000", "--max-bytes", "1GiB", "--full", "drop-oldest")
    assert "ttl           7d\n" in found
    assert "max messages  1,000,000\n" in found
    assert broker.world.session.topic_policy("t") == TopicPolicy(
        7 * 86_400 * SECOND_NS, Expired.DEAD_LETTER, 1_000_000, 1 << 30, Full.DROP_OLDEST
    )
    broker.output(
        "topic", "policy", "t", "--ttl", "off", "--expired", "drop", "--max-messages", "0", "--max-bytes", "0", "--full", "reject"
    )
    assert broker.world.session.topic_policy("t") == TopicPolicy()


def test_messages_are_looked_at(broker: AtHand) -> None:
    for index in range(300):
        broker.world.publish("t", b"%d" % index)
    broker.world.turn()
    assert broker.output("topic", "peek", "t", "--format", "body") == "".join(f"{index}\n" for index in range(10))
    assert broker.output("topic", "peek", "t", "--offset", "298", "--format", "body") == "298\n299\n"
    assert len(broker.output("topic", "peek", "t", "--count", "290").splitlines()) == 290
    (line,) = broker.output("topic", "peek", "t", "--offset", "299", "--format", "json").splitlines()
    assert json.loads(line) == {
        "time_ns": broker.world.clock.wall_ns(),
        "topic": "t",
        "id": "000000000000012b",
        "partition": 0,
        "offset": 299,
        "attempts": 0,
        "body": "299",
    }
    assert "  0:299  299\n" in broker.output("topic", "peek", "t", "--offset", "299")


def test_bytes_that_are_no_text_are_shown(broker: AtHand) -> None:
    broker.world.publish("t", b"\xff\x00")
    broker.world.turn()
    assert "\\xff\\x00\n" in broker.output("topic", "peek", "t")


def test_deferred_messages_are_listed_and_cancelled(broker: AtHand) -> None:
    assert broker.output("topic", "deferred", "t") == "nothing is deferred\n"
    for size, delay_s in ((1, 30 * 86_400), (2, 65), (1000, 1)):
        broker.world.publish("t", b"x" * size, delay_ns=delay_s * SECOND_NS)
    broker.world.turn()
    lines = [line.split() for line in broker.output("topic", "deferred", "t").splitlines()]
    assert [line[3:] for line in lines] == [["size"], ["30d", "1"], ["1m5s", "2"], ["1s", "1,000"]]
    ids = [line[0] for line in lines[1:]]
    rows = json.loads(broker.output("topic", "deferred", "t", "--json"))
    assert [row["id"] for row in rows] == ids
    assert len(json.loads(broker.run("topic", "deferred", "t", "--json", "--count", "2").stdout)) == 2
    assert "and more: --count shows more than 2" in broker.output("topic", "deferred", "t", "--count", "2")
    assert "and more" not in broker.output("topic", "deferred", "t", "--count", "3")
    assert broker.output("topic", "cancel", "t", *ids[:2]) == "cancelled 2 messages of topic t\n"
    assert broker.output("topic", "cancel", "t", ids[2]) == "cancelled 1 message of topic t\n"
    assert broker.world.session.scheduled("t") == []


def test_the_rest_of_a_list_of_ids_is_left_when_one_is_wrong(broker: AtHand) -> None:
    broker.world.publish("t", b"x", delay_ns=SECOND_NS)
    broker.world.turn()
    (row,) = json.loads(broker.output("topic", "deferred", "t", "--json"))
    done = broker.run("topic", "cancel", "t", row["id"], "0000000000000007")
    assert done.output == "cancelled 1 of 2 messages\n"
    assert str(done.exception).startswith("no deferred message 0000000000000007 waits in topic 't': polymq topic deferred t")


def test_due_times_are_rounded_for_people(broker: AtHand) -> None:
    broker.world.publish("t", b"x", delay_ns=10 * SECOND_NS)
    broker.world.turn()
    broker.world.clock.now_ns += 10 * SECOND_NS
    assert broker.output("topic", "deferred", "t").splitlines()[1].split()[3] == "now"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("policy", "nope"), "there is no topic 'nope': polymq stats lists all"),
        (("delete", "nope"), "there is no topic 'nope': polymq stats lists all"),
        (("create", "a$"), "'a$' cannot be the name of a topic: 1 to 64 letters, digits and . _ -, and perhaps #ephemeral behind them"),
        (("peek", "t", "--partition", "1"), "topic 't' has no partition 1: they are counted from 0"),
        (("cancel", "t", "7"), "'7' is not the id of a message: 16 hexadecimal digits, as polymq topic deferred t shows them"),
        (("policy", "t", "--ttl", "7"), '--ttl \'7\': expected a time with its unit, such as "250ms", "60s", "1h30m" or "7d", or off'),
        (("policy", "t", "--ttl", "1us"), "--ttl '1us': whole milliseconds"),
        (
            ("policy", "t", "--max-bytes", "much"),
            '--max-bytes \'much\': expected a size in bytes or with its unit, such as 1048576, "64KiB" or "2GiB"',
        ),
        (("policy", "t", "--max-messages", "9223372036854775808"), "the broker at h:1 refused /topic/policy: INVALID_MAX_MESSAGES (400)"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(broker: AtHand, arguments: tuple[str, ...], problem: str) -> None:
    assert broker.problem("topic", *arguments) == problem


def test_words_that_there_are_not(broker: AtHand) -> None:
    done = broker.run("topic", "policy", "t", "--full", "wait")
    assert done.exit_code == 2
    assert "drop-oldest" in done.output
    assert broker.asked == []
