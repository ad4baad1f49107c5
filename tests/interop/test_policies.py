"""What polymq can be told about topics and channels, beyond nsqd: seen by real clients, over real sockets, past a kill -9."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
import urllib.request
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.raw import Message, Raw
from tests.interop.servers import Running, answers, command, free_ports, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.jobs import Client

PATIENCE_S = 20.0
DAY_MS = 86_400_000
# Messages come back by themselves after so long; what has to come sooner comes for another reason.
TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def polymq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running("polymq", tmp_path_factory.mktemp("polymq"), message_timeout_ms=TIMEOUT_MS) as server:
        yield server


@contextlib.contextmanager
def killed_at_the_end(folder: Path, **options: str) -> Iterator[Running]:
    """A broker on a data folder that may have been another's, which ends by kill -9."""
    ports = free_ports(3)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command("polymq", folder / "data", ports, TIMEOUT_MS, options), stdout=log, stderr=log)
    server = Running("polymq", *(f"127.0.0.1:{port}" for port in ports))
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not answers(server.http):
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield server
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def ask(server: Running, method: str, path: str, **arguments: object) -> Any:
    """One request that is granted; what it is answered with."""
    query = "&".join(f"{name}={value}" for name, value in arguments.items())
    status, body = server.request(method, f"{path}?{query}")
    assert status == 200, body
    return json.loads(body) if body.startswith(b"{") else body


def choose(server: Running, topic: str, channel: str = "", **chosen: object) -> None:
    if channel:
        ask(server, "POST", "/channel/create", topic=topic, channel=channel)
        ask(server, "POST", "/channel/policy", topic=topic, channel=channel, **chosen)
    else:
        ask(server, "POST", "/topic/policy", topic=topic, **chosen)


def create(server: Running, topic: str, channel: str = "c") -> None:
    ask(server, "POST", "/topic/create", topic=topic)
    ask(server, "POST", "/channel/create", topic=topic, channel=channel)


def metric(server: Running, name: str, topic: str) -> float:
    with urllib.request.urlopen(f"http://{server.door}/metrics", timeout=10) as response:
        text = response.read().decode()
    (value,) = re.findall(rf'^{name}{{[^}}]*topic="{topic}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return float(value)


def quiet(consumer: Raw, seconds: float = 0.3) -> bool:
    """Whether nothing comes for a while."""
    consumer.socket.settimeout(seconds)
    try:
        consumer.message()
    except TimeoutError:
        return True
    finally:
        consumer.socket.settimeout(PATIENCE_S)
    return False


# Dead letters


def test_what_is_tried_too_often_is_found_among_the_dead_letters(polymq: Running, client: Client, topic: str) -> None:
    create(polymq, topic)
    choose(polymq, topic, "c", max_attempts=2)
    bodies = [b"message-%d" % number for number in range(10)]
    with Raw(polymq.tcp) as consumer:
        consumer.publish(topic, bodies)
        consumer.subscribe(topic, "c", ready=1)
        for attempts in [1] * 10 + [2] * 10:
            message = consumer.message()
            assert message.attempts == attempts
            consumer.send(b"REQ " + message.id + b" 0\n")
        assert quiet(consumer)
    dead = f"{topic}.c.dead"
    found = client.consume(polymq.tcp, dead, "morgue", 10, max_in_flight=5)
    assert sorted(each.body for each in found) == bodies
    (first, *_) = ask(polymq, "GET", "/topic/peek", topic=dead)["messages"]
    told = dict(first["headers"])
    assert (told["polymq-dead-reason"], told["polymq-dead-topic"], told["polymq-dead-group"]) == ("attempts", topic, "c")
    assert (told["polymq-dead-attempts"], told["polymq-dead-offset"]) == ("2", "0")
    assert metric(polymq, "polymq_group_dead_letters_total", topic) == 10
    assert polymq.settled(topic, "c")["depth"] == 0


def test_what_times_out_too_often_is_a_dead_letter_of_the_topic_that_was_chosen(tmp_path: Path, topic: str) -> None:
    with running("polymq", tmp_path, message_timeout_ms=1000) as server:
        create(server, topic)
        choose(server, topic, "c", max_attempts=2, dead_letter="lost")
        with Raw(server.tcp) as consumer:
            consumer.publish(topic, [b"x"])
            consumer.subscribe(topic, "c", ready=1)
            assert [consumer.message().attempts for _ in range(2)] == [1, 2]
            assert quiet(consumer, 1.5)
        with Raw(server.tcp) as undertaker:
            undertaker.subscribe("lost", "morgue", ready=1)
            assert undertaker.take(1)[0].body == b"x"


# Too old, too many


def test_what_is_too_old_is_not_delivered(polymq: Running, topic: str) -> None:
    create(polymq, topic)
    choose(polymq, topic, ttl=200)
    with Raw(polymq.tcp) as consumer:
        consumer.publish(topic, [b"old"] * 5)
        time.sleep(0.4)
        consumer.publish(topic, [b"new"])
        consumer.subscribe(topic, "c", ready=10)
        assert consumer.take(1)[0].body == b"new"
        assert quiet(consumer)
    assert metric(polymq, "polymq_group_expired_total", topic) == 5


def test_a_full_topic_refuses_publishers(polymq: Running, topic: str) -> None:
    create(polymq, topic)
    choose(polymq, topic, max_messages=3)
    with Raw(polymq.tcp) as producer:
        producer.publish(topic, [b"x"] * 3)
        producer.send(f"PUB {topic}\n".encode() + b"\x00\x00\x00\x01y")
        kind, text = producer.frame()
        assert (kind, text) == (1, f"E_PUB_FAILED PUB failed topic {topic} holds 3 of 3 messages".encode())
    assert polymq.request("POST", f"/pub?topic={topic}", b"y") == (503, b'{"message":"TOPIC_FULL"}')
    with Raw(polymq.tcp) as consumer:
        consumer.subscribe(topic, "c", ready=3)
        consumer.take(3)
    polymq.settled(topic, "c")
    assert polymq.request("POST", f"/pub?topic={topic}", b"y") == (200, b"OK")


def test_a_full_topic_drops_its_oldest(polymq: Running, topic: str) -> None:
    create(polymq, topic)
    choose(polymq, topic, max_messages=3, full="drop-oldest")
    with Raw(polymq.tcp) as consumer:
        for number in range(10):
            consumer.publish(topic, [b"%d" % number])
        consumer.subscribe(topic, "c", ready=10)
        assert [message.body for message in consumer.take(3)] == [b"7", b"8", b"9"]
        assert quiet(consumer)
    assert metric(polymq, "polymq_group_dropped_total", topic) == 7


# Going back


@pytest.mark.parametrize("where", ["offset=40", "time={time}", "ago={ago}"])
def test_a_channel_is_replayed(polymq: Running, topic: str, where: str) -> None:
    create(polymq, topic)
    with Raw(polymq.tcp) as consumer:
        consumer.subscribe(topic, "c", ready=100)
        consumer.publish(topic, [b"%d" % number for number in range(40)])
        consumer.take(40)
        time.sleep(0.3)
        began_ns = time.time_ns()
        consumer.publish(topic, [b"%d" % number for number in range(40, 100)])
        consumer.take(60)
        polymq.settled(topic, "c")
        name, _, value = where.format(time=began_ns, ago=(time.time_ns() - began_ns) // 1_000_000 + 100).partition("=")
        assert ask(polymq, "POST", "/channel/replay", topic=topic, channel="c", **{name: value}) == b""
        again = consumer.take(60)
        assert [message.body for message in again] == [b"%d" % number for number in range(40, 100)]
        assert {message.attempts for message in again} == {1}
        assert quiet(consumer)
    polymq.settled(topic, "c")


def test_what_is_out_when_a_channel_is_replayed_is_nobodys_any_more(polymq: Running, topic: str) -> None:
    create(polymq, topic)
    with Raw(polymq.tcp) as consumer:
        consumer.publish(topic, [b"x"])
        consumer.subscribe(topic, "c", ready=1)
        held = consumer.message()
        ask(polymq, "POST", "/channel/replay", topic=topic, channel="c", **{"from": "end"})
        consumer.finish(held)
        assert consumer.frame() == (1, b"E_FIN_FAILED FIN " + held.id + b" failed ID not in flight")


# Order by key


def test_two_consumers_of_an_ordered_channel_never_hold_the_same_key(polymq: Running, topic: str) -> None:
    create(polymq, topic)
    choose(polymq, topic, "c", ordered="true")
    for number in range(60):
        url = f"http://{polymq.http}/pub?topic={topic}"
        request = urllib.request.Request(url, data=b"%d" % number, headers={"Polymq-Key": f"key-{number % 3}"})
        with urllib.request.urlopen(request, timeout=10) as response:
            assert response.read() == b"OK"
    seen: dict[int, list[int]] = defaultdict(list)
    with Raw(polymq.tcp) as one, Raw(polymq.tcp) as other:
        for consumer in (one, other):
            consumer.subscribe(topic, "c", ready=10)
        while sum(map(len, seen.values())) < 60:
            held = [(consumer, message) for consumer in (one, other) for message in at_hand(consumer)]
            keys = [int(message.body) % 3 for _consumer, message in held]
            assert len(keys) == len(set(keys)), "one message of a key at a time"
            for consumer, message in held:
                seen[int(message.body) % 3].append(int(message.body))
                consumer.finish(message)
    assert seen == {key: list(range(key, 60, 3)) for key in range(3)}


def at_hand(consumer: Raw) -> list[Message]:
    """What has come, and comes within a moment."""
    found = []
    consumer.socket.settimeout(0.05)
    try:
        while True:
            found.append(consumer.message())
    except TimeoutError:
        return found
    finally:
        consumer.socket.settimeout(PATIENCE_S)


# Long deferrals


def test_a_month_of_delay_is_listed_survives_kills_and_is_cancelled(tmp_path: Path, topic: str) -> None:
    delay_ms = 30 * DAY_MS
    options = {"max_req_timeout": "721h"}
    with killed_at_the_end(tmp_path, **options) as server:
        create(server, topic)
        with Raw(server.tcp) as producer:
            for body in (b"kept", b"dropped!"):
                producer.ok(f"DPUB {topic} {delay_ms}\n".encode() + len(body).to_bytes(4, "big") + body)
        assert server.request("POST", f"/pub?topic={topic}&defer={delay_ms}", b"by HTTP") == (200, b"OK")
        listed = ask(server, "GET", "/topic/deferred", topic=topic)["messages"]
        assert sorted(each["size"] for each in listed) == [4, 7, 8]
        assert all(abs(each["due"] - time.time_ns() - delay_ms * 1_000_000) < 60 * 10**9 for each in listed)
    with killed_at_the_end(tmp_path, **options) as server:
        assert ask(server, "GET", "/topic/deferred", topic=topic)["messages"] == listed
        assert server.channel(topic, "c")["deferred_count"] == 3
        for each in listed:
            if each["size"] != 4:
                assert ask(server, "POST", "/topic/cancel", topic=topic, id=each["id"]) == b""
    with killed_at_the_end(tmp_path, **options) as server:
        assert [each["size"] for each in ask(server, "GET", "/topic/deferred", topic=topic)["messages"]] == [4]
        assert server.channel(topic, "c")["deferred_count"] == 1


def test_policies_survive_a_kill(tmp_path: Path, topic: str) -> None:
    with killed_at_the_end(tmp_path) as server:
        create(server, topic)
        choose(server, topic, ttl=7 * DAY_MS, full="drop-oldest")
        choose(server, topic, "c", max_attempts=3, on_disconnect="requeue")
        before = [ask(server, "GET", f"/{what}/policy", topic=topic, channel="c") for what in ("topic", "channel")]
    with killed_at_the_end(tmp_path) as server:
        assert [ask(server, "GET", f"/{what}/policy", topic=topic, channel="c") for what in ("topic", "channel")] == before
        assert before[1]["max_attempts"] == 3


# Consumers that vanish


def test_what_a_consumer_held_comes_at_once_if_that_is_chosen(polymq: Running, topic: str) -> None:
    create(polymq, topic)
    choose(polymq, topic, "c", on_disconnect="requeue")
    with Raw(polymq.tcp) as waiting:
        with Raw(polymq.tcp) as dying:
            dying.publish(topic, [b"x", b"y"])
            dying.subscribe(topic, "c", ready=2)
            assert [dying.message().attempts for _ in range(2)] == [1, 1]
        waiting.subscribe(topic, "c", ready=2)
        began = time.monotonic()
        assert sorted((message.body, message.attempts) for message in waiting.take(2)) == [(b"x", 2), (b"y", 2)]
        assert time.monotonic() - began < TIMEOUT_MS / 1000 / 4


def test_what_a_consumer_held_waits_for_its_timeout_otherwise(polymq: Running, topic: str) -> None:
    create(polymq, topic)
    with Raw(polymq.tcp) as waiting:
        with Raw(polymq.tcp) as dying:
            dying.publish(topic, [b"x"])
            dying.subscribe(topic, "c", ready=1)
            dying.message()
        waiting.subscribe(topic, "c", ready=1)
        assert quiet(waiting, 1.0)
