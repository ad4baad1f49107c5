"""/connz: what is listed, in which order, and how much of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from polymq.gateways.nats import monitoring_connz, monitoring_format
from polymq.gateways.nats.figures import ConnectionFigures, figures_of
from polymq.limits import NATS_DEPARTED_MAX, NATS_DEPARTED_SUBSCRIPTIONS_MAX, NATS_ROW_SUBSCRIPTIONS_MAX
from tests.unit.gateways.nats.harness import PLAIN, QUIET, SECOND_NS
from tests.unit.gateways.nats.watched import Watched, named

if TYPE_CHECKING:
    from polymq.gateways.nats.client import NatsClient


@pytest.fixture
def world() -> Watched:
    return Watched()


def test_connections_are_sorted_and_cut(world: Watched) -> None:
    talks = [world.connect(named(name)) for name in ("a", "b", "c")]
    talks[1].say(b"SUB x 1\r\nSUB y 2\r\n")
    talks[2].say(b"SUB x 1\r\nPUB x 5\r\n12345\r\n")
    world.clock.now_ns += SECOND_NS
    talks[0].say(b"PUB x 1\r\n1\r\n" * 3)
    assert world.names("/connz") == ["a", "b", "c"]
    assert world.names("/connz?sort=subs")[0] == "b"
    assert world.names("/connz?sort=msgs_from")[0] == "a"
    assert world.names("/connz?sort=bytes_from")[0] == "c"
    assert world.names("/connz?sort=msgs_to")[-1] == "a"
    assert world.names("/connz?sort=last")[0] == "a"
    assert world.names("/connz?sort=idle")[-1] == "a"
    assert world.names("/connz?offset=1&limit=1") == ["b"]
    assert world.names("/connz?offset=-5&limit=-1") == ["a", "b", "c"]
    assert world.names("/connz?cid=2") == ["b"]
    assert world.names("/connz?acc=$G") == ["a", "b", "c"]
    assert world.document("/connz?acc=other")["total"] == 0
    assert world.document("/connz?user=nobody")["connections"] == []
    assert world.document("/connz?offset=2")["num_connections"] == 1


def test_what_waits_is_pending(world: Watched) -> None:
    talk = world.connect(named("slow") + b"SUB a 1\r\n")
    talk.stream.room = 0
    world.connect(PLAIN).send(b"PUB a 1\r\nx\r\n")
    assert world.document("/connz")["connections"][0]["pending_bytes"] == len(b"MSG a 1 1\r\nx\r\n")
    assert world.names("/connz?sort=pending")[0] == "slow"


def test_subscriptions_of_a_connection(world: Watched) -> None:
    talk = world.connect(QUIET + b"SUB a.> 1\r\nSUB \xff q 2\r\nUNSUB 2 9\r\n")
    talk.say(b"PUB a.b 1\r\nx\r\n")
    (row,) = world.document("/connz?subs=1")["connections"]
    assert row["subscriptions_list"] == ["a.>", "\ufffd"]
    assert b'"a.\\u003e"' in world.body("/connz?subs=1")
    (row,) = world.document("/connz?subs=DETAIL")["connections"]
    assert row["subscriptions_list_detail"] == [
        {"subject": "a.>", "sid": "1", "msgs": 1, "cid": 1},
        {"subject": "\ufffd", "qgroup": "q", "sid": "2", "msgs": 0, "max": 9, "cid": 1},
    ]


def test_who_has_gone_is_remembered_for_a_while(world: Watched) -> None:
    for number in range(NATS_DEPARTED_MAX + 5):
        talk = world.connect(named(f"n{number}"))
        if number == NATS_DEPARTED_MAX:
            talk.say(b"".join(b"SUB s%d %d\r\n" % (each, each) for each in range(20)))
        talk.hang_up()
    document = world.document("/connz?state=closed&limit=2000&subs=1")
    assert document["total"] == len(document["connections"]) == NATS_DEPARTED_MAX
    rows = {row["name"]: row for row in document["connections"]}
    assert rows["n5"]["reason"] == "Client Closed"
    many = rows[f"n{NATS_DEPARTED_MAX}"]
    assert (many["subscriptions"], len(many["subscriptions_list"])) == (20, NATS_DEPARTED_SUBSCRIPTIONS_MAX)


def test_a_long_list_comes_in_pieces_that_are_one_document(world: Watched) -> None:
    for number in range(150):
        world.connect(named(f"<{number}>"))
    answer = world.ask("/connz")
    assert not isinstance(answer.body, bytes)
    pieces = list(answer.body)
    assert len(pieces) == 5
    body = b"".join(pieces)
    document = json.loads(body)
    assert [row["name"] for row in document["connections"]] == [f"<{number}>" for number in range(150)]
    assert json.dumps(document, indent=2).replace("<", "\\u003c").replace(">", "\\u003e").encode() == body


def test_rows_have_a_bound_whatever_is_asked_for(world: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring_format, "NATS_ROWS_MAX", 2)
    for name in ("a", "b", "c"):
        world.connect(named(name))
    document = world.document("/connz?limit=1000000&sort=rtt")
    assert (document["num_connections"], document["total"], document["limit"]) == (2, 3, 2)


@pytest.mark.parametrize(("asked", "member"), [("1", "subscriptions_list"), ("detail", "subscriptions_list_detail")])
def test_a_row_has_so_many_subscriptions_at_most(world: Watched, asked: str, member: str) -> None:
    count = NATS_ROW_SUBSCRIPTIONS_MAX + 1
    for _ in range(2):
        world.connect(QUIET + b"".join(b"SUB s%d %d\r\n" % (number, number) for number in range(count)))
    answer = world.ask(f"/connz?subs={asked}")
    assert not isinstance(answer.body, bytes)
    pieces = list(answer.body)
    assert len(pieces) == 4, "each such row is made by itself"
    for row in json.loads(b"".join(pieces))["connections"]:
        assert (row["subscriptions"], len(row[member])) == (count, NATS_ROW_SUBSCRIPTIONS_MAX)


def test_of_those_who_are_not_shown_nothing_is_put_together(world: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(client: NatsClient, **more: Any) -> ConnectionFigures:
        made.append(client.id)
        return figures_of(client, **more)

    monkeypatch.setattr(monitoring_connz, "figures_of", counted)
    for name in ("a", "b", "c"):
        world.connect(named(name))
    for sort in ("cid", "subs", "pending", "uptime", "idle"):
        made.clear()
        assert len(world.document(f"/connz?limit=1&sort={sort}")["connections"]) == 1
        assert len(made) == 1
