"""/subsz: how many subscriptions there are, and which."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from polymq.gateways.nats import monitoring_format, monitoring_subsz
from tests.unit.gateways.nats.harness import QUIET
from tests.unit.gateways.nats.watched import Watched

if TYPE_CHECKING:
    from polymq.gateways.nats.figures import SubscriptionFigures


@pytest.fixture
def world() -> Watched:
    return Watched()


def test_subsz(world: Watched) -> None:
    world.connect(QUIET + b"SUB a.* 1\r\nSUB b q 2\r\nSUB c 3\r\nUNSUB 3\r\n")
    counted = world.document("/subsz")
    assert (counted["num_subscriptions"], counted["num_inserts"], counted["num_removes"], counted["total"]) == (2, 3, 1, 0)
    assert "subscriptions_list" not in counted
    rows = world.document("/subsz?subs=1")["subscriptions_list"]
    assert rows[0] == {"account": "$G", "account_tag": "$G", "subject": "a.*", "sid": "1", "msgs": 0, "cid": 1}
    assert [row["subject"] for row in world.document("/subsz?subs=1&offset=1")["subscriptions_list"]] == ["b"]
    (row,) = world.document("/subsz?subs=true&test=b")["subscriptions_list"]
    assert (row["qgroup"], row["sid"], row["cid"]) == ("q", "2", 1)
    assert world.document("/subsz?acc=other&subs=1")["num_subscriptions"] == 0
    assert world.document("/subsz?acc=$G")["num_subscriptions"] == 2


def test_rows_have_a_bound_and_are_made_when_they_are_sent(world: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring_format, "NATS_ROWS_MAX", 150)
    made: list[SubscriptionFigures] = []

    def described(each: SubscriptionFigures) -> dict[str, Any]:
        made.append(each)
        return monitoring_format.described_subscription(each)

    monkeypatch.setattr(monitoring_subsz, "described_subscription", described)
    for first in (0, 100):
        world.connect(QUIET + b"".join(b"SUB s%d %d\r\n" % (number, number) for number in range(first, first + 100)))
    answer = world.ask("/subsz?subs=1&limit=1000000")
    assert made == []
    assert not isinstance(answer.body, bytes)
    document = json.loads(b"".join(answer.body))
    assert (document["total"], document["limit"], len(document["subscriptions_list"])) == (150, 150, 150)
    assert len(made) == 150


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 5, 6])
def test_an_offset_counts_across_clients_and_accounts(world: Watched, offset: int) -> None:
    world.connect(QUIET + b"SUB a 1\r\nSUB b 2\r\n")
    world.connect(QUIET)
    world.connect(QUIET + b"SUB a 1\r\nSUB c q 2\r\nSUB d 3\r\n")
    for question, all_of_it in (("", ["a", "b", "a", "c", "d"]), ("&test=a", ["a", "a"])):
        document = world.document(f"/subsz?subs=1&offset={offset}{question}")
        assert [row["subject"] for row in document.get("subscriptions_list", ())] == all_of_it[offset:]
