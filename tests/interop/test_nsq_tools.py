"""nsqd's own tools against the server: what their users see must be the same, whichever server it is."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.servers import ROOT, answers, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.servers import Running

BIN = ROOT / ".peers" / "bin"
PATIENCE_S = 20.0


def tool(name: str, *options: str) -> list[str]:
    program = BIN / name
    if not program.exists():
        pytest.fail(f"{program} is missing: run peers/build.sh")
    return [str(program), *options]


def run(name: str, *options: str, stdin: bytes = b"") -> str:
    """Run a tool that ends by itself; gives what it printed."""
    done = subprocess.run(tool(name, *options), input=stdin, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.decode()


@contextlib.contextmanager
def beside(name: str, *options: str, log: Path) -> Iterator[None]:
    """Run a tool until the block is left; it must then end by itself when asked to."""
    with log.open("wb") as output:
        process = subprocess.Popen(tool(name, *options), stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, log.read_text()[-2000:]
    finally:
        process.terminate()
        try:
            process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"{name} did not end: {log.read_text()[-2000:]}")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def publish(server: Running, topic: str, *bodies: bytes) -> None:
    assert server.request("POST", f"/mpub?topic={topic}", b"\n".join(bodies)) == (200, b"OK")


def test_to_nsq_publishes_the_lines_of_its_input(server: Running, topic: str) -> None:
    run("to_nsq", f"-topic={topic}", f"-nsqd-tcp-address={server.tcp}", stdin=b"one\ntwo\nthree\n")
    assert server.topic(topic)["message_count"] == 3
    assert server.topic(topic)["message_bytes"] == len("onetwothree")


def test_nsq_tail_prints_messages(server: Running, topic: str) -> None:
    publish(server, topic, b"one", b"two", b"three")
    printed = run("nsq_tail", f"-topic={topic}", "-channel=tail#ephemeral", "-n=3", f"-nsqd-tcp-address={server.tcp}")
    assert printed.split() == ["one", "two", "three"]
    until(lambda: server.topic(topic)["channels"] == [])


def test_nsq_to_file_writes_messages(server: Running, topic: str, tmp_path: Path) -> None:
    publish(server, topic, *(b"line-%d" % number for number in range(100)))
    options = (f"-topic={topic}", "-channel=file", f"-output-dir={tmp_path / 'out'}", f"-nsqd-tcp-address={server.tcp}")
    (tmp_path / "out").mkdir()
    with beside("nsq_to_file", *options, "-sync-interval=100ms", log=tmp_path / "log"):
        until(lambda: server.topic(topic)["channels"])
        server.settled(topic, "file")
    (written,) = (tmp_path / "out").iterdir()
    assert written.read_text().split() == [f"line-{number}" for number in range(100)]


def test_nsq_to_http_posts_messages(server: Running, topic: str, tmp_path: Path) -> None:
    taken: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        try:
            publish(server, topic, *(b"body-%d" % number for number in range(50)))
            target = f"-post=http://127.0.0.1:{receiver.server_port}/take"
            with beside("nsq_to_http", f"-topic={topic}", target, "-n=4", f"-nsqd-tcp-address={server.tcp}", log=tmp_path / "log"):
                until(lambda: len(taken) == 50)
                server.settled(topic, "nsq_to_http")
        finally:
            receiver.shutdown()
            thread.join()
    assert sorted(taken) == sorted(b"body-%d" % number for number in range(50))


def test_nsq_to_nsq_publishes_again(server: Running, topic: str, tmp_path: Path) -> None:
    publish(server, topic, *(b'{"number":%d}' % number for number in range(50)))
    target = (f"-destination-topic={topic}-copy", f"-destination-nsqd-tcp-address={server.tcp}")
    with beside("nsq_to_nsq", f"-topic={topic}", *target, f"-nsqd-tcp-address={server.tcp}", log=tmp_path / "log"):
        until(lambda: server.topic(topic)["channels"])
        server.settled(topic, "nsq_to_nsq")
    assert server.topic(f"{topic}-copy")["message_count"] == 50


def test_nsq_stat_prints_a_line_per_report(server: Running, topic: str) -> None:
    publish(server, topic, b"one", b"two")
    assert server.request("POST", f"/channel/create?topic={topic}&channel=ch")[0] == 200
    where = (f"-topic={topic}", "-channel=ch", f"-nsqd-http-address={server.http}")
    printed = run("nsq_stat", *where, "-interval=200ms", "-count=2").splitlines()
    numbers = [re.findall(r"\d+", line) for line in printed if re.match(r"\s*\d", line)]
    # rates in and out | depth, in memory, on disk, in flight, deferred | requeued, timed out, messages, clients
    assert numbers == [["0", "0", "2", "2", "0", "0", "0", "0", "0", "2", "0"]] * 2, printed


class Admin:
    """A real nsqadmin over one server, by its HTTP interface."""

    def __init__(self, address: str, server: Running) -> None:
        self.address = address
        self.server = server

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", method=method, data=data)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        return json.loads(text) if text else None


@pytest.fixture
def admin(server: Running, tmp_path: Path) -> Iterator[Admin]:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    with beside("nsqadmin", f"-http-address={address}", f"-nsqd-http-address={server.http}", log=tmp_path / "admin"):
        until(lambda: answers(address))
        yield Admin(address, server)


def test_nsqadmin_shows_the_node(admin: Admin, topic: str) -> None:
    publish(admin.server, topic, b"one", b"two")
    (node,) = admin.ask("GET", "/api/nodes")["nodes"]
    host, _, http_port = admin.server.http.partition(":")
    assert (node["broadcast_address"], node["http_port"]) == (host, int(http_port))
    assert node["tcp_port"] == int(admin.server.tcp.partition(":")[2])
    assert node["version"] == "1.3.0"
    assert topic in [each["topic"] for each in node["topics"]]
    one = admin.ask("GET", f"/api/nodes/{admin.server.http}")
    (found,) = [each for each in one["topics"] if each["topic_name"] == topic]
    assert (found["depth"], found["message_count"]) == (2, 2)


def test_nsqadmin_shows_topics_channels_and_clients(admin: Admin, topic: str, tmp_path: Path) -> None:
    publish(admin.server, topic, b"one", b"two")
    assert topic in admin.ask("GET", "/api/topics")["topics"]
    options = (f"-topic={topic}", "-channel=watch", "-n=3", f"-nsqd-tcp-address={admin.server.tcp}")
    with beside("nsq_tail", *options, log=tmp_path / "tail"):
        until(lambda: admin.server.topic(topic)["channels"])
        admin.server.settled(topic, "watch")
        seen = admin.ask("GET", f"/api/topics/{topic}")
        assert (seen["depth"], seen["message_count"], seen["paused"]) == (0, 2, False)
        (channel,) = seen["channels"]
        assert (channel["channel_name"], channel["depth"], channel["client_count"]) == ("watch", 0, 1)
        channel = admin.ask("GET", f"/api/topics/{topic}/watch")
        (client,) = channel["clients"]
        assert client["user_agent"].startswith("nsq_tail/1.3.0 go-nsq/")
        assert (client["finish_count"], client["message_count"], client["requeue_count"]) == (2, 2, 0)
        counted = admin.ask("GET", "/api/counter")["stats"][f"{topic}:watch:{admin.server.http}"]
        assert counted["message_count"] == 2


def test_nsqadmin_manages_topics_and_channels(admin: Admin, topic: str) -> None:
    # It creates topics through nsqlookupd alone, and there is none here.
    assert admin.ask("POST", "/api/topics", {"topic": topic, "channel": "ch"}) == 502
    assert admin.server.request("POST", f"/topic/create?topic={topic}")[0] == 200
    assert admin.server.request("POST", f"/channel/create?topic={topic}&channel=ch")[0] == 200
    path = f"/api/topics/{topic}"
    for action, paused in (("pause", True), ("unpause", False)):
        admin.ask("POST", path, {"action": action})
        assert admin.server.topic(topic)["paused"] is paused
        admin.ask("POST", f"{path}/ch", {"action": action})
        assert admin.server.channel(topic, "ch")["paused"] is paused
    publish(admin.server, topic, b"one", b"two")
    until(lambda: admin.server.channel(topic, "ch")["depth"] == 2)
    admin.ask("POST", f"{path}/ch", {"action": "empty"})
    assert admin.server.channel(topic, "ch")["depth"] == 0
    admin.ask("POST", path, {"action": "pause"})
    publish(admin.server, topic, b"three")
    assert admin.server.topic(topic)["depth"] == 1
    admin.ask("POST", path, {"action": "empty"})
    assert admin.server.topic(topic)["depth"] == 0
    admin.ask("DELETE", f"{path}/ch")
    assert admin.server.topic(topic)["channels"] == []
    admin.ask("DELETE", path)
    assert topic not in admin.ask("GET", "/api/topics")["topics"]


def test_nsqadmin_says_what_is_not_there(admin: Admin, topic: str) -> None:
    assert admin.ask("GET", f"/api/topics/{topic}") == 502
    assert admin.ask("GET", f"/api/topics/{topic}/ch") == 502
