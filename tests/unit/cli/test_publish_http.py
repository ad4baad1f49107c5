"""`polymq publish --key --header --http` publishes over HTTP what is typed, or says why that cannot be."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from polymq.cli.main import app
from tests.unit.cli.at_hand import AtHand


def test_a_key_and_headers_go_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = AtHand(monkeypatch)
    done = broker.run("publish", "t", "one", "zwei", "--key", "ü 1", "--header", "Trace: 7f3a", "--header", "trace:x y", "--header", "E:")
    assert (done.exit_code, done.stderr) == (0, "published 2 messages to t\n")
    assert broker.asked == [("POST", "/pub?topic=t"), ("POST", "/pub?topic=t")]
    assert broker.reached == [("h", 1, "")]
    assert broker.closed == 1
    rows = json.loads(broker.world.get("/topic/peek?topic=t").body)["messages"]
    assert [(row["key"], row["headers"], row["body"]) for row in rows] == [
        ("ü 1", [["trace", "7f3a"], ["trace", "x y"], ["e", ""]], body) for body in ("one", "zwei")
    ]


def test_without_them_many_go_as_one_over_http_too(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = AtHand(monkeypatch)
    assert broker.run("publish", "t", "a\nb", "", "c").stderr.startswith("stopped; the broker has acknowledged 0 messages")
    assert broker.run("publish", "t", "a\nb", "c").stderr == "published 2 messages to t\n"
    assert broker.asked[1:] == [("POST", "/mpub?topic=t&binary=true")]
    assert broker.run("publish", "t", "--whole", "--delay", "2s", "--http").exit_code == 1  # nothing is no message
    rows = json.loads(broker.world.get("/topic/peek?topic=t").body)["messages"]
    assert [row["body"] for row in rows] == ["a\nb", "c"]


def test_lines_with_a_key_go_one_by_one_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = AtHand(monkeypatch)
    broker.refuse_after = 2
    done = broker.run("publish", "t", "a", "b", "c", "--key", "k")
    assert done.stderr == "stopped; the broker has acknowledged 2 messages to t\n"
    assert str(done.exception).startswith("the broker is stopping")


def test_a_delay_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = AtHand(monkeypatch)
    assert broker.run("publish", "t", "later", "--delay", "10m", "--http").exit_code == 0
    assert broker.asked == [("POST", "/pub?topic=t&defer=600000")]
    assert "nothing for 3660000 ms: nsq.max_http_defer" in broker.problem("publish", "t", "later", "--delay", "61m")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--key", " k"], "--key ' k': HTTP carries no control characters, and no spaces at the ends"),
        (["--key", "a\nb"], "no control characters"),
        (["--header", "x: a\x7fb"], "no control characters"),
        (["--header", "x"], "expected 'Name: value'"),
        (["--header", "a b: c"], "expected 'Name: value'"),
        (["--header", ": c"], "expected 'Name: value'"),
        (["--header", "ü: c"], "expected 'Name: value'"),
        (["--key", "k", "--nsq", "h:1"], "--nsq names the broker for TCP"),
        (["--nsq-http", "h:1", "--nsq", "h:1"], "--nsq names the broker for TCP"),
    ],
)
def test_what_http_cannot_carry(arguments: list[str], says: str) -> None:
    assert says in str(CliRunner().invoke(app, ["publish", "t", "x", *arguments]).exception)
