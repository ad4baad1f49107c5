"""`polymq stats` puts the catalogue and the broker's numbers together."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console
from typer.testing import CliRunner

from polymq.cli.main import app
from polymq.cli.stats import TopicRow, gather, show, to_table
from polymq.clients.log import Family, LogClient, PartitionInfo, TopicInfo
from polymq.errors import ConfigError


def partition(index: int, start: int, end: int) -> PartitionInfo:
    return PartitionInfo(index, index, 1, ((1, 0),), start, end, end)


def sample(value: float, topic: str, group: str | None = None) -> tuple[dict[str, str], float]:
    return {"namespace": "", "topic": topic} | ({} if group is None else {"group": group}), value


TOPICS = (TopicInfo("", "orders", (partition(0, 5, 10), partition(1, 0, 3))), TopicInfo("", "empty", (partition(0, 0, 0),)))
FAMILIES = (
    Family("polymq_topic_held_messages", "gauge", "", (sample(4, "orders"), sample(1, "gone"))),
    Family("polymq_topic_scheduled_messages", "gauge", "", (sample(2, "orders"),)),
    Family("polymq_topic_message_bytes_total", "counter", "", (sample(99, "orders"),)),
    Family("polymq_group_depth_messages", "gauge", "", (sample(1234, "orders", "billing"), sample(0, "orders", "audit"))),
    Family("polymq_group_leased_messages", "gauge", "", (sample(7, "orders", "billing"),)),
)


class FakeClient(LogClient):
    def __init__(self, topics: tuple[TopicInfo, ...] = TOPICS) -> None:
        super().__init__("h:1")
        self.known = topics
        self.fetched = 0

    def topics(self) -> tuple[TopicInfo, ...]:
        self.fetched += 1
        return self.known

    def statistics(self) -> tuple[Family, ...]:
        return FAMILIES


def printed(client: FakeClient, *wanted: str, as_json: bool = False) -> str:
    console = Console(file=io.StringIO(), width=120, highlight=False)
    show(client, wanted, console, as_json=as_json)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_rows() -> None:
    groups = {"billing": {"waiting": 1234, "in_flight": 7}, "audit": {"waiting": 0}}
    assert gather(TOPICS, FAMILIES) == [TopicRow("empty", 1, 0, 0), TopicRow("orders", 2, 8, 13, 4, 2, groups=groups)]
    assert [row.name for row in gather(TOPICS, FAMILIES, ["empty"])] == ["empty"]


def test_namespaces_are_shown() -> None:
    assert gather((TopicInfo("eu", "orders", ()),), FAMILIES)[0].name == "eu/orders"


def test_the_table() -> None:
    lines = [line.split() for line in printed(FakeClient()).splitlines()]
    assert lines[0] == [
        "topic",
        "/",
        "channel",
        "in",
        "log",
        "published",
        "waiting",
        "in",
        "flight",
        "deferred",
        "requeued",
        "timed",
        "out",
    ]
    assert lines[1:] == [
        ["empty", "0", "0"],
        ["orders", "(2", "partitions)", "8", "13", "4", "2"],
        ["audit", "0"],
        ["billing", "1,234", "7"],
    ]


def test_json() -> None:
    rows = json.loads(printed(FakeClient(), "orders", as_json=True))
    assert [row["name"] for row in rows] == ["orders"]
    assert rows[0]["groups"]["billing"] == {"waiting": 1234, "in_flight": 7}


POLICIES = (
    Family("polymq_topic_limit_seconds", "gauge", "", (sample(604800, "orders"),)),
    Family("polymq_topic_limit_messages", "gauge", "", (sample(1e6, "orders"),)),
    Family("polymq_topic_limit_bytes", "gauge", "", (sample(1 << 30, "orders"), sample(7, "empty"))),
    Family("polymq_group_limit_attempts", "gauge", "", (sample(5, "orders", "billing"),)),
    Family("polymq_group_ordered", "gauge", "", (sample(1, "orders", "billing"), sample(1, "orders", "audit"))),
    Family("polymq_group_dead_letters_total", "counter", "", (sample(3, "orders", "billing"), sample(0, "orders", "audit"))),
    Family("polymq_group_expired_total", "counter", "", (sample(0, "orders", "billing"), sample(0, "orders", "audit"))),
)


def test_policies_and_what_they_did_are_shown_where_there_are_any() -> None:
    rows = gather(TOPICS, FAMILIES + POLICIES)
    console = Console(file=io.StringIO(), width=200, highlight=False)
    console.print(to_table(rows))
    assert isinstance(console.file, io.StringIO)
    titles, *lines = [re.split(r"  +", line.rstrip()) for line in console.file.getvalue().splitlines()]
    assert titles[-2:] == ["dead letters", "policy"]
    assert [line[-1] for line in lines] == [
        "7 bytes",
        "up to 7d old, 1,000,000 messages, 1GiB",
        "ordered by key",
        "5 attempts, ordered by key",
    ]
    assert lines[-1][-2] == "3"
    assert "expired" not in titles
    assert rows[1].limits == {"max_age_seconds": 604800, "max_messages": 1e6, "max_bytes": 1 << 30}
    assert (rows[1].groups["billing"]["max_attempts"], rows[1].groups["billing"]["expired"]) == (5, 0)


def test_no_topics() -> None:
    assert "polymq publish" in printed(FakeClient(()))
    assert printed(FakeClient(()), as_json=True) == "[]\n"


def test_topics_that_do_not_exist() -> None:
    with pytest.raises(ConfigError) as caught:
        printed(FakeClient(), "orders", "b", "a")
    assert caught.value.problems == ("there is no topic 'a': polymq stats lists all", "there is no topic 'b': polymq stats lists all")


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    monkeypatch.setattr("polymq.clients.log.LogClient", lambda address, **_: client if address == "h:1" else None)
    done = CliRunner().invoke(app, ["stats", "orders", "--http", "h:1", "--json"])
    assert json.loads(done.stdout)[0]["name"] == "orders"
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("polymq.cli.stats.time.sleep", sleep)
    assert CliRunner().invoke(app, ["stats", "--http", "h:1", "--watch", "2s"]).exit_code != 0
    assert pauses == [2.0, 2.0, 2.0]
    assert client.fetched == 4
    assert "--watch 'x'" in str(CliRunner().invoke(app, ["stats", "--watch", "x"]).exception)
