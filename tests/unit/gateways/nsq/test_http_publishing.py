"""`/pub` and `/mpub`: what reaches the log, when OK is said, and what is refused first."""

from __future__ import annotations

import pytest

from polymq.core.ports import TicketState
from polymq.core.session import Session
from polymq.protocols.nsq.settings import NsqSettings
from tests.unit.core.conftest import inbox
from tests.unit.core.fakes import FakeTicket
from tests.unit.gateways.nsq.http_world import NsqWorld, message, parse

from .golden_requests import number

SETTINGS = NsqSettings(message_size_bytes_max=100, body_size_bytes_max=1000)


@pytest.fixture
def world() -> NsqWorld:
    return NsqWorld(settings=SETTINGS)


def published(world: NsqWorld, topic: str = "t") -> list[bytes]:
    subscription = world.consume(topic, "reader", 10_000)
    world.turn()
    return inbox(subscription).bodies


def test_pub_publishes_the_body(world: NsqWorld) -> None:
    assert world.post("/pub?topic=t", b"hello\n").text == "OK"
    assert published(world) == [b"hello\n"]


def test_mpub_publishes_lines(world: NsqWorld) -> None:
    assert world.post("/mpub?topic=t", b"a\n\nbb\n").text == "OK"
    assert published(world) == [b"a", b"bb"]


def test_mpub_publishes_binary(world: NsqWorld) -> None:
    body = number(2) + number(1) + b"\n" + number(2) + b"bb"
    assert world.post("/mpub?topic=t&binary=true", body).text == "OK"
    assert published(world) == [b"\n", b"bb"]


def test_mpub_is_one_batch(world: NsqWorld) -> None:
    world.post("/mpub?topic=t", b"a\nb\nc")
    (log,) = world.store.logs.values()
    assert [count for _, count, _ in log.index] == [3]


def test_bad_message_publishes_nothing(world: NsqWorld) -> None:
    assert message(world.post("/mpub?topic=t", b"a\n" + b"x" * 101)) == (413, "MSG_TOO_BIG")
    assert message(world.post("/mpub?topic=t&binary=1", number(2) + number(1) + b"a" + number(0))) == (413, "BAD_MESSAGE")
    assert published(world) == []


def test_topic_is_made_before_the_messages_are_looked_at(world: NsqWorld) -> None:
    world.post("/mpub?topic=a", b"x" * 101)
    world.post("/pub?topic=b&defer=soon", b"x")
    world.post("/mpub?topic=c&binary=1", b"")
    assert world.session.topic_names() == ["a", "b", "c"]


def test_nothing_is_made_for_an_empty_message(world: NsqWorld) -> None:
    assert message(world.post("/pub?topic=a")) == (400, "MSG_EMPTY")
    assert world.session.topic_names() == []


def test_too_large_a_message_is_refused_from_its_head(world: NsqWorld) -> None:
    wire = world.raw(b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n")
    assert message(parse(wire.output)) == (413, "MSG_TOO_BIG")
    assert wire.closed == "answered"
    wire = world.raw(b"POST /mpub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n")
    assert message(parse(wire.output)) == (413, "BODY_TOO_BIG")
    assert world.session.topic_names() == []


def test_largest_message_and_body(world: NsqWorld) -> None:
    assert world.post("/pub?topic=t", b"x" * 100).status == 200
    lines = b"\n".join([b"x" * 99] * 10)
    assert world.post("/mpub?topic=t", lines + b"\n").status == 200
    assert len(published(world)) == 11


def test_chunked_bodies(world: NsqWorld) -> None:
    head = b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert parse(world.raw(head + b"2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n").output).text == "OK"
    assert message(parse(world.raw(head + b"0\r\n\r\n").output)) == (400, "MSG_EMPTY")
    assert message(parse(world.raw(head + b"65\r\n" + b"x" * 101).output)) == (413, "MSG_TOO_BIG")
    assert message(parse(world.raw(head + b"nonsense\r\n").output)) == (500, "INTERNAL_ERROR")
    many = head.replace(b"/pub", b"/mpub")
    assert message(parse(world.raw(many + b"nonsense\r\n").output)) == (500, "INTERNAL_ERROR")
    assert message(parse(world.raw(many + b"3e9\r\n" + b"x" * 1001).output)) == (413, "BODY_TOO_BIG")
    assert published(world) == [b"abc"]


def test_body_that_is_cut_off_is_not_published(world: NsqWorld) -> None:
    wire = world.raw(b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab").end()
    assert message(parse(wire.output)) == (500, "INTERNAL_ERROR")
    assert world.session.topic_names() == []


def test_deferred_publish(world: NsqWorld) -> None:
    world.post("/pub?topic=t&defer=1500", b"later")
    subscription = world.consume("t", "c", 10)
    world.wait(1.4)
    assert inbox(subscription).bodies == []
    world.wait(0.2)
    assert inbox(subscription).bodies == [b"later"]


@pytest.mark.parametrize(("delay", "status"), [("0", 200), ("%2B5", 200), ("3600000", 200), ("3600001", 400), ("+5", 400), ("1.5", 400)])
def test_delays(world: NsqWorld, delay: str, status: int) -> None:
    assert world.post(f"/pub?topic=t&defer={delay}", b"x").status == status


def test_a_longer_limit_for_delays_over_http() -> None:
    world = NsqWorld(settings=NsqSettings(http_delay_ms_max=30 * 86_400_000))
    assert world.post("/pub?topic=t&defer=2592000000", b"x").status == 200
    assert message(world.post("/pub?topic=t&defer=2592000001", b"x")) == (400, "INVALID_DEFER")
    subscription = world.consume("t", "c", 10)
    world.wait(30 * 86_400 - 1)
    assert inbox(subscription).bodies == []
    world.wait(2)
    assert inbox(subscription).bodies == [b"x"]


def test_ephemeral_topic(world: NsqWorld) -> None:
    world.post("/pub?topic=t%23ephemeral", b"x")
    world.post("/topic/create?topic=u%23ephemeral")
    world.post("/channel/create?topic=u%23ephemeral&channel=c%23ephemeral")
    views = [world.session.topic(name) for name in world.session.topic_names()]
    assert [(view.name, view.ephemeral) for view in views if view] == [("t#ephemeral", True), ("u#ephemeral", True)]
    assert [group.ephemeral for view in views if view for group in view.groups] == [True]


@pytest.mark.parametrize("name", ["a+b", "a%0A", "é", "%FF", "x" * 65, "x%23ephemera", "a/b"])
def test_invalid_names(world: NsqWorld, name: str) -> None:
    assert message(world.post(f"/pub?topic={name}", b"x")) == (400, "INVALID_TOPIC")


def test_ok_waits_for_the_commit(world: NsqWorld) -> None:
    world.post("/topic/create?topic=t")
    wire = world.raw()
    wire.send(b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
    assert wire.output == b""
    world.turn()
    wire.settle()
    assert parse(wire.output).text == "OK"


def test_failed_commit_is_not_ok(world: NsqWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = FakeTicket()
    ticket.state, ticket.failure = TicketState.FAILED, "disk"
    monkeypatch.setattr(Session, "publish", lambda *_args, **_options: ticket)
    wire = world.raw(b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
    assert message(parse(wire.output)) == (503, "EXITING")


def test_stopping_broker_refuses(world: NsqWorld) -> None:
    world.broker.stop()
    assert message(world.post("/pub?topic=t", b"x")) == (503, "EXITING")


def test_query_that_cannot_be_decoded(world: NsqWorld) -> None:
    for path in ("/pub?topic=%zz", "/mpub?topic=a;b", "/topic/create?topic=%", "/topic/delete?x=%zz&topic=t", "/channel/create?;"):
        assert message(world.post(path, b"x")) == (400, "INVALID_REQUEST")


HEADERS = b"Polymq-Key: k\r\nPolymq-Header-A: 1\r\nPolymq-Header-: none\r\nPolymq-Other: x\r\npolymq-header-a:  2 \r\n"


@pytest.mark.parametrize("query", ["topic=t", "topic=t&defer=1000"])
def test_key_and_headers_are_stored(world: NsqWorld, query: str) -> None:
    head = f"POST /pub?{query} HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n".encode()
    assert parse(world.raw(head + HEADERS + b"\r\nabc").output).text == "OK"
    world.wait(2)
    log = world.store.logs[world.view().partitions[0].number]
    (stored,) = log.messages()
    assert (stored.body, stored.key, stored.headers) == (b"abc", b"k", ((b"a", b"1"), (b"a", b"2")))
    assert published(world) == [b"abc"]


def test_an_empty_key_is_a_key(world: NsqWorld) -> None:
    world.raw(b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nPolymq-Key:\r\n\r\na")
    (stored,) = world.store.logs[world.view().partitions[0].number].messages()
    assert stored.key == b""


def test_many_messages_have_no_headers(world: NsqWorld) -> None:
    head = b"POST /mpub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
    assert message(parse(world.raw(head + HEADERS + b"\r\na\nb").output)) == (400, "HEADERS_OF_MANY")
    assert published(world) == []
