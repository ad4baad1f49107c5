"""Looking at single messages over HTTP: pages, errors, and patience with the disk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polymq import limits
from polymq.errors import StoreFailed
from polymq.wire.batch import Message
from tests.unit.core.conftest import inbox
from tests.unit.core.fakes import START_NS
from tests.unit.gateways.nsq.http_world import Answer, NsqWorld, message, parse

SECOND_NS = 1_000_000_000


@pytest.fixture(params=[1, 4], ids=["one partition", "four partitions"])
def world(request: pytest.FixtureRequest) -> NsqWorld:
    world = NsqWorld(partitions=request.param)
    world.post("/topic/create?topic=t")
    world.post("/channel/create?topic=t&channel=c")
    return world


@pytest.fixture
def single() -> NsqWorld:
    world = NsqWorld()
    world.post("/topic/create?topic=t")
    world.post("/channel/create?topic=t&channel=c")
    return world


def page(answer: Answer) -> Any:
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["X-Nsq-Content-Type"] == "nsq; version=1.0"
    return json.loads(answer.text)


def everything(world: NsqWorld, path: str, place: str = "after") -> list[Any]:
    """All pages, as a client goes through them."""
    found: list[Any] = []
    query = ""
    for _ in range(100):
        answer = page(world.get(path + query))
        found += answer["messages"]
        if answer["next"] is None:
            return found
        query = f"&{place}={answer['next']}"
    raise AssertionError("the list has no end")


# What waits for a channel


def test_a_channels_backlog_is_shown_page_by_page(world: NsqWorld) -> None:
    for index in range(10):
        world.publish("t", b"%d" % index)
    world.turn()
    found = everything(world, "/channel/peek?topic=t&channel=c&count=3")
    assert sorted(each["body"] for each in found) == [str(index) for index in range(10)]
    assert [each["id"] for each in found] == sorted(each["id"] for each in found)
    assert {(each["attempts"], each["timestamp"]) for each in found} == {(0, START_NS)}
    assert sum(group.depth for group in world.view().groups) == 10, "nothing was consumed"


def test_what_is_out_is_not_in_the_backlog_and_what_came_back_is_with_its_attempts(single: NsqWorld) -> None:
    consumer = single.consume("t", "c", 2)
    single.publish("t", b"a", b"b", b"c")
    single.turn()
    single.session.credit(consumer, 0)
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    single.turn()
    found = everything(single, "/channel/peek?topic=t&channel=c")
    assert [(each["body"], each["attempts"]) for each in found] == [("a", 1), ("c", 0)]
    assert found[0]["id"] == f"{inbox(consumer).ids[0]:016x}"


def test_keys_and_headers_are_shown(single: NsqWorld) -> None:
    single.session.publish_messages("t", (Message(b"\xff", key=b"k", headers=((b"n", b"v"),)),), origin=1)
    single.turn()
    (found,) = everything(single, "/channel/peek?topic=t&channel=c")
    assert (found["key"], found["headers"], found["body_base64"], found["partition"]) == ("k", [["n", "v"]], "/w==", 0)


# What lies in a topic


def test_a_partition_is_looked_through_whoever_has_had_it(single: NsqWorld) -> None:
    consumer = single.consume("t", "c", 10)
    single.publish("t", *[b"%d" % index for index in range(7)])
    single.turn()
    single.settle(consumer, *inbox(consumer).ids)
    found = everything(single, "/topic/peek?topic=t&count=3", "offset")
    assert [(each["offset"], each["body"], each["partition"]) for each in found] == [(index, str(index), 0) for index in range(7)]
    assert [each["offset"] for each in page(single.get("/topic/peek?topic=t&offset=5"))["messages"]] == [5, 6]
    assert page(single.get("/topic/peek?topic=t&offset=7")) == {"messages": [], "next": None}


def test_each_partition_by_its_number() -> None:
    world = NsqWorld(partitions=4)
    for index in range(8):
        world.publish("t", b"%d" % index)
    world.turn()
    found = [everything(world, f"/topic/peek?topic=t&partition={partition}", "offset") for partition in range(4)]
    assert [len(each) for each in found] == [2, 2, 2, 2]
    assert [each[0]["partition"] for each in found] == [0, 1, 2, 3]
    assert message(world.get("/topic/peek?topic=t&partition=4")) == (400, "INVALID_PARTITION")


def test_large_pages_end_after_a_megabyte(single: NsqWorld) -> None:
    for _ in range(4):
        single.publish("t", b"x" * 500_000)
        single.turn()
    first = page(single.get("/topic/peek?topic=t"))
    assert (len(first["messages"]), first["next"]) == (3, 3)
    assert len(everything(single, "/topic/peek?topic=t", "offset")) == 4


# What is deferred


def test_deferred_publishes_are_listed_with_due_time_and_size(world: NsqWorld) -> None:
    for index in range(10):
        world.publish("t", b"x" * index, delay_ns=(index + 1) * SECOND_NS)
    world.turn()
    found = everything(world, "/topic/deferred?topic=t&count=3")
    assert sorted((each["size"], each["due"]) for each in found) == [(index, START_NS + (index + 1) * SECOND_NS) for index in range(10)]
    assert {each["timestamp"] for each in found} == {START_NS}


def test_a_deferred_publish_is_cancelled(world: NsqWorld) -> None:
    consumer = world.consume("t", "c", 10)
    world.post("/pub?topic=t&defer=1000", b"x")
    world.post("/pub?topic=t&defer=2000", b"yy")
    found = {each["size"]: each["id"] for each in everything(world, "/topic/deferred?topic=t")}
    answer = world.post(f"/topic/cancel?topic=t&id={found[1]}")
    assert (answer.status, answer.body) == (200, b"")
    assert message(world.post(f"/topic/cancel?topic=t&id={found[1]}")) == (404, "MESSAGE_NOT_FOUND")
    world.wait(3)
    assert inbox(consumer).bodies == [b"yy"]
    assert everything(world, "/topic/deferred?topic=t") == []


def test_what_was_given_back_for_later_is_listed_by_channel(world: NsqWorld) -> None:
    consumer = world.consume("t", "c", 10)
    for index in range(5):
        world.publish("t", b"%d" % index)
    world.turn()
    for number in inbox(consumer).ids:
        world.session.requeue(consumer, number, delay_ns=5 * SECOND_NS)
    found = everything(world, "/channel/deferred?topic=t&channel=c&count=2")
    assert [each["id"] for each in found] == [f"{number:016x}" for number in sorted(inbox(consumer).ids)]
    assert {(each["due"], each["attempts"]) for each in found} == {(START_NS + 5 * SECOND_NS, 1)}


# Patience, and what is wrong


@pytest.mark.parametrize("path", ["/topic/peek?topic=t", "/channel/peek?topic=t&channel=c", "/topic/deferred?topic=t"])
def test_what_is_on_the_disk_is_waited_for(single: NsqWorld, path: str) -> None:
    single.publish("t", b"x")
    single.publish("t", b"x", delay_ns=60 * SECOND_NS)
    single.turn()
    for log in single.store.logs.values():
        log.cold = True
    wire = single.raw(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    wire.wait(50 * limits.HTTP_POLL_INTERVAL_NS)
    assert wire.output == b""
    for log in single.store.logs.values():
        log.cold = False
    wire.wait(limits.HTTP_POLL_INTERVAL_NS)
    assert len(page(parse(wire.output))["messages"]) == 1


def test_a_topic_that_is_deleted_while_the_disk_is_read(single: NsqWorld) -> None:
    single.publish("t", b"x")
    single.turn()
    single.store.logs[0].cold = True
    wire = single.raw(b"GET /topic/peek?topic=t HTTP/1.1\r\nHost: h\r\n\r\n")
    single.session.delete_topic("t")
    wire.wait(limits.HTTP_POLL_INTERVAL_NS)
    assert message(parse(wire.output)) == (404, "TOPIC_NOT_FOUND")


def test_damage_is_said(single: NsqWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object, **__: object) -> None:
        raise StoreFailed("planted")

    monkeypatch.setattr("polymq.core.session.inspection.browse", damaged)
    assert message(single.get("/topic/peek?topic=t")) == (503, "STORE_FAILED")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=a$", 400, "INVALID_TOPIC"),
        ("topic=nope", 404, "TOPIC_NOT_FOUND"),
        ("topic=t&count=0", 400, "INVALID_COUNT"),
        ("topic=t&count=251", 400, "INVALID_COUNT"),
        ("topic=%zz", 400, "INVALID_REQUEST"),
    ],
)
@pytest.mark.parametrize("path", ["/topic/peek", "/topic/deferred"])
def test_what_cannot_be_listed_of_a_topic(single: NsqWorld, path: str, query: str, status: int, code: str) -> None:
    assert message(single.get(f"{path}?{query}")) == (status, code)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topic/peek?topic=t&partition=x", 400, "INVALID_PARTITION"),
        ("/topic/peek?topic=t&partition=1", 400, "INVALID_PARTITION"),
        ("/topic/peek?topic=t&offset=-1", 400, "INVALID_OFFSET"),
        ("/topic/deferred?topic=t&after=5", 400, "INVALID_AFTER"),
    ],
)
def test_arguments_of_one_list(single: NsqWorld, path: str, status: int, code: str) -> None:
    assert message(single.get(path)) == (status, code)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=a$&channel=c", 400, "INVALID_ARG_TOPIC"),
        ("topic=t", 400, "MISSING_ARG_CHANNEL"),
        ("topic=t&channel=c$", 400, "INVALID_ARG_CHANNEL"),
        ("topic=nope&channel=c", 404, "TOPIC_NOT_FOUND"),
        ("topic=t&channel=nope", 404, "CHANNEL_NOT_FOUND"),
        ("topic=t&channel=c&count=x", 400, "INVALID_COUNT"),
        ("topic=t&channel=c&after=x", 400, "INVALID_AFTER"),
    ],
)
@pytest.mark.parametrize("path", ["/channel/peek", "/channel/deferred"])
def test_what_cannot_be_listed_of_a_channel(single: NsqWorld, path: str, query: str, status: int, code: str) -> None:
    assert message(single.get(f"{path}?{query}")) == (status, code)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=a$", 400, "INVALID_TOPIC"),
        ("topic=t", 400, "MISSING_ARG_ID"),
        ("topic=t&id=7", 400, "INVALID_ID"),
        ("topic=t&id=0000000000000007", 404, "MESSAGE_NOT_FOUND"),
        ("topic=nope&id=0000000000000007", 404, "TOPIC_NOT_FOUND"),
    ],
)
def test_what_cannot_be_cancelled(single: NsqWorld, query: str, status: int, code: str) -> None:
    assert message(single.post(f"/topic/cancel?{query}")) == (status, code)


@pytest.mark.parametrize("path", ["/topic/peek", "/topic/deferred", "/channel/peek", "/channel/deferred"])
def test_looking_is_get(single: NsqWorld, path: str) -> None:
    assert message(single.post(f"{path}?topic=t&channel=c")) == (405, "METHOD_NOT_ALLOWED")


def test_cancelling_is_post(single: NsqWorld) -> None:
    assert message(single.get("/topic/cancel?topic=t&id=0000000000000007")) == (405, "METHOD_NOT_ALLOWED")
