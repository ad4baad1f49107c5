"""Discovery: every pair of directory (nsqlookupd, polymq) and node (nsqd, polymq), and the clients that find one through the other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from polymq.clients.nsq_subscriber import NsqSubscriber
from tests.interop.jobs import CLIENTS, Client, Step
from tests.interop.lookup import BIN, DIRECTORIES, NODES, LiveDirectory, Server, ask, directory, found, node, started, until
from tests.interop.servers import ROOT, free_ports
from tests.unit.gateways.nsqlookup.golden_script import INACTIVE_S, TOMBSTONE_S, play

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = ROOT / "tests" / "unit" / "gateways" / "nsqlookup" / "golden_v1.3.0.txt"


@pytest.mark.parametrize("kind", DIRECTORIES)
def test_the_golden_script(kind: str, tmp_path: Path) -> None:
    """Also of the real one: if it differs, the script misses something that changes from run to run."""
    server = directory(kind, tmp_path, inactive_s=INACTIVE_S, tombstone_s=TOMBSTONE_S)
    live = LiveDirectory(server.running)
    with started(server), contextlib.ExitStack() as stack:
        stack.callback(live.end)
        assert play(live) == GOLDEN.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("kind", DIRECTORIES)
def test_much_at_once(kind: str, tmp_path: Path) -> None:
    server = directory(kind, tmp_path)
    live = LiveDirectory(server.running)
    who = b'{"broadcast_address":"node","hostname":"h","http_port":4151,"tcp_port":4150,"version":"1.3.0"}'
    registering = b"".join(b"REGISTER topic-%d channel-%d\n" % (number % 50, number) for number in range(20_000))
    with started(server), contextlib.ExitStack() as stack:
        stack.callback(live.end)
        live.connect("node")
        answers = live.send("node", b"  V1IDENTIFY\n" + len(who).to_bytes(4, "big") + who + registering)
        assert answers[1:] == [b"OK"] * 20_000
        assert len(ask(server.running, "/channels?topic=topic-7")["channels"]) == 400
        live.close("node")
        until(lambda: ask(server.running, "/nodes")["producers"] == [])


class Pair:
    """A directory and a node that is told of it."""

    def __init__(self, directory_kind: str, node_kind: str, folder: Path) -> None:
        self.directory = directory(directory_kind, folder)
        self.node = node(node_kind, folder, self.directory.running.tcp)

    def found(self, topic: str) -> list[str]:
        return found(self.directory.running, topic)

    def channels(self, topic: str) -> list[str]:
        return sorted(ask(self.directory.running, f"/channels?topic={topic}")["channels"])

    def registered(self, topic: str, channel: str) -> bool:
        return f"channel:{topic}:{channel}" in ask(self.directory.running, "/debug")

    def known(self) -> bool:
        """Whether the node has announced itself."""
        return bool(ask(self.directory.running, "/nodes")["producers"])

    def post(self, path: str) -> None:
        assert self.node.running.request("POST", path)[0] == 200


@pytest.fixture(params=[(each, other) for each in DIRECTORIES for other in NODES], ids="-".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Each directory with each node; the real pair is the control."""
    directory_kind, node_kind = request.param
    both = Pair(directory_kind, node_kind, tmp_path)
    with started(both.directory, both.node):
        until(both.known)
        yield both


def test_what_a_node_has_is_known(pair: Pair) -> None:
    pair.post("/topic/create?topic=t")
    until(lambda: pair.found("t") == [pair.node.running.tcp])
    pair.post("/channel/create?topic=t&channel=c")
    until(lambda: pair.registered("t", "c"))
    [seen] = ask(pair.directory.running, "/nodes")["producers"]
    assert seen["topics"] == ["t"]
    assert seen["version"] == "1.3.0"
    assert f"{seen['broadcast_address']}:{seen['http_port']}" == pair.node.running.http
    pair.post("/channel/delete?topic=t&channel=c")
    until(lambda: not pair.registered("t", "c"))
    assert pair.channels("t") == ["c"]
    pair.post("/topic/delete?topic=t")
    until(lambda: pair.found("t") == [])
    assert ask(pair.directory.running, "/lookup?topic=t") is not None


def test_a_topic_has_its_channels_from_the_first_message_on(pair: Pair) -> None:
    for channel in ("a", "b", "c%23ephemeral"):
        assert pair.directory.running.request("POST", f"/channel/create?topic=t&channel={channel}")[0] == 200
    assert pair.node.running.request("POST", "/pub?topic=t", b"first") == (200, b"OK")
    until(lambda: {each["channel_name"]: each["depth"] for each in pair.node.running.topic("t")["channels"]} == {"a": 1, "b": 1})
    until(lambda: pair.registered("t", "b"))


def test_a_node_that_dies_is_forgotten_and_comes_back_with_everything(pair: Pair, tmp_path: Path) -> None:
    pair.post("/topic/create?topic=t")
    pair.post("/channel/create?topic=t&channel=c")
    until(lambda: pair.registered("t", "c"))
    if pair.node.running.kind == "nsqd":  # which writes down what it has a moment later
        until(lambda: '"name":"c"' in (tmp_path / "nsqd-data" / "nsqd.dat").read_text())
    pair.node.kill()
    until(lambda: not pair.known())
    assert pair.found("t") == []
    assert pair.channels("t") == ["c"]
    pair.node.start()
    until(lambda: pair.found("t") == [pair.node.running.tcp])
    until(lambda: pair.registered("t", "c"))


def test_a_directory_that_dies_is_told_everything_again(pair: Pair) -> None:
    pair.post("/topic/create?topic=t")
    until(lambda: pair.found("t"))
    pair.directory.kill()
    # Whoever publishes meanwhile notices nothing.
    assert pair.node.running.request("POST", "/pub?topic=t", b"x") == (200, b"OK")
    pair.post("/channel/create?topic=t&channel=c")
    pair.directory.start()
    until(lambda: pair.registered("t", "c"), patience_s=40)
    assert pair.found("t") == [pair.node.running.tcp]


def test_the_list_of_directories_changes_at_run_time(pair: Pair, tmp_path: Path) -> None:
    pair.post("/topic/create?topic=t")
    until(lambda: pair.found("t"))
    (tmp_path / "other").mkdir()
    other = directory(pair.directory.running.kind, tmp_path / "other")
    with started(other):
        change_addresses(pair.node, [other.running.tcp])
        until(lambda: found(other.running, "t") == [pair.node.running.tcp])
        until(lambda: not pair.known())
        change_addresses(pair.node, [])
        until(lambda: found(other.running, "t") == [])


def change_addresses(server: Server, addresses: list[str]) -> None:
    url = f"http://{server.running.http}/config/nsqlookupd_tcp_addresses"
    request = urllib.request.Request(url, method="PUT", data=json.dumps(addresses).encode())
    with urllib.request.urlopen(request, timeout=10) as response:
        assert json.loads(response.read()) == addresses


BODIES = [b"one", b"two", b"three"]


@pytest.fixture(scope="module", params=[(each, other) for each in DIRECTORIES for other in NODES], ids="-".join)
def standing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair for many clients."""
    directory_kind, node_kind = request.param
    both = Pair(directory_kind, node_kind, tmp_path_factory.mktemp("standing"))
    with started(both.directory, both.node):
        until(both.known)
        yield both


@pytest.mark.cell("lookup")
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_consumers_find_the_node(standing: Pair, client: Client, topic: str) -> None:
    assert client.publish(standing.node.running.tcp, topic, [Step(BODIES)]) == len(BODIES)
    until(lambda: standing.found(topic))
    consumed = client.consume("", topic, "channel", len(BODIES), directory=standing.directory.running.http)
    assert sorted(each.body for each in consumed) == sorted(BODIES)


@pytest.mark.cell("lookup", client="polymq.clients.nsq")
def test_our_consumer_finds_the_node(standing: Pair, topic: str) -> None:
    async def go() -> list[bytes]:
        async with NsqSubscriber(topic, "channel", lookups=[standing.directory.running.http]) as subscriber:
            seen = []
            async for message in subscriber:
                seen.append(message.body)
                message.settle()
                if len(seen) == len(BODIES):
                    break
            return seen

    assert standing.node.running.request("POST", f"/mpub?topic={topic}", b"\n".join(BODIES))[0] == 200
    until(lambda: standing.found(topic))
    assert sorted(asyncio.run(go())) == sorted(BODIES)


def test_nsqs_own_tools_find_the_node(standing: Pair, topic: str, tmp_path: Path) -> None:
    web = standing.directory.running.http
    assert standing.node.running.request("POST", f"/mpub?topic={topic}", b"\n".join(BODIES))[0] == 200
    until(lambda: standing.found(topic))
    tail = [str(BIN / "nsq_tail"), f"-topic={topic}", "-channel=tail", "-n=3", f"-lookupd-http-address={web}"]
    printed = subprocess.run(tail, capture_output=True, timeout=60, check=True).stdout
    assert sorted(printed.split()) == sorted(BODIES)
    archive = [str(BIN / "nsq_to_file"), f"-topic={topic}", "-channel=file", f"-output-dir={tmp_path}", f"-lookupd-http-address={web}"]
    with subprocess.Popen(archive, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: "file" in standing.channels(topic))
            assert standing.node.running.request("POST", f"/pub?topic={topic}", b"four")[0] == 200
            until(lambda: standing.node.running.channel(topic, "file")["message_count"] >= 1)
        finally:
            process.terminate()
    written = b"".join(path.read_bytes() for path in Path(tmp_path).rglob("*.log"))
    assert b"four" in written.split()


def test_nsqadmin_shows_and_changes_the_cluster(standing: Pair, topic: str) -> None:
    [port] = free_ports(1)
    web = f"127.0.0.1:{port}"
    admin = Server(
        "nsqadmin",
        Path(standing.node._log).parent,
        [str(BIN / "nsqadmin"), f"-http-address={web}", f"-lookupd-http-address={standing.directory.running.http}"],
        web,
        web,
    )
    with started(admin):
        created = json.dumps({"topic": topic, "channel": "c"}).encode()
        assert admin.running.request("POST", "/api/topics", created)[0] == 200
        assert topic in ask(admin.running, "/api/topics")["topics"]
        assert standing.node.running.request("POST", f"/pub?topic={topic}", b"x") == (200, b"OK")
        until(lambda: standing.found(topic))
        [seen] = ask(admin.running, "/api/nodes")["nodes"]
        assert f"{seen['broadcast_address']}:{seen['tcp_port']}" == standing.node.running.tcp
        assert seen["out_of_date"] is False
        assert topic in [each["topic"] for each in seen["topics"]]
        shown = ask(admin.running, f"/api/topics/{topic}")
        assert shown["message_count"] == 1
        assert [each["channel_name"] for each in shown["channels"]] == ["c"]
        place = standing.node.running.http
        gone = urllib.request.Request(f"http://{web}/api/nodes/{place}", method="DELETE", data=json.dumps({"topic": topic}).encode())
        with urllib.request.urlopen(gone, timeout=10) as response:
            assert response.status == 200
        assert standing.found(topic) == []
        deleted = urllib.request.Request(f"http://{web}/api/topics/{topic}", method="DELETE")
        with urllib.request.urlopen(deleted, timeout=10) as response:
            assert response.status == 200
        assert topic not in ask(standing.directory.running, "/topics")["topics"]


def test_polymq_alone_is_both(tmp_path: Path, topic: str) -> None:
    """One process in place of nsqd and nsqlookupd, even if it is told to announce itself to itself."""
    lookup_tcp, lookup_web = (f"127.0.0.1:{port}" for port in free_ports(2))
    server = node("polymq", tmp_path, lookup_tcp, lookup=(lookup_tcp, lookup_web))
    with started(server):
        assert server.running.request("POST", f"/mpub?topic={topic}", b"\n".join(BODIES))[0] == 200
        with urllib.request.urlopen(f"http://{lookup_web}/lookup?topic={topic}", timeout=10) as response:
            [producer] = json.load(response)["producers"]
        assert f"{producer['broadcast_address']}:{producer['tcp_port']}" == server.running.tcp
        client = next(each for each in CLIENTS if each.name == "go-nsq")
        consumed = client.consume("", topic, "channel", len(BODIES), directory=lookup_web)
        assert sorted(each.body for each in consumed) == sorted(BODIES)


def test_a_directory_that_says_nothing_or_nonsense_disturbs_nobody(tmp_path: Path, topic: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as nonsense:

        def answer() -> None:
            while True:
                try:
                    connection, _ = nonsense.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)

        threading.Thread(target=answer, daemon=True).start()
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (silent, nonsense)]
        server = node("polymq", tmp_path, *addresses, "127.0.0.1:1", "no-such-host.invalid:4160")
        with started(server):
            for _ in range(100):
                began = time.monotonic()
                assert server.running.request("POST", f"/pub?topic={topic}", b"x") == (200, b"OK")
                assert time.monotonic() - began < 1
            until(lambda: "no answer within 5 s" in server.log)
            until(lambda: "no answer of nsqlookupd's" in server.log)
            assert "nsqlookupd 127.0.0.1:1: Connection refused" in server.log
            assert server.log.count("no answer of nsqlookupd's") == 1
        nonsense.shutdown(socket.SHUT_RDWR)


def agreeable(listening: socket.socket, http_port: int) -> None:
    """Answer as nsqlookupd does, for as long as the socket is open; the HTTP port is somebody else's."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            who = json.dumps({"broadcast_address": "127.0.0.1", "http_port": http_port, "tcp_port": 1, "version": "1.3.0"}).encode()
            introduced = False
            while data := connection.recv(65536):
                count = data.count(b"\n")
                if not introduced:
                    introduced, count = True, count - 1
                    connection.sendall(len(who).to_bytes(4, "big") + who)
                connection.sendall(b"\0\0\0\2OK" * count)


def test_a_directory_that_does_not_say_which_channels_there_are(tmp_path: Path, topic: str) -> None:
    """A new topic's messages are given out after five seconds; nobody else waits at all."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Thread(target=agreeable, args=(listening, silent.getsockname()[1]), daemon=True).start()
        server = node("polymq", tmp_path, f"127.0.0.1:{listening.getsockname()[1]}")
        client = next(each for each in CLIENTS if each.name == "go-nsq")
        with started(server):
            tcp = server.running.tcp
            until(lambda: "announced to nsqlookupd" in server.log)
            began = time.monotonic()
            assert client.publish(tcp, topic, [Step(BODIES)]) == len(BODIES)
            assert time.monotonic() - began < 2
            assert len(client.consume(tcp, topic, "channel", len(BODIES))) == len(BODIES)
            assert 4 < time.monotonic() - began < 10
            # It is being asked about one new topic; another does not wait for it.
            client.publish(tcp, f"{topic}-probe", [Step(BODIES)])
            began = time.monotonic()
            client.publish(tcp, f"{topic}-more", [Step(BODIES)])
            assert len(client.consume(tcp, f"{topic}-more", "channel", len(BODIES))) == len(BODIES)
            assert time.monotonic() - began < 3
        listening.shutdown(socket.SHUT_RDWR)
