"""A directory, word by word as nsqlookupd 1.3.0: every endpoint with every method, arguments that are wrong, nodes that come and go.

The golden script (`test_lookup.py`) tells a directory's whole life; this is its breadth.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.dialogue import TIMEOUT_S, Case, Cases, Playing, Stage, Transcripts, judge, masked, played, sized
from tests.interop.lookup import DIRECTORIES, directory, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.servers import Running

CASES = Cases()
case = CASES.case
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
PATHS = (
    *("/ping", "/info", "/topics", "/channels", "/lookup", "/nodes", "/debug", "/topic/create", "/topic/delete", "/topic/tombstone"),
    *("/channel/create", "/channel/delete", "/", "/ping/", "/topics/", "/TOPICS", "//topics", "/topic", "/create_topic", "/delete_topic"),
    *("/create_channel", "/delete_channel", "/tombstone_topic_producer", "/lookup/x", "/../ping"),
)
QUERIES = (
    *(
        "",
        "topic=",
        "topic=a%24",
        "topic=a&topic=b",
        "topic=%zz",
        "topic=new;channel=x",
        "&topic=new",
        "Topic=new",
        "topic=new%23ephemeral",
    ),
    *(
        "topic=new&channel=",
        "topic=new&channel=c%24",
        "topic=new&channel=c",
        "topic=new&channel=c%23ephemeral",
        "topic=a%24&channel=c",
        "channel=c",
    ),
    *(
        "topic=" + "a" * 64,
        "topic=" + "a" * 65,
        "topic=new&channel=" + "c" * 65,
        "topic=%C3%B6",
        "topic=a+b",
        "topic=*",
        "topic=new&channel=*",
    ),
    *("topic=new&node=", "topic=new&node=n:1", "topic=none&node=n:1", "node=n:1", "topic=new&node=n", "topic=a%24&node=n:1", "=x", "topic"),
)


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Transcripts:
    @contextlib.contextmanager
    def playing() -> Iterator[Playing]:
        with contextlib.ExitStack() as stack:
            servers: dict[str, dict[str, Running]] = {}
            for name in ("", "nodes"):
                servers[name] = {}
                for kind in DIRECTORIES:
                    server = directory(kind, tmp_path_factory.mktemp(kind))
                    stack.enter_context(started(server))
                    servers[name]["polymq" if kind == "polymq" else "nsqd"] = server.running
            yield servers, {}

    return played(CASES, playing)


@pytest.mark.parametrize("each", CASES.all, ids=lambda each: each.name)
def test_both_say_the_same(each: Case, transcripts: Transcripts) -> None:
    judge(each, transcripts)


def ask(stage: Stage, method: str, path: str, body: bytes | None = None, **headers: str) -> None:
    """Ask, and write down status, headers and body."""
    connection = http.client.HTTPConnection(stage.server.http, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        kept = sorted((name, value) for name, value in response.getheaders() if name not in {"Date", "Content-Length"})
        shown = " ".join(f"{name}: {value};" for name, value in kept)
        answer = re.sub(rb'"(remote_address|id)":"[^"]*"', rb'"\1":"<ADDRESS>"', response.read())
        answer = re.sub(rb'"last_update":\d+', b'"last_update":<TIME>', answer)
        stage.note(f"{method} {path} -> {response.status} {shown} {ordered(answer)}")


def ordered(answer: bytes) -> str:
    """nsqlookupd's lists come in any order."""
    try:
        found = json.loads(answer)
    except ValueError:
        return masked(answer)
    for key in ("topics", "channels"):
        if isinstance(found, dict) and isinstance(found.get(key), list):
            found[key].sort()
    if isinstance(found, dict) and isinstance(found.get("producers"), list):
        for each in found["producers"]:
            if "topics" in each:
                each["topics"], each["tombstones"] = None, sorted(zip(each["topics"], each["tombstones"], strict=True))
        found["producers"].sort(key=str)
    return json.dumps(found)


def add_paths() -> None:
    for path in PATHS:

        def play(stage: Stage, path: str = path) -> None:
            for method in METHODS:
                ask(stage, method, path)

        play.__name__ = f"methods {path}"
        case()(play)


add_paths()


@case("nodes")
def arguments(stage: Stage) -> None:
    """In order, because some of them make something."""
    for path, method in {
        "/channels": "GET",
        "/lookup": "GET",
        "/topic/create": "POST",
        "/channel/create": "POST",
        "/topic/tombstone": "POST",
        "/channel/delete": "POST",
        "/topic/delete": "POST",
    }.items():
        for query in QUERIES:
            ask(stage, method, f"{path}?{query}")
        ask(stage, "GET", "/topics")
        ask(stage, "GET", "/channels?topic=new")
    ask(stage, "GET", "/lookup?topic=new", Accept="application/vnd.nsq; version=1.0")
    ask(stage, "GET", "/lookup?topic=new", Accept="application/vnd.nsq version=1.0")
    ask(stage, "POST", "/topic/create", b"topic=body", **{"Content-Type": "application/x-www-form-urlencoded"})
    ask(stage, "POST", "/topic/create?topic=with-body", b"anything")
    life_of_nodes(stage)


IDENTITY = {"broadcast_address": "one", "hostname": "h", "tcp_port": 4150, "http_port": 4151, "version": "1.3.0"}


class Node:
    """A node's connection: answers are sizes and texts."""

    def __init__(self, stage: Stage, magic: bytes = b"  V1") -> None:
        host, _, port = stage.server.tcp.rpartition(":")
        self._stage = stage
        self._socket = socket.create_connection((host, int(port)), timeout=0.4)
        self._socket.sendall(magic)

    def say(self, *chunks: bytes, end: bool = False) -> None:
        with contextlib.suppress(OSError):
            for chunk in chunks:
                self._socket.sendall(chunk)
            if end:
                self._socket.shutdown(socket.SHUT_WR)
        heard, closed = b"", False
        with contextlib.suppress(TimeoutError):
            while not closed:
                try:
                    data = self._socket.recv(65536)
                except ConnectionResetError:  # closed with input that nobody had read
                    data = b""
                heard, closed = heard + data, not data
        texts = []
        while len(heard) >= 4:
            end_at = 4 + int.from_bytes(heard[:4], "big")
            texts.append(re.sub(rb'"hostname":"[^"]*"|"(tcp|http)_port":\d+', b"<HERE>", heard[4:end_at]))
            heard = heard[end_at:]
        shown = " | ".join(masked(each) for each in texts)
        self._stage.note(f"{masked(b''.join(chunks))} -> {shown} {'[closed]' if closed else '[open]'} {masked(heard)}")

    def close(self) -> None:
        self._socket.close()


def who(**fields: object) -> bytes:
    return b"IDENTIFY\n" + sized(json.dumps(IDENTITY | fields).encode())


@case()
def what_is_said_over_tcp(stage: Stage) -> None:
    for magic in (b"  V2", b"  V0", b"V1  ", b"GET ", b"\0\0\0\0"):
        node = Node(stage, magic)
        node.say(b"PING\n")
        node.close()
    wrong: list[dict[str, Any]] = [
        *({name: None} for name in IDENTITY),
        *({name: ""} for name in ("broadcast_address", "hostname", "version")),
        *({name: 0} for name in ("tcp_port", "http_port")),
        *({name: -1} for name in ("tcp_port", "http_port")),
        *({name: "4150"} for name in ("tcp_port", "http_port")),
        *({name: 1 << 70} for name in ("tcp_port", "http_port")),
        {"tcp_port": 4150.5},
        {"broadcast_address": 1},
        {"more": [1, {"a": None}]},
        {"Broadcast_Address": "two"},
        {"topology_zone": "z", "topology_region": "r"},
        {"version": "not a version"},
    ]
    for fields in wrong:
        node = Node(stage)
        node.say(who(**fields), b"PING\n")
        node.close()
    for commands in (
        (b"PING\n", b"PING x\n", b"PING\r\n"),
        (b"REGISTER t\n",),
        (b"UNREGISTER t\n",),
        (who(), who()),
        (who(), b"REGISTER\n"),
        (who(), b"REGISTER a$\n"),
        (who(), b"REGISTER a b$\n"),
        (who(), b"REGISTER a  \n", b"PING\n"),
        (who(), b"UNREGISTER\n"),
        (who(), b"UNREGISTER a$\n"),
        (who(), b"UNREGISTER a b$\n"),
        (who(), b"UNREGISTER never\n", b"UNREGISTER never c\n"),
        (who(), b"HELLO\n"),
        (who(), b"\n"),
        (who(), b"register a\n"),
        (b"IDENTIFY\n" + sized(b""),),
        (b"IDENTIFY\n" + sized(b"[]"),),
        (b"IDENTIFY\n" + sized(b"{} x"),),
    ):
        node = Node(stage)
        node.say(*commands)
        node.close()
    for data in (b"", b"PING", b"IDENTIFY\n", b"IDENTIFY\n\0\0\0\x09abc", who() + b"REGISTER t c"):
        node = Node(stage)
        node.say(data, end=True)
        node.close()


def life_of_nodes(stage: Stage) -> None:
    """Two nodes with the same topic; tombstones; what is left of them."""

    def look() -> None:
        for path in ("/topics", "/channels?topic=life", "/lookup?topic=life", "/lookup?topic=life%23ephemeral", "/nodes"):
            ask(stage, "GET", path)

    one, two = Node(stage), Node(stage)
    one.say(who(), b"REGISTER life c\n", b"REGISTER life\n", b"REGISTER life e#ephemeral\n", b"REGISTER life#ephemeral x\n")
    look()
    two.say(who(broadcast_address="two", tcp_port=5150, http_port=5151), b"REGISTER life c\n", b"REGISTER life d\n")
    look()
    for node in ("one:4150", "one:4151", "one", "two:5151"):
        ask(stage, "POST", f"/topic/tombstone?topic=life&node={node}")
        look()
    one.say(b"UNREGISTER life c\n", b"UNREGISTER life e#ephemeral\n", b"UNREGISTER life#ephemeral x\n")
    look()
    one.say(b"UNREGISTER life\n", b"UNREGISTER life#ephemeral\n")
    look()
    ask(stage, "POST", "/channel/delete?topic=life&channel=d")
    look()
    two.say(b"REGISTER life d\n", b"PING\n")
    look()
    ask(stage, "POST", "/topic/delete?topic=life")
    look()
    two.say(b"PING\n")
    two.close()
    one.close()
