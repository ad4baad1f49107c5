"""Each client library publishes and consumes: bodies compared byte by byte, counts compared with /stats.

The other side of each test is raw.Raw, so a mistake that a library makes in both directions is seen.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.interop.jobs import CLIENTS, Client, Consumed, Step
from tests.interop.raw import Raw

if TYPE_CHECKING:
    from tests.interop.servers import Running

pytestmark = pytest.mark.cell("plain")

MESSAGE_SIZE_BYTES_MAX = 1 << 20
# nsqd looks for expired and due messages in a new channel only every 5 s.
LATE_S_MAX = 8.0


def bodies_of_all_kinds() -> list[bytes]:
    """Bytes that a careless codec breaks: line ends, zeros, frames within bodies, single bytes, the greatest size."""
    noise = random.Random(17)
    return [
        b"x",
        b"\n",
        b"\x00",
        bytes(range(256)),
        b"PUB topic\n\x00\x00\x00\x01x",
        b"\x00\x00\x00\x06\x00\x00\x00\x00OK",
        "größe 大小".encode(),
        noise.randbytes(100_000),
        noise.randbytes(MESSAGE_SIZE_BYTES_MAX),
    ]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def finished(deliveries: list[Consumed]) -> list[bytes]:
    return [each.body for each in deliveries if each.finished]


def impatience(client: Client) -> dict[str, object]:
    """What a client must ask an impatient server for, so that what it drops is soon delivered again; some ask for a minute by themselves."""
    return {"message_timeout_ms": 1000} if client.asks_timeout else {}


def test_single_publishes_arrive_byte_for_byte(server: Running, client: Client, topic: str) -> None:
    bodies = bodies_of_all_kinds()
    with Raw(server.tcp) as raw:
        raw.subscribe(topic, "ch", ready=10)
        assert client.publish(server.tcp, topic, [Step([body]) for body in bodies]) == len(bodies)
        assert [message.body for message in raw.take(len(bodies))] == bodies


def test_batches_arrive_whole_and_in_order(server: Running, client: Client, topic: str) -> None:
    first, second = numbered(500), bodies_of_all_kinds()[:-1]
    with Raw(server.tcp) as raw:
        raw.subscribe(topic, "ch", ready=100)
        assert client.publish(server.tcp, topic, [Step(first), Step(second)]) == len(first) + len(second)
        messages = raw.take(len(first) + len(second))
    assert [message.body for message in messages] == first + second
    assert [message.attempts for message in messages] == [1] * len(messages)
    assert len({message.id for message in messages}) == len(messages)


def test_a_deferred_publish_waits(server: Running, client: Client, topic: str) -> None:
    with Raw(server.tcp) as raw:
        raw.subscribe(topic, "ch", ready=10)
        began = time.monotonic()
        assert client.publish(server.tcp, topic, [Step([b"later"], delay_ms=1500), Step([b"now"])]) == 2
        messages = raw.take(2)
    assert [message.body for message in messages] == [b"now", b"later"]
    waited = messages[1].received_at - began
    # Client start-up is within `waited`, so the lower bound is sure and the upper one generous.
    assert 1.5 <= waited <= 1.5 + LATE_S_MAX


def test_consuming_settles_everything_once(server: Running, client: Client, topic: str) -> None:
    bodies = numbered(2000)
    with Raw(server.tcp) as raw:
        raw.subscribe(topic, "ch")
        raw.publish(topic, bodies)
    deliveries = client.consume(server.tcp, topic, "ch", len(bodies), max_in_flight=50)
    assert finished(deliveries) == bodies
    assert {each.attempts for each in deliveries} == {1}
    assert len({each.id for each in deliveries}) == len(bodies)
    statistics = server.settled(topic, "ch")
    assert (statistics["message_count"], statistics["requeue_count"], statistics["timeout_count"]) == (len(bodies), 0, 0)


def test_a_large_message_is_consumed_byte_for_byte(server: Running, client: Client, topic: str) -> None:
    bodies = bodies_of_all_kinds()
    with Raw(server.tcp) as raw:
        raw.subscribe(topic, "ch")
        raw.publish(topic, bodies)
    assert Counter(finished(client.consume(server.tcp, topic, "ch", len(bodies), max_in_flight=3))) == Counter(bodies)
    server.settled(topic, "ch")


def test_the_time_of_a_message_is_when_it_was_published(server: Running, client: Client, topic: str) -> None:
    before = time.time_ns()
    with Raw(server.tcp) as raw:
        raw.publish(topic, [b"one"])
    after = time.time_ns()
    (delivery,) = client.consume(server.tcp, topic, "ch", 1)
    # nsqjs gives the time as a JavaScript number, which is exact to 256 ns at this size.
    assert before - 1000 <= delivery.timestamp_ns <= after + 1000


def test_requeued_messages_come_again(server: Running, client: Client, topic: str) -> None:
    bodies = numbered(30)
    with Raw(server.tcp) as raw:
        raw.subscribe(topic, "ch")
        raw.publish(topic, bodies)
    deliveries = client.consume(server.tcp, topic, "ch", len(bodies), max_in_flight=5, requeue_first=True)
    assert Counter(finished(deliveries)) == Counter(bodies)
    assert Counter((each.body, each.attempts) for each in deliveries) == Counter((body, attempts) for body in bodies for attempts in (1, 2))
    ids = {each.body: each.id for each in deliveries}
    assert all(each.id == ids[each.body] for each in deliveries), "a message keeps its id when it is requeued"
    assert server.settled(topic, "ch")["requeue_count"] == len(bodies)


def test_a_delayed_requeue_waits(server: Running, client: Client, topic: str) -> None:
    with Raw(server.tcp) as raw:
        raw.subscribe(topic, "ch")
        raw.publish(topic, [b"again"])
    began = time.monotonic()
    deliveries = client.consume(server.tcp, topic, "ch", 1, requeue_first=True, requeue_delay_ms=700)
    assert 0.7 <= time.monotonic() - began <= 0.7 + LATE_S_MAX
    assert [(each.attempts, each.finished) for each in deliveries] == [(1, False), (2, True)]


def test_touch_keeps_a_message_beyond_its_timeout(impatient: Running, client: Client, topic: str) -> None:
    with Raw(impatient.tcp) as raw:
        raw.subscribe(topic, "ch")
        raw.publish(topic, [b"slow"])
    deliveries = client.consume(impatient.tcp, topic, "ch", 1, hold_ms=2400, touch_every_ms=400)
    assert [(each.body, each.attempts, each.finished) for each in deliveries] == [(b"slow", 1, True)]
    statistics = impatient.settled(topic, "ch")
    assert (statistics["timeout_count"], statistics["requeue_count"]) == (0, 0)


@pytest.mark.parametrize("client", [each for each in CLIENTS if each.asks_timeout], ids=lambda each: each.name)
def test_a_client_may_ask_for_more_time(impatient: Running, client: Client, topic: str) -> None:
    with Raw(impatient.tcp) as raw:
        raw.subscribe(topic, "ch")
        raw.publish(topic, [b"slow"])
    deliveries = client.consume(impatient.tcp, topic, "ch", 1, message_timeout_ms=6000, hold_ms=2000, touch_every_ms=2000)
    assert [(each.body, each.attempts, each.finished) for each in deliveries] == [(b"slow", 1, True)]
    assert impatient.settled(topic, "ch")["timeout_count"] == 0


def test_a_consumer_that_leaves_loses_nothing(impatient: Running, client: Client, topic: str) -> None:
    bodies = numbered(400)
    with Raw(impatient.tcp) as raw:
        raw.subscribe(topic, "ch")
        raw.publish(topic, bodies)
    first = finished(client.consume(impatient.tcp, topic, "ch", 100, max_in_flight=10, **impatience(client)))
    seen = Counter(first)
    assert len(first) >= 100
    with Raw(impatient.tcp) as raw:
        raw.subscribe(topic, "ch", ready=50)
        while len(seen) < len(bodies):
            seen.update(message.body for message in raw.take(1))
        seen.update(message.body for message in raw.close_cleanly())
    assert set(seen) == set(bodies)
    if client.drains:
        assert seen == Counter(bodies), "it said CLS and finished what was in flight: nothing comes twice"
    impatient.settled(topic, "ch")


def test_two_consumers_share_a_channel(impatient: Running, client: Client, topic: str) -> None:
    bodies, share = numbered(600), 200
    job = {"action": "consume", "address": impatient.tcp, "topic": topic, "channel": "ch", "count": share, **impatience(client)}
    with Raw(impatient.tcp) as raw:
        raw.subscribe(topic, "ch")
        consumers = [client.start(**job) for _ in range(2)]
        while impatient.channel(topic, "ch")["client_count"] < 3:
            time.sleep(0.02)
        raw.publish(topic, bodies)
        shares = [finished(client.consumed(consumer)) for consumer in consumers]
        assert all(len(each) >= share for each in shares)
        seen = Counter(shares[0] + shares[1])
        raw.send(b"RDY 10\n")
        while len(seen) < len(bodies):
            seen.update(message.body for message in raw.take(1))
        seen.update(message.body for message in raw.close_cleanly())
    assert set(seen) == set(bodies)
    if client.drains:
        assert seen == Counter(bodies)


def test_every_client_hears_every_client(server: Running, topic: str) -> None:
    published: Counter[bytes] = Counter()
    for each in CLIENTS:
        with Raw(server.tcp) as raw:
            raw.subscribe(topic, each.name)
    for each in CLIENTS:
        bodies = [b"%s %d" % (each.name.encode(), number) for number in range(50)]
        assert each.publish(server.tcp, topic, [Step(bodies[:25]), *(Step([body]) for body in bodies[25:])]) == 50
        published.update(bodies)
    consumers = [
        each.start(action="consume", address=server.tcp, topic=topic, channel=each.name, count=len(published), max_in_flight=20)
        for each in CLIENTS
    ]
    for each, consumer in zip(CLIENTS, consumers, strict=True):
        assert Counter(finished(each.consumed(consumer))) == published, each.name
        server.settled(topic, each.name)
