"""The `nats` command line tool, as users type it: the same words to real servers and to polymq, with the same outcome."""

from __future__ import annotations

import json
import re
import subprocess
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_programs import Listener, output_of
from tests.interop.nats_secrets import nkey_of, tls_block
from tests.interop.nats_servers import PEERS, SERVING_KINDS, NatsOptions, NatsServer, nats_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.unit.wire.authority import Authority

LEFT_OUT: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("nats_cli_left_out.toml").read_text(encoding="utf-8"))["commands"]
HEARD_TIMEOUT_S = 10.0
TRIED = {"account", "bench", "latency", "publish", "reply", "request", "rtt", "service", "subscribe"}

every_kind = pytest.mark.parametrize("kind", SERVING_KINDS, scope="module")


class Tool:
    """The tool beside one server; its settings are in a folder of its own."""

    def __init__(self, server: NatsServer, home: Path) -> None:
        self.server = server
        self.environment = {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "NATS_CONTEXT": "", "NO_COLOR": "1"}

    def says(self, *words: str, said: str | None = None, status: int = 0) -> str:
        return output_of("nats", self.server, *words, said=said, status=status, environment=self.environment)

    def heard(self, subject: str, count: int) -> None:
        """Wait until a subject has that many listeners: the tool says that it listens before the server knows."""
        deadline = time.monotonic() + HEARD_TIMEOUT_S
        while (found := len(self.server.monitored(f"subsz?subs=1&test={subject}").get("subscriptions_list") or [])) < count:
            assert time.monotonic() < deadline, f"{found} listeners of {subject}"
            time.sleep(0.01)

    def listens(self, *words: str, ready: str) -> Listener:
        return Listener("nats", self.server, *words, ready=ready, environment=self.environment)


@pytest.fixture(scope="module")
def tool(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    folder = tmp_path_factory.mktemp(kind)
    with nats_server(kind, folder) as server:
        yield Tool(server, folder)


@every_kind
def test_pub_and_sub(tool: Tool, kind: str) -> None:
    with (
        tool.listens("sub", "cli.>", "--count", "5", ready="Subscribing on cli.>") as plain,
        tool.listens("sub", "cli.*", "--queue", "workers", "--count", "5", ready="Subscribing on cli.*") as member,
    ):
        tool.heard("cli.one", 2)
        assert 'Published 5 bytes to "cli.one"' in tool.says("pub", "cli.one", "hello", "-H", "Colour:red", "-H", "Colour:blue")
        assert tool.says("pub", "cli.many", "number {{Count}}", "--count", "3").count("Published 8 bytes") == 3
        tool.says("pub", "cli.asking", "--reply", "cli.answers.here", "--force-stdin", said="from a pipe")
        found = plain.rest()
        assert re.findall(r'\[#\d\] Received on "(\S+?)"', found) == ["cli.one", "cli.many", "cli.many", "cli.many", "cli.asking"]
        assert "Colour: red\nColour: blue\n\nhello\n" in found
        assert 'with reply "cli.answers.here"' in found
        assert "from a pipe" in found
        assert re.findall("number .", member.rest()) == ["number 1", "number 2", "number 3"]


@every_kind
def test_req_and_reply(tool: Tool, kind: str) -> None:
    with (
        tool.listens("reply", "cli.upper", "you said {{.Request}}", ready='istening on "cli.upper"'),
        tool.listens("reply", "cli.echo", "--echo", ready='istening on "cli.echo"'),
        tool.listens("reply", "cli.run.*", "--command", "printf %s {{2}}", ready='istening on "cli.run.*"'),
    ):
        for subject in ("cli.upper", "cli.echo", "cli.run.x"):
            tool.heard(subject, 1)
        assert tool.says("req", "cli.upper", "this", "--raw").strip() == "you said this"
        answer = tool.says("req", "cli.echo", "that", "-H", "Colour:red", "--count", "2")
        assert answer.count("Received with rtt") == answer.count("that\n") == 2
        assert "Colour: red" in answer
        assert tool.says("req", "cli.run.word", "", "--raw").strip() == "word"
    assert "No responders are available" in tool.says("req", "cli.nobody", "hello?")


@every_kind
def test_several_replies(tool: Tool, kind: str) -> None:
    with (
        tool.listens("reply", "cli.several", "one", "--queue", "first", ready="istening on"),
        tool.listens("reply", "cli.several", "two", "--queue", "second", ready="istening on"),
    ):
        tool.heard("cli.several", 2)
        said = tool.says("req", "cli.several", "all of you", "--replies", "2")
        assert sorted(re.findall(r"^(?:one|two)$", said, re.MULTILINE)) == ["one", "two"]


@every_kind
def test_rtt(tool: Tool, kind: str) -> None:
    assert re.search(rf"{re.escape(tool.server.url)}: [\d.]+(µs|ms)", tool.says("rtt", "5"))
    (measured,) = json.loads(tool.says("rtt", "--json"))
    assert measured["results"][0]["rtt"] > 0


@every_kind
def test_bench(tool: Tool, kind: str) -> None:
    sizes = ("--msgs", "3000", "--size", "64", "--no-progress")
    with tool.listens("bench", "sub", "cli.bench", "--clients", "2", *sizes, ready="Starting Core NATS subscriber") as listening:
        for _ in range(2):
            listening.says("Starting Core NATS subscriber, expecting 3,000 messages")
        tool.heard("cli.bench", 2)
        assert "publisher" in tool.says("bench", "pub", "cli.bench", *sizes)
        assert "aggregated stats" in listening.rest()
    with tool.listens("bench", "service", "serve", "cli.serve", "--no-progress", ready="Starting"):
        tool.heard("cli.serve", 1)
        assert re.search(r"[\d,]+ msgs/sec", tool.says("bench", "service", "request", "cli.serve", "--msgs", "200", "--no-progress"))
    many = tool.says("bench", "pub", "cli.more", "--multisubject", "--multisubjectmax", "50", "--clients", "2", *sizes)
    assert "aggregated stats" in many


@every_kind
def test_services(tool: Tool, kind: str) -> None:
    with tool.listens("service", "serve", "shop", ready="istening"):
        tool.heard("$SRV.PING", 1)
        assert "shop" in tool.says("service", "list", "--timeout", "1s")
        assert "shop" in tool.says("service", "ping", "--timeout", "1s")
        assert "shop" in tool.says("service", "info", "shop")


@every_kind
def test_what_a_connection_is_like(tool: Tool, kind: str) -> None:
    assert "OK Connection" in tool.says("server", "check", "connection")
    info = tool.says("account", "info")
    assert re.search(r"Headers Supported: true", info)
    assert re.search(r"Maximum Payload: 1\.0 MiB", info)
    said = tool.says("latency", "--server-b", tool.server.url, "--duration", "1s")
    assert "Median Latency" in said


@every_kind
def test_secrets_and_tls(kind: str, tmp_path: Path, authority: Authority) -> None:
    public, seed = nkey_of(tmp_path)
    users = f'users: [{{nkey: {public}}}, {{user: "me", password: "word", permissions: {{publish: "allowed.>"}}}}]'
    options = NatsOptions(authorization=users, tls=tls_block(authority, "localhost", verify=True))
    identity = str(authority.issue("cli-client"))
    files = ("--tlsca", str(authority.certificate), "--tlscert", identity, "--tlskey", identity)
    with nats_server(kind, tmp_path, options) as server:
        tool = Tool(server, tmp_path)
        assert "Published" in tool.says("pub", "allowed.a", "x", *files, "--nkey", str(seed))
        assert "Published" in tool.says("pub", "allowed.a", "x", *files, "--user", "me", "--password", "word")
        forbidden = tool.says("pub", "other", "x", *files, "--user", "me", "--password", "word", status=1)
        assert 'Permissions Violation for Publish to "other"' in forbidden
        assert "Authorization Violation" in tool.says("pub", "allowed.a", "x", *files, "--user", "me", "--password", "wrong", status=1)


def test_what_is_left_out_is_listed_with_reasons() -> None:
    """Every command of the tool is either tried here or listed."""
    program = PEERS / "nats"
    if not program.exists():
        pytest.fail(f"{program} is missing: run peers/build.sh")
    said = subprocess.run([str(program), "--help"], capture_output=True, text=True, check=True)
    listed = (said.stdout + said.stderr).partition("Commands:\n")[2].partition("\n\n")[0]
    commands = set(re.findall(r"^  (\w+)  ", listed, re.MULTILINE))
    assert not TRIED & set(LEFT_OUT)
    assert commands == TRIED | set(LEFT_OUT)
    assert all(LEFT_OUT.values())
