"""docs/NSQ_HTTP.md: every endpoint of ours is there, and every command line in it does what it should."""

from __future__ import annotations

import re
import shlex
from urllib.parse import urlsplit

import pytest

from polymq.gateways.nsq.http import nsq_routes
from polymq.protocols.nsq.settings import NsqSettings
from tests.project.layout import ROOT
from tests.unit.gateways.nsq.http_world import NsqWorld

TEXT = ROOT.joinpath("docs", "NSQ_HTTP.md").read_text(encoding="utf-8")
COMMANDS = [line for line in TEXT.splitlines() if line.startswith("curl ")]
# Those that nsqd has: what they do is nsqd's to document.
NSQDS = re.compile(r"/(ping|info|stats|pub|mpub|config/.*|debug/.*|(topic|channel)/(create|delete|empty|pause|unpause))")


def requested(line: str) -> bytes:
    """The request that curl makes of a command line."""
    method, body, headers, url = "", b"", [], ""
    words = iter(shlex.split(line)[1:])
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-N":
            continue
        elif word == "-d":
            body = next(words).encode()
        elif word == "-H":
            headers.append(next(words))
        else:
            assert not word.startswith("-"), word
            assert not url
            url = word
    parts = urlsplit(url)
    assert parts.netloc == "127.0.0.1:4151"
    lines = [f"{method or ('POST' if body else 'GET')} {parts.path}?{parts.query} HTTP/1.1", "Host: h", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def answered(line: str) -> str:
    """The first line that a broker answers that has a topic and a channel, and one deferred message."""
    # With the limit that the page sets.
    world = NsqWorld(settings=NsqSettings(http_delay_ms_max=365 * 86_400_000))
    world.post("/topic/create?topic=flights")
    world.post("/channel/create?topic=flights&channel=board")
    world.publish("flights", b"departed", delay_ns=10**12)
    world.turn()
    (deferred,) = world.session.scheduled("flights") or []
    output = world.raw(requested(re.sub(r"(?<=id=)[0-9a-f]{16}", f"{deferred.id:016x}", line))).output
    return output.partition(b"\r\n")[0].decode()


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_line_works(line: str) -> None:
    # The stream that is named there has ended; test_http_streaming.py has others.
    assert answered(line) == ("HTTP/1.1 404 Not Found" if "stream=" in line else "HTTP/1.1 200 OK")


@pytest.mark.parametrize("path", ["nope", "topic/policy", "channel/policy?topic=flights&channel=nope"])
def test_a_command_line_that_does_not_is_found(path: str) -> None:
    assert answered(f"curl 'http://127.0.0.1:4151/{path}'").startswith("HTTP/1.1 40")


def test_every_endpoint_of_ours_is_there() -> None:
    ours = [route.path for route in nsq_routes(NsqSettings()) if not NSQDS.fullmatch(route.path)]
    assert {"/sub", "/fin", "/topic/policy", "/channel/replay"} <= set(ours)
    assert [path for path in ours if f"{path}?" not in TEXT and f"`{path}`" not in TEXT] == []
    assert [
        path for path in ours if path.startswith(("/topic", "/channel")) and not any(f":4151{path}?" in line for line in COMMANDS)
    ] == []
