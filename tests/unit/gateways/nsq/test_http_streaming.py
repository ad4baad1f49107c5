"""Consuming over HTTP: a stream of lines, and the endpoints that answer for its messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.core.settings import CoreSettings
from polymq.gateways.buffers import BufferPool
from polymq.gateways.effects import SendAfter
from polymq.gateways.http.gateway import HttpGateway
from polymq.gateways.nsq.http_streaming import line
from polymq.gateways.outbox import Outbox
from polymq.protocols.nsq.settings import NsqSettings
from polymq.wire.batch import Message
from polymq.wire.tickets import TicketState
from tests.unit.core.fakes import START_NS, FakeTicket
from tests.unit.gateways.http.harness import Wire
from tests.unit.gateways.nsq.http_world import Answer, NsqWorld, message, parse, unchunked

if TYPE_CHECKING:
    from polymq.core.group import Delivery
    from polymq.gateways.nsq.http_context import NsqHttp

SECOND_NS = 1_000_000_000


class Consumer:
    """The client's end of one stream."""

    def __init__(self, world: StreamWorld, query: str, *, version: str = "1.1") -> None:
        self.world = world
        self.wire: Wire[NsqHttp] = Wire(world.router, world.context, world.clock)
        world.consumers[self.wire.gateway] = self
        self.outbox = Outbox(BufferPool())
        head = f"GET /sub?{query} HTTP/{version}\r\nHost: h\r\nUser-Agent: test/1\r\n\r\n"
        self.wire.send(head.encode())
        world.turn()

    def take(self, delivery: Delivery) -> None:
        self.wire.settle()
        self.wire.gateway.deliver(delivery, self.outbox)
        size_bytes = self.outbox.size_bytes
        self.wire.output += bytes(self.outbox.data[:size_bytes])
        self.outbox.sent(size_bytes)

    def lines(self) -> list[Any]:
        """Everything that has come, line by line."""
        self.wire.settle()
        _head, _, body = self.wire.output.partition(b"\r\n\r\n")
        if not body.endswith(b"0\r\n\r\n"):
            body += b"0\r\n\r\n"
        return [json.loads(text) for text in unchunked(body).splitlines() if text]

    def messages(self) -> list[Any]:
        return self.lines()[1:]

    @property
    def token(self) -> str:
        return str(self.lines()[0]["stream"])

    def wake(self) -> None:
        self.wire._call(self.wire.gateway.woken)
        self.world.turn()

    def post(self, path: str, body: bytes = b"", **more: object) -> Answer:
        """Settle on another connection."""
        query = "&".join(f"{name}={value}" for name, value in more.items())
        answer = self.world.post(f"{path}?stream={self.token}&{query}", body)
        self.world.turn()
        return answer


class StreamWorld(NsqWorld):
    def __init__(self, settings: NsqSettings | None = None) -> None:
        self.consumers: dict[object, Consumer] = {}
        super().__init__(settings=settings)

    def turn(self) -> None:
        for _ in range(1000):
            self.broker.tick()
            self.store.commit()
            for delivery in self.broker.dispatch():
                listener = delivery.subscription.listener
                if isinstance(listener, HttpGateway):
                    self.consumers[listener].take(delivery)
            due_ns = self.broker.due_ns()
            if due_ns is None or due_ns > self.clock.now_ns:
                return
        raise AssertionError("the broker never comes to rest")


@pytest.fixture
def world() -> StreamWorld:
    return StreamWorld()


def test_messages_are_lines(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c&max_in_flight=2&msg_timeout=5000")
    world.publish("t", b"one", b"\xff\x00", b"three")
    world.turn()
    assert consumer.wire.output.startswith(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nX-Nsq-Content-Type: nsq; version=1.0\r\n"
    )
    assert b"\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n" in consumer.wire.output
    opening, first, second = consumer.lines()
    assert opening == {"stream": consumer.token, "topic": "t", "channel": "c", "max_in_flight": 2, "msg_timeout": 5000}
    assert len(consumer.token) == 32
    assert (first["body"], first["attempts"], first["timestamp"]) == ("one", 1, START_NS)
    assert second["body_base64"] == "/wA="
    assert "body" not in second
    assert consumer.post("/fin", id=first["id"]).text == "OK"
    assert [each.get("body") for each in consumer.messages()] == ["one", None, "three"]


def test_many_are_finished_at_once(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c&max_in_flight=10")
    world.publish("t", b"a", b"b", b"c")
    world.turn()
    ids = [each["id"] for each in consumer.messages()]
    assert consumer.post("/fin", "\n".join(ids).encode()).text == "OK"
    answer = consumer.post("/fin", "\r\n".join([ids[0], "00000000000fffff"]).encode())
    assert (answer.status, json.loads(answer.text)) == (409, {"message": "FIN_FAILED", "failed": [ids[0], "00000000000fffff"]})
    (group,) = world.view().groups
    assert (group.depth, group.leased, group.consumers[0].settled) == (0, 0, 3)


def test_what_is_finished_beside_a_failure_is_durable_when_it_is_said(world: StreamWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(world, "topic=t&channel=c&max_in_flight=10")
    world.publish("t", b"a")
    world.turn()
    body = f"{consumer.messages()[0]['id']}\n00000000000fffff".encode()
    ticket = FakeTicket()
    monkeypatch.setattr(world.store.journal, "ticket", lambda *, sync: ticket)
    wire: Wire[NsqHttp] = Wire(world.router, world.context, world.clock)
    wire.send(b"POST /fin?stream=%b HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (consumer.token.encode(), len(body), body))
    assert wire.output == b"", "not in the journal yet"
    (effect,) = wire.waiting
    assert isinstance(effect, SendAfter)
    assert effect.failure("no room").startswith(b"HTTP/1.1 503 ")
    ticket.state = TicketState.DONE
    wire.settle()
    assert wire.output.startswith(b"HTTP/1.1 409 ")
    assert wire.output.endswith(b'{"message":"FIN_FAILED","failed":["00000000000fffff"]}')


def test_a_message_is_given_back(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c")
    world.publish("t", b"a")
    world.turn()
    (first,) = consumer.messages()
    assert consumer.post("/req", id=first["id"], timeout=5000).text == "OK"
    assert message(consumer.post("/req", id=first["id"])) == (409, "REQ_FAILED")
    assert len(consumer.messages()) == 1
    world.wait(5)
    assert [each["attempts"] for each in consumer.messages()] == [1, 2]


def test_a_longer_limit_for_what_is_given_back_over_http() -> None:
    world = StreamWorld(NsqSettings(http_delay_ms_max=86_400_000))
    world.publish("t", b"one")
    consumer = Consumer(world, "topic=t&channel=c")
    world.turn()
    (first,) = consumer.messages()
    assert message(consumer.post("/req", id=first["id"], timeout=86_400_001)) == (400, "INVALID_TIMEOUT")
    assert consumer.post("/req", id=first["id"], timeout=86_400_000).text == "OK"


def test_time_runs_out_unless_it_is_extended(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c&msg_timeout=2000")
    world.publish("t", b"a")
    world.turn()
    (first,) = consumer.messages()
    world.wait(1)
    assert consumer.post("/touch", id=first["id"]).text == "OK"
    world.wait(1.5)
    assert len(consumer.messages()) == 1
    world.wait(1)
    assert len(consumer.messages()) == 2
    assert consumer.post("/fin", id=first["id"]).text == "OK"
    assert message(consumer.post("/touch", id=first["id"])) == (409, "TOUCH_FAILED")


def test_how_many_may_be_out_is_changed(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c")
    world.publish("t", b"a", b"b", b"c")
    world.turn()
    assert len(consumer.messages()) == 1
    assert consumer.post("/rdy", count=2).text == "OK"
    assert len(consumer.messages()) == 2


def test_messages_can_be_finished_by_being_sent(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c&auto_fin=true")
    world.publish("t", b"a", b"b")
    world.turn()
    assert len(consumer.messages()) == 1
    consumer.wake()
    assert len(consumer.messages()) == 2
    consumer.wake()
    (group,) = world.view().groups
    assert (group.depth, group.leased) == (0, 0)


def test_a_stream_that_ends_leaves(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c#ephemeral".replace("#", "%23"))
    assert len(world.view().groups) == 1
    token = consumer.token
    consumer.wire.gateway.ended()
    assert world.view().groups == ()
    assert message(world.post(f"/fin?stream={token}&id=0000000000000000")) == (404, "STREAM_NOT_FOUND")
    assert world.context.changing.streams == {}


def test_a_topic_that_is_deleted_ends_the_stream_in_order(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c")
    world.post("/topic/delete?topic=t")
    consumer.wake()
    assert consumer.wire.output.endswith(b"\r\n0\r\n\r\n")
    assert consumer.wire.closed
    assert world.context.changing.streams == {}


def test_a_server_that_stops_ends_the_stream_in_order(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c")
    consumer.wire._call(consumer.wire.gateway.stopping)
    assert consumer.wire.output.endswith(b"\r\n0\r\n\r\n")
    assert consumer.wire.closed == "shutting down"


def test_silence_is_filled_with_empty_lines(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c")
    consumer.lines()
    before = consumer.wire.output
    consumer.wire.wait(limits.HTTP_STREAM_BEAT_NS - 1)
    assert consumer.wire.output == before
    consumer.wire.wait(1)
    assert consumer.wire.output == before + b"1\r\n\n\r\n"
    consumer.wire.wait(10 * limits.HTTP_STREAM_BEAT_NS)
    assert consumer.wire.output == before + 11 * b"1\r\n\n\r\n"


def test_no_beat_while_messages_come(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c&max_in_flight=100")
    for _ in range(5):
        consumer.wire.wait(limits.HTTP_STREAM_BEAT_NS * 2 // 3)
        world.publish("t", b"x")
        world.turn()
    assert b"1\r\n\n\r\n" not in consumer.wire.output


def test_a_slow_peer_holds_the_deliveries(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c&max_in_flight=10")
    consumer.wire._call(consumer.wire.gateway.full)
    world.publish("t", b"x")
    world.turn()
    assert consumer.messages() == []
    consumer.wire._call(consumer.wire.gateway.writable)
    world.turn()
    assert len(consumer.messages()) == 1


def test_http_1_0_has_no_chunks(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c", version="1.0")
    world.publish("t", b"x")
    world.turn()
    head, _, body = consumer.wire.output.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert [json.loads(text).get("body") for text in body.splitlines()] == [None, "x"]
    consumer.wire.wait(limits.HTTP_STREAM_BEAT_NS)
    assert consumer.wire.output.endswith(b"}\n\n")


def test_input_behind_the_request_waits_up_to_a_limit(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c")
    consumer.wire.send(b"x" * limits.HTTP_HEAD_SIZE_BYTES_MAX)
    assert consumer.wire.closed is None
    consumer.wire.send(b"x")
    assert consumer.wire.closed is not None
    assert world.context.changing.streams == {}


def test_statistics_show_the_consumer(world: StreamWorld) -> None:
    Consumer(world, "topic=t&channel=c&max_in_flight=3")
    client = json.loads(world.get("/stats?format=json").text)["topics"][0]["channels"][0]["clients"][0]
    assert (client["remote_address"], client["user_agent"], client["version"]) == ("192.0.2.7:40000", "test/1", "HTTP")
    assert client["ready_count"] == 3


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=a$&channel=c", 400, "INVALID_ARG_TOPIC"),
        ("topic=t", 400, "MISSING_ARG_CHANNEL"),
        ("topic=t&channel=c$", 400, "INVALID_ARG_CHANNEL"),
        ("topic=t&channel=c&max_in_flight=0", 400, "INVALID_MAX_IN_FLIGHT"),
        ("topic=t&channel=c&max_in_flight=2501", 400, "INVALID_MAX_IN_FLIGHT"),
        ("topic=t&channel=c&msg_timeout=1.5", 400, "INVALID_MSG_TIMEOUT"),
        ("topic=t&channel=c&msg_timeout=900001", 400, "INVALID_MSG_TIMEOUT"),
        ("topic=t&channel=c&auto_fin=maybe", 400, "INVALID_AUTO_FIN"),
        ("topic=%zz", 400, "INVALID_REQUEST"),
    ],
)
def test_what_cannot_be_subscribed_to(world: StreamWorld, query: str, status: int, code: str) -> None:
    assert message(world.get(f"/sub?{query}")) == (status, code)
    assert world.session.topic_names() == []
    assert len(world.broker.sessions) == 1


@pytest.mark.parametrize("query", ["max_in_flight=2500", "max_in_flight=1", "msg_timeout=900000", "msg_timeout=1", "auto_fin=0"])
def test_the_ends_of_what_may_be_asked_for(world: StreamWorld, query: str) -> None:
    name, _, value = query.partition("=")
    opening = Consumer(world, f"topic=t&channel=c&{query}").lines()[0]
    assert opening.get(name, 0) == int(value)


def test_the_largest_id_is_an_id(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c")
    assert json.loads(consumer.post("/fin", id="7fffffffffffffff").text)["failed"] == ["7fffffffffffffff"]
    assert message(consumer.post("/fin", id="8000000000000000")) == (400, "INVALID_ID")


def test_a_channel_that_is_full() -> None:
    world = StreamWorld()
    world.settings = CoreSettings(group_consumers_max=1)
    world.broker.settings = world.settings
    Consumer(world, "topic=t&channel=c")
    assert message(parse(Consumer(world, "topic=t&channel=c").wire.output)) == (409, "TOO_MANY_CONSUMERS")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/fin", 400, "MISSING_ARG_STREAM"),
        ("/fin?stream=x&id=0000000000000000", 404, "STREAM_NOT_FOUND"),
        ("/fin?stream=TOKEN", 400, "MISSING_ARG_ID"),
        ("/fin?stream=TOKEN&id=1", 400, "INVALID_ID"),
        ("/fin?stream=TOKEN&id=FFFFFFFFFFFFFFFF", 400, "INVALID_ID"),
        ("/fin?stream=TOKEN&id=ffffffffffffffff", 400, "INVALID_ID"),
        ("/req?stream=TOKEN", 400, "MISSING_ARG_ID"),
        ("/req?stream=TOKEN&id=0000000000000000&timeout=3600001", 400, "INVALID_TIMEOUT"),
        ("/touch?stream=TOKEN&id=", 400, "INVALID_ID"),
        ("/rdy?stream=TOKEN", 400, "MISSING_ARG_COUNT"),
        ("/rdy?stream=TOKEN&count=-1", 400, "INVALID_COUNT"),
    ],
)
def test_what_cannot_be_settled(world: StreamWorld, path: str, status: int, code: str) -> None:
    consumer = Consumer(world, "topic=t&channel=c")
    assert message(world.post(path.replace("TOKEN", consumer.token))) == (status, code)


def test_too_many_ids(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c")
    answer = consumer.post("/fin", b"0" * (limits.HTTP_SETTLE_SIZE_BYTES_MAX + 1))
    assert message(answer) == (413, "BODY_TOO_BIG")


def test_key_and_headers_come_along(world: StreamWorld) -> None:
    consumer = Consumer(world, "topic=t&channel=c&max_in_flight=9")
    head = "POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n"
    world.raw(f"{head}Polymq-Key: k\r\nPolymq-Header-Trace: 1\r\nPolymq-Header-Trace: 2\r\nOther: x\r\n\r\na".encode())
    world.publish("t", b"plain")
    world.turn()
    first, second = consumer.messages()
    assert (first["key"], first["headers"], first["body"]) == ("k", [["trace", "1"], ["trace", "2"]], "a")
    assert "key" not in second
    assert "headers" not in second


@given(st.binary(), st.none() | st.binary(), st.lists(st.tuples(st.binary(), st.binary())))
def test_any_message_is_one_line(body: bytes, key: bytes | None, headers: list[tuple[bytes, bytes]]) -> None:
    text = line(Message(body, key=key, headers=tuple(headers), time_ns=1), 5, 1)
    assert text.count(b"\n") == 1
    assert text.endswith(b"\n")
    assert json.loads(text)["id"] == "0000000000000005"
