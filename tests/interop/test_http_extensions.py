"""What polymq's HTTP interface has beyond nsqd's, over real sockets."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.servers import Running, running

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def polymq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running("polymq", tmp_path_factory.mktemp("polymq")) as server:
        yield server


class Stream:
    """A client of `/sub`."""

    def __init__(self, server: Running, query: str) -> None:
        self.server = server
        self.connection = http.client.HTTPConnection(server.http, timeout=PATIENCE_S)
        self.connection.request("GET", f"/sub?{query}")
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        self.token = self.line()["stream"]

    def line(self) -> Any:
        text = b"\n"
        while text == b"\n":
            text = self.response.readline()
        return json.loads(text)

    def post(self, path: str, **more: object) -> tuple[int, bytes]:
        query = "&".join(f"{name}={value}" for name, value in more.items())
        return self.server.request("POST", f"{path}?stream={self.token}&{query}")

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def test_messages_are_consumed_over_http(polymq: Running, topic: str) -> None:
    stream = Stream(polymq, f"topic={topic}&channel=ch&max_in_flight=2")
    assert polymq.request("POST", f"/mpub?topic={topic}", b"\n".join(b"message-%d" % number for number in range(500)))[0] == 200
    for number in range(500):
        found = stream.line()
        assert (found["body"], found["attempts"]) == (f"message-{number}", 1)
        assert stream.post("/fin", id=found["id"]) == (200, b"OK")
    assert polymq.settled(topic, "ch")["client_count"] == 1
    stream.close()
    deadline = time.monotonic() + PATIENCE_S
    while polymq.channel(topic, "ch")["client_count"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_stream_finishes_by_itself_if_asked_to(polymq: Running, topic: str) -> None:
    stream = Stream(polymq, f"topic={topic}&channel=ch&max_in_flight=100&auto_fin=true")
    assert polymq.request("POST", f"/mpub?topic={topic}", b"\n".join(b"x" * 1000 for _ in range(5000)))[0] == 200
    for _ in range(5000):
        assert stream.line()["body"] == "x" * 1000
    polymq.settled(topic, "ch")
    stream.close()


def test_a_reader_that_does_not_read_is_not_run_over(polymq: Running, topic: str) -> None:
    stream = Stream(polymq, f"topic={topic}&channel=ch&max_in_flight=2500")
    body = b"\n".join(b"y" * 1_000_000 for _ in range(5))
    for _ in range(6):
        assert polymq.request("POST", f"/mpub?topic={topic}", body)[0] == 200
    time.sleep(0.5)
    assert polymq.channel(topic, "ch")["in_flight_count"] < 20
    for _ in range(30):
        assert stream.post("/fin", id=stream.line()["id"]) == (200, b"OK")
    polymq.settled(topic, "ch")
    stream.close()


def test_deleting_the_topic_ends_the_stream(polymq: Running, topic: str) -> None:
    stream = Stream(polymq, f"topic={topic}&channel=ch")
    assert polymq.request("POST", f"/topic/delete?topic={topic}") == (200, b"")
    assert stream.response.read() == b"", "in order: with the last chunk"
    stream.close()
