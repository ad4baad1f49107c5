"""What the golden script does not reach: a full directory, and answers that are too long for one piece."""

from __future__ import annotations

import json

import pytest

from tests.unit.gateways.nsqlookup.golden_script import identify, node
from tests.unit.gateways.nsqlookup.memory import MemoryDirectory


@pytest.mark.parametrize("path", ["/topic/create?topic=more", "/channel/create?topic=t&channel=more"])
def test_a_full_directory_says_so(path: str) -> None:
    directory = MemoryDirectory(registrations_max=1)
    assert directory.ask("POST", "/topic/create?topic=t")[0] == 200
    status, _, body = directory.ask("POST", path)
    assert (status, body) == (503, b'{"message":"LIMIT_REACHED"}')


@pytest.mark.parametrize("path", ["/nodes", "/debug"])
def test_long_answers_come_in_pieces(path: str) -> None:
    directory = MemoryDirectory()
    for number in range(300):
        directory.connect(str(number))
        registering = b"".join(b"REGISTER a-topic-with-some-name-%d\n" % each for each in range(10))
        directory.send(str(number), b"  V1" + identify(node(number)) + registering)
    status, headers, body = directory.ask("GET", path)
    assert status == 200
    assert headers["Transfer-Encoding"] == "chunked"
    document = json.loads(body)
    if path == "/nodes":
        assert [len(each["topics"]) for each in document["producers"]] == [10] * 300
    else:
        assert {key: len(producers) for key, producers in document.items()} == {
            "client::": 300,
            **{f"topic:a-topic-with-some-name-{each}:": 300 for each in range(10)},
        }


@pytest.mark.parametrize("path", ["/topics", "/channels?topic=t", "/lookup?topic=t"])
def test_long_lists_come_in_pieces(path: str) -> None:
    directory = MemoryDirectory()
    names = [f"a-name-that-is-rather-long-{number:05d}" for number in range(3000)]
    for name in names:
        directory.registry.create_topic(name)
        directory.registry.create_channel("t", name)
    for number in range(300):
        directory.connect(str(number))
        directory.send(str(number), b"  V1" + identify(node(number)) + b"REGISTER t\n")
    status, headers, body = directory.ask("GET", path)
    assert (status, headers["Transfer-Encoding"], headers["Content-Type"]) == (200, "chunked", "application/json; charset=utf-8")
    document = json.loads(body)
    assert document.get("topics", [*names, "t"]) == [*names, "t"]
    assert document.get("channels", names) == names
    assert len(document.get("producers", names[:300])) == 300
    wire = directory.http()
    wire.send(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % path.encode() * 1000)
    assert len(wire.output) < 64 * 1024, "one piece of the first answer"
    assert wire.paused


def test_names_are_written_as_go_writes_them() -> None:
    directory = MemoryDirectory()
    directory.connect("a")
    directory.send("a", b"  V1" + identify(node(1).replace(b'"h1"', b'"<&>\\ud800\xff"')))
    _, _, body = directory.ask("GET", "/nodes")
    assert '"hostname":"\\u003c\\u0026\\u003e\ufffd\ufffd"'.encode() in body
