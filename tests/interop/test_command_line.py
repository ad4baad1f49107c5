"""The commands as people type them, against a broker as `polymq serve` starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from polymq.cli.secret import make_secret
from tests.interop.servers import answers, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs `polymq` in a folder, with the broker's addresses in the environment, as a user would set them once."""

    folder: Path
    environment: dict[str, str]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command and leave it running."""
        command = [sys.executable, "-m", "polymq.cli", *arguments]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, *arguments: str, given: bytes = b"") -> tuple[int, str, str]:
        """Run a command to its end: exit status, what it wrote, what it said."""
        with self.start(*arguments) as process:
            written, said = process.communicate(given, timeout=TIMEOUT_S)
        return process.returncode, written.decode(), said.decode()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder of its own, and ports that nothing else uses."""
    tcp, http, admin = (f"127.0.0.1:{port}" for port in free_ports(3))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POLYMQ_")}
    return Shell(tmp_path, {**clean, "POLYMQ_NSQ_TCP": tcp, "POLYMQ_NSQ_HTTP": http, "POLYMQ_SERVER_HTTP": admin})


@pytest.fixture
def broker(shell: Shell) -> Iterator[subprocess.Popen[bytes]]:
    """A broker on ./polymq-data; afterwards it must end well when asked to."""
    with shell.start("serve", "--log-level", "warning") as process:
        began = time.monotonic()
        while not answers(shell.environment["POLYMQ_NSQ_HTTP"]):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() - began < TIMEOUT_S
            time.sleep(0.01)
        yield process
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, said) == (0, b"")


@pytest.mark.usefixtures("broker")
def test_the_first_steps_of_the_readme(shell: Shell) -> None:
    assert shell.run("publish", "greetings", "hello", "hello again") == (0, "", "published 2 messages to greetings\n")
    assert shell.run("publish", "greetings", given="eins\n\nzwei ü".encode())[2] == "published 2 messages to greetings\n"
    assert shell.run("publish", "greetings", "--whole", given=b"a\nb")[0] == 0
    status, written, _ = shell.run("consume", "greetings", "me", "--count", "3", "--format", "body")
    assert (status, written) == (0, "hello\nhello again\neins\n")
    status, written, _ = shell.run("consume", "greetings", "me", "--idle", "1s", "--format", "json")
    assert [json.loads(line)["body"] for line in written.splitlines()] == ["zwei ü", "a\nb"]
    status, written, _ = shell.run("tail", "greetings", "--from", "start", "--format", "json")
    assert [json.loads(line)["offset"] for line in written.splitlines()] == [0, 1, 2, 3, 4]
    assert shell.run("tail", "greetings", "-n", "1", "--format", "body") == (0, "a\nb\n", "")
    (topic,) = json.loads(shell.run("stats", "--json")[1])
    assert (topic["name"], topic["in_log"], topic["groups"]["me"]["waiting"], topic["groups"]["me"]["in_flight"]) == ("greetings", 5, 0, 0)
    status, written, said = shell.run("inspect", "polymq-data", "--records", "--format", "body")
    assert (status, written, said) == (0, "hello\nhello again\neins\nzwei ü\na\nb\n", "")


@pytest.mark.usefixtures("broker")
def test_keys_and_headers_go_and_come_over_http(shell: Shell) -> None:
    shell.run("publish", "flights", "departed", "landed", "--key", "DL1149", "--header", "Trace: 7f3a", "--header", "To: KTPA")
    shell.run("publish", "flights", "--http", "--key", "ü", given=b"one\n\ntwo\n")
    shell.run("publish", "flights", "--http", given=b"".join(b"%d\n" % number for number in range(5000)))
    status, written, said = shell.run("consume", "flights", "board", "--http", "--count", "3", "--format", "json")
    assert (status, said) == (0, "")
    rows = [json.loads(line) for line in written.splitlines()]
    assert [(row["key"], row.get("headers"), row["body"]) for row in rows] == [
        ("DL1149", [["trace", "7f3a"], ["to", "KTPA"]], "departed"),
        ("DL1149", [["trace", "7f3a"], ["to", "KTPA"]], "landed"),
        ("ü", None, "one"),
    ]
    # Nothing more was out than was wanted, and all that was written is settled: the next one begins behind it.
    (topic,) = json.loads(shell.run("stats", "--json")[1])
    assert (topic["groups"]["board"]["waiting"], topic["groups"]["board"]["in_flight"]) == (5001, 0)
    status, written, _ = shell.run("consume", "flights", "board", "--http", "--idle", "1s", "--format", "body", "--in-flight", "2500")
    assert (status, written.splitlines()) == (0, ["two", *map(str, range(5000))])
    (topic,) = json.loads(shell.run("stats", "--json")[1])
    assert (topic["groups"]["board"]["waiting"], topic["groups"]["board"]["in_flight"]) == (0, 0)
    assert shell.run("consume", "flights", "board", "--http", "--in-flight", "2501")[0] == 1


@pytest.mark.usefixtures("broker")
def test_following_shows_messages_as_they_come(shell: Shell) -> None:
    shell.run("publish", "t", "first")
    with shell.start("tail", "t", "-f", "--format", "body") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        shell.run("publish", "t", "second")
        assert process.stdout.readline() == b"second\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130


@pytest.mark.usefixtures("broker")
def test_a_delay_is_kept(shell: Shell) -> None:
    assert shell.run("publish", "t", "later", "--delay", "1s")[0] == 0
    assert shell.run("tail", "t") == (0, "", "")
    began = time.monotonic()
    assert shell.run("consume", "t", "c", "--count", "1", "--format", "body")[1] == "later\n"
    assert time.monotonic() - began < 10


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("over", [(), ("--http",)], ids=["tcp", "http"])
def test_ctrl_c_ends_a_consumer_that_waits(shell: Shell, over: tuple[str, ...]) -> None:
    shell.run("publish", "t", "first")
    with shell.start("consume", "t", "c", *over, "--format", "body") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.usefixtures("broker")
def test_topics_and_channels_are_managed(shell: Shell) -> None:
    assert shell.run("topic", "create", "orders") == (0, "", "created topic orders\n")
    assert shell.run("channel", "create", "orders", "billing")[2] == "created channel billing of topic orders\n"
    status, written, said = shell.run(
        "channel", "policy", "orders", "billing", "--max-attempts", "5", "--on-disconnect", "requeue", "--json"
    )
    assert (status, said) == (0, "")
    policy = json.loads(written)
    assert (policy["max_attempts"], policy["dead_letter_topic"], policy["on_disconnect"]) == (5, "orders.billing.dead", "requeue")
    assert "ttl           7d\n" in shell.run("topic", "policy", "orders", "--ttl", "7d")[1]
    shell.run("publish", "orders", "one", "two", "three")
    assert shell.run("channel", "peek", "orders", "billing", "--format", "body") == (0, "one\ntwo\nthree\n", "")
    assert shell.run("topic", "peek", "orders", "--offset", "1", "--format", "body") == (0, "two\nthree\n", "")
    assert shell.run("consume", "orders", "billing", "--count", "3", "--format", "body")[1] == "one\ntwo\nthree\n"
    assert shell.run("channel", "replay", "orders", "billing", "--from", "1")[2] == "channel billing of topic orders goes on from 1\n"
    assert shell.run("consume", "orders", "billing", "--count", "2", "--format", "body")[1] == "two\nthree\n"
    assert shell.run("channel", "replay", "orders", "billing", "--from", "1h")[0] == 0
    assert shell.run("consume", "orders", "billing", "--count", "3", "--format", "body")[1] == "one\ntwo\nthree\n"
    shell.run("publish", "orders", "later", "--delay", "50m")
    (row,) = json.loads(shell.run("topic", "deferred", "orders", "--json")[1])
    assert row["size"] == 5
    assert shell.run("topic", "cancel", "orders", row["id"])[2] == "cancelled 1 message of topic orders\n"
    assert shell.run("topic", "deferred", "orders")[1] == "nothing is deferred\n"
    assert shell.run("topic", "delete", "orders")[0] == 0
    assert shell.run("topic", "peek", "orders") == (1, "", "polymq: there is no topic 'orders': polymq stats lists all\n")


def test_secrets_are_taken_from_the_environment(shell: Shell) -> None:
    secret, digest = make_secret()
    shell.environment.update(POLYMQ_ACCESS_SECRET_HASH=digest, POLYMQ_ACCESS_HTTP="login")
    with shell.start("serve", "--log-level", "error") as process:
        while not answers(shell.environment["POLYMQ_NSQ_HTTP"]):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        asking = "polymq: the broker wants a secret: put it into the environment as POLYMQ_SECRET\n"
        assert shell.run("topic", "create", "t") == (1, "", asking)
        shell.environment["POLYMQ_SECRET"] = "wrong"
        assert shell.run("topic", "create", "t")[2] == asking
        shell.environment["POLYMQ_SECRET"] = secret
        assert shell.run("topic", "create", "t") == (0, "", "created topic t\n")
        assert "no limit" in shell.run("topic", "policy", "t")[1]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)


@pytest.mark.usefixtures("broker")
def test_a_second_broker_does_not_take_the_folder(shell: Shell) -> None:
    status, _, said = shell.run("serve", "--nsq", "127.0.0.1:0", "--nsq-http", "off", "--http", "off")
    assert status == 1
    assert "in use by another process" in said


def test_without_a_broker_it_is_said_what_to_do(shell: Shell) -> None:
    for arguments in (("tail", "t"), ("stats",), ("topic", "create", "t"), ("channel", "peek", "t", "c")):
        status, _, said = shell.run(*arguments)
        assert status == 1
        assert "Is the broker running there? `polymq serve` starts one" in said
