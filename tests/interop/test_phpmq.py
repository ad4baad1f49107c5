"""PHPMQ over real sockets: a PHP program in both dialects, our client, the crash matrix of the reference server, and kill -9."""

from __future__ import annotations

import asyncio
import random
import re
import ssl
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from polymq.clients.nsq import NsqConsumer, NsqProducer
from polymq.clients.phpmq import PhpmqConsumer, PhpmqOptions, PhpmqProducer
from polymq.clients.phpmq_sync import Consumer, Producer
from polymq.protocols.phpmq import frames
from tests.interop.phpmq_servers import Hand, PhpmqServer, php
from tests.interop.servers import ROOT, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.wire.authority import Authority

BODIES = [b"", b"x", bytes(range(256)), b"H0100102P01" + b"0" * 29, random.Random(1).randbytes(300_000), b"\n\r\n\0"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PhpmqServer]:
    started = PhpmqServer(tmp_path_factory.mktemp("phpmq"))
    started.start()
    yield started
    started.stop()


@pytest.fixture
def own(tmp_path: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[PhpmqServer]:
    started = PhpmqServer(tmp_path, tuple(getattr(request, "param", ())))  # type: ignore[arg-type]
    started.start()
    yield started
    started.stop()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def tcp(server: PhpmqServer) -> str:
    return f"tcp://{server.address}"


@pytest.mark.parametrize("sender", ["current", "legacy"])
@pytest.mark.parametrize("taker", ["current", "legacy"])
def test_php_to_php_in_every_dialect(server: PhpmqServer, queue: str, sender: str, taker: str) -> None:
    assert php(action="publish", address=tcp(server), queue=queue, bodies=BODIES, dialect=sender, ttl=3600)["published"] == len(BODIES)
    job = {"action": "consume", "address": tcp(server), "queue": queue, "window": 2, "count": len(BODIES), "dialect": taker}
    found = php(**job, greet=f"{queue}-greeting")["deliveries"]
    assert [each["body"] for each in found] == BODIES
    assert {each["queue"] for each in found} == {queue}
    assert all(len(each["id"]) == 32 for each in found)
    ttls = {each["ttl"] for each in found}
    assert ttls == {None} if taker == "legacy" else ttls == {0} if sender == "legacy" else ttls <= set(range(3590, 3601))
    assert "0 messages" in server.ask(f"show {queue}")


def test_php_requeues_and_gives_up(server: PhpmqServer, queue: str) -> None:
    php(action="publish", address=tcp(server), queue=queue, bodies=[b"a", b"b"])
    job = {"action": "consume", "address": tcp(server), "queue": queue, "window": 1, "count": 2}
    assert [each["body"] for each in php(**job, then="requeue", ttl=77)["deliveries"]] == [b"a", b"b"]
    again = php(**job, then="dead")["deliveries"]
    assert [(each["body"], each["ttl"] in range(70, 78)) for each in again] == [(b"a", True), (b"b", True)]
    assert "0 messages" in server.ask(f"show {queue}")


def test_who_leaves_gives_back(server: PhpmqServer, queue: str) -> None:
    php(action="publish", address=tcp(server), queue=queue, bodies=[b"a", b"b"])
    job = {"action": "consume", "address": tcp(server), "queue": queue, "window": 5, "count": 2}
    first = php(**job, then="nothing")["deliveries"]
    second = php(**job)["deliveries"]
    assert [each["id"] for each in first] == [each["id"] for each in second]


@pytest.mark.parametrize("legacy", [False, True], ids=["current", "legacy"])
def test_our_client(server: PhpmqServer, queue: str, legacy: bool) -> None:
    async def run() -> None:
        options = PhpmqOptions(legacy=legacy)
        async with PhpmqProducer(server.address, options) as producer:
            await producer.publish_many(queue, BODIES)
        async with PhpmqConsumer(server.address, queue, options, window=3) as consumer:
            found, again = [], 0
            async for message in consumer:
                if message.content == b"x" and not again:
                    again = 1
                    message.requeue()
                    continue
                found.append(message.content)
                message.settle()
                if len(found) == len(BODIES):
                    break
        assert found == [*[body for body in BODIES if body != b"x"], b"x"]

    asyncio.run(run())
    assert "0 messages" in server.ask(f"show {queue}")


def test_our_client_for_scripts(server: PhpmqServer, queue: str) -> None:
    with Producer(server.address) as producer:
        for body in BODIES:
            producer.publish(queue, body, ttl_seconds=60)
    with Consumer(server.address, queue, window=2) as consumer:
        found = []
        for message in consumer.messages(timeout_seconds=1):
            found.append(message.content)
            assert 55 <= message.ttl_seconds <= 60
            message.settle()
    assert found == BODIES


def test_a_ttl_ends(server: PhpmqServer, queue: str) -> None:
    with Hand(server.address) as hand:
        hand.send(frames.send(queue, b"short", ttl_s=1) + frames.send(queue, b"long", ttl_s=100) + frames.send(queue, b"ever"))
        time.sleep(1.1)
        hand.send(frames.consume(queue, 5))
        found = hand.take(3, seconds=0.5)
    assert [(each.content, each.ttl_s) for each in found] == [(b"long", 99), (b"ever", 0)]


def test_nsq_and_phpmq_share_a_topic(server: PhpmqServer, queue: str) -> None:
    async def run() -> None:
        topic = queue.replace("[", "_").replace("]", "_")
        async with NsqProducer(server.nsq) as producer:
            await producer.publish(topic, b"from nsq")
        async with PhpmqConsumer(server.address, topic) as consumer, NsqConsumer(server.nsq, topic, "ch") as other:
            async for message in consumer:
                assert message.content == b"from nsq"
                message.settle()
                break
            async with PhpmqProducer(server.address) as sender:
                await sender.publish(topic, b"from phpmq", ttl_seconds=100)
            async for received in other:
                assert received.body == b"from phpmq"
                received.settle()
                break

    asyncio.run(run())


# What ends the reference server's process, or holds it for ever (spec section 7).
MATRIX = {
    "requeue of nothing": (frames.requeue("q", b"0" * 32), False),
    "dead letter of nothing": (frames.dead_letter("q", b"0" * 32), False),
    "send with three packets": (frames.send("q", b"x", ttl_s=1), False),
    "send with two packets": (frames.send("q", b"x", ttl_s=None), False),
    "unknown type": (b"H0100902", True),
    "a server's type": (b"H0100304", True),
    "http": (b"GET / HTTP/1.1\r\n\r\n", True),
    "duplicate packet": (b"H0100102" + 2 * (b"P01" + b"%029d" % 1 + b"q"), True),
    "endless content": (b"H0100102P01" + b"%029d" % 1 + b"qP02" + b"1" + b"0" * 28, True),
    "typographic newlines": (b"H0100102\nP01" + b"%029d\nq" % 1 + b"\n" * 10, True),
    "negative ttl": (frames.send("q", b"x", ttl_s=1)[:-1] + b"-", True),
    "negative count": (frames.consume("q", 12)[:-2] + b"-1", True),
    "other version": (b"H0200102", True),
    "letters": (b"H01001ab", True),
}


@pytest.mark.parametrize("name", MATRIX)
def test_the_crash_matrix_closes_that_connection_alone(server: PhpmqServer, queue: str, name: str) -> None:
    stream, is_fatal = MATRIX[name]
    before = sum(server.metric(f'polymq_phpmq_closed_total{{reason="{reason}"}}') for reason in REASONS)
    with Hand(server.address) as other, Hand(server.address) as bad:
        other.send(frames.consume(queue, 1))
        bad.send(stream)
        if is_fatal:
            assert bad.is_closed()
        bad_is_open = not is_fatal
        other.send(frames.send(queue, b"still there"))
        assert [each.content for each in other.take(1)] == [b"still there"]
        if bad_is_open:
            bad.send(frames.send(queue, b"me too") + frames.consume(queue, 0))
            other.send(frames.consume(queue, 2))
            assert [each.content for each in other.take(2)] == [b"still there", b"me too"]
    after = sum(server.metric(f'polymq_phpmq_closed_total{{reason="{reason}"}}') for reason in REASONS)
    assert after - before == is_fatal


REASONS = ("header", "digits", "version", "type", "count", "packet", "packet-type", "duplicate", "length", "number", "slow")


def test_messages_may_come_in_any_pieces(server: PhpmqServer, queue: str) -> None:
    stream = frames.send(queue, b"drip", ttl_s=60) + frames.consume(queue, 1)
    with Hand(server.address) as hand:
        for at in range(len(stream)):
            hand.send(stream[at : at + 1])
        assert [each.content for each in hand.take(1)] == [b"drip"]


@pytest.mark.parametrize("own", [("phpmq.message_timeout=300ms",)], indirect=True)
def test_who_drips_for_too_long_is_closed(own: PhpmqServer) -> None:
    with Hand(own.address) as hand:
        hand.send(b"H0100102P01" + b"%029d" % 1 + b"qP02" + b"%029d" % 1_000_000)
        began = time.monotonic()
        assert hand.is_closed()
        assert time.monotonic() - began < 3
    assert own.metric('polymq_phpmq_closed_total{reason="slow"}') == 1


def test_kill_9_loses_nothing_that_was_confirmed(own: PhpmqServer) -> None:
    """What a later dispatch says is settled stays settled; what was read before something was answered is there."""
    queue, total = "traffic", 4000
    confirmed: set[bytes] = set()
    seen: list[bytes] = []

    def consume() -> None:
        with Hand(own.address) as hand:
            window = 10
            hand.send(frames.consume(queue, window))
            acknowledged: list[bytes] = []
            while found := hand.take(1, seconds=5):
                (message,) = found
                # A slot is free only when what had it is settled: all but the last of a window that were acknowledged.
                confirmed.update(acknowledged[: max(0, len(acknowledged) - window + 1)])
                del acknowledged[: max(0, len(acknowledged) - window + 1)]
                seen.append(message.content)
                acknowledged.append(message.content)
                try:
                    hand.send(frames.acknowledge(queue, [message.id]))
                except ConnectionError:
                    break

    with Hand(own.address) as sender:
        sender.send(b"".join(frames.send(queue, b"%d" % index, ttl_s=index % 2 * 1000) for index in range(total)))
        sender.send(frames.send("mark", b"all read") + frames.consume("mark", 1))
        assert len(sender.take(1)) == 1
    worker = threading.Thread(target=consume)
    worker.start()
    while len(seen) < total // 4:
        time.sleep(0.005)
    own.kill()
    worker.join(timeout=20)
    own.start()
    with Hand(own.address) as hand:
        hand.send(frames.consume(queue, total))
        left = hand.take(total, seconds=2)
    contents = [each.content for each in left]
    assert not confirmed & set(contents)
    assert set(contents) | set(seen) >= {b"%d" % index for index in range(total)}
    assert len(contents) == len(set(contents))


def test_kill_9_while_messages_are_requeued_loses_none(own: PhpmqServer) -> None:
    queue, total = "around", 200
    with Hand(own.address) as hand:
        hand.send(b"".join(frames.send(queue, b"%d" % index, ttl_s=2) for index in range(total)) + frames.consume(queue, 20))
        began = time.monotonic()
        while time.monotonic() - began < 1.0:
            for message in hand.take(1, seconds=1):
                hand.send(frames.requeue(queue, message.id, ttl_s=1000))
        own.kill()
    own.start()
    with Hand(own.address) as hand:
        hand.send(frames.consume(queue, 10_000))
        found = hand.take(100_000, seconds=2)
    assert {each.content for each in found} == {b"%d" % index for index in range(total)}


EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "CLIENTS_PYTHON.md").read_text().partition("\n## PHPMQ\n")[2], re.DOTALL)


@pytest.mark.parametrize(
    ("example", "printed"),
    [(EXAMPLES[0], ["AA7 delayed", "BA9 boards", "DL1149 departed"]), (EXAMPLES[1], ["UA2 at A7", "no more"])],
    ids=["asyncio", "script"],
)
def test_examples_of_the_documentation(own: PhpmqServer, example: str, printed: list[str]) -> None:
    program = subprocess.Popen(
        [sys.executable, "-u", "-c", example.replace("127.0.0.1:9100", own.address)], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    try:
        assert [program.stdout.readline().rstrip() for _ in printed] == printed
    finally:
        program.terminate()
        program.communicate(timeout=20)


@pytest.mark.parametrize("own", [("phpmq.dialect=legacy", "phpmq.dead_letter=copy")], indirect=True)
def test_what_a_client_that_only_consumes_is_sent_can_be_chosen(own: PhpmqServer) -> None:
    php(action="publish", address=tcp(own), queue="q", bodies=[b"a"], ttl=50)
    job = {"action": "consume", "address": tcp(own), "queue": "q", "window": 1, "count": 1, "dialect": "legacy"}
    assert [(each["body"], each["ttl"]) for each in php(**job, then="dead")["deliveries"]] == [(b"a", None)]
    assert [each["body"] for each in php(**{**job, "queue": "q.phpmq.dead"})["deliveries"]] == [b"a"]


def test_tls_and_unix_sockets(tmp_path: Path, authority: Authority) -> None:
    certificate = authority.issue("localhost")
    path, (port,) = tmp_path / "socket", free_ports(1)
    tls = (f"phpmq.tls=127.0.0.1:{port}", f"phpmq.tls_cert={certificate}", f"phpmq.tls_key={certificate}")
    server = PhpmqServer(tmp_path, (*tls, f"phpmq.unix=unix:{path}"))
    server.start()
    try:
        php(action="publish", address=f"tls://127.0.0.1:{port}", queue="q", bodies=BODIES)
        job = {"action": "consume", "queue": "q", "window": 2, "count": len(BODIES)}
        assert [each["body"] for each in php(**job, address=f"unix://{path}")["deliveries"]] == BODIES
        with Hand(f"127.0.0.1:{port}") as plain:
            plain.send(frames.send("q", b"not TLS"))
            assert plain.is_closed()
        assert "0 messages" in server.ask("show q")
        options = PhpmqOptions(tls=ssl.create_default_context(cafile=authority.certificate), tls_host_name="localhost")
        with Producer(f"127.0.0.1:{port}", options) as producer:
            producer.publish("q", b"ours")
        with Consumer(f"unix:{path}", "q") as consumer:
            message = next(consumer.messages(timeout_seconds=5))
            assert message.content == b"ours"
            message.settle()
    finally:
        server.stop()


def test_the_maintenance_port(own: PhpmqServer) -> None:
    with Hand(own.address) as hand:
        hand.send(frames.send("Foo", b"x") * 3 + frames.send("Bar", b"y") + frames.consume("Foo", 1))
        (message,) = hand.take(1)
        assert "Foo" in own.ask("search f*")
        text = own.ask("show Foo")
        assert "3 messages, 1 of them out" in text
        assert message.id.decode() in text
        assert "OK" in own.ask("flush Foo")
        assert "0 messages" in own.ask("show Foo")
        assert "1 messages" in own.ask("show Bar")
        assert "queues 2" in own.ask("monitor")
        assert "OK" in own.ask("flushall")
        assert "0 messages" in own.ask("show Bar")
        # The slot of what was flushed is free.
        hand.send(frames.send("Foo", b"new"))
        assert [each.content for each in hand.take(1)] == [b"new"]
