"""The jobs that every client program understands, and how to run one.

A job is a JSON object on standard input, its answer a JSON object on standard output, exit status 0:

    action              "publish" or "consume"
    address, topic      "HOST:PORT" of the TCP door; the topic
    auth_secret         what AUTH says; "": it is not sent
    tls_root_file       ask for TLS, with the server's certificate vouched for by this one; "": no TLS
    snappy, deflate     ask for compression
    http                "HOST:PORT" of the HTTP door, for a client that publishes single messages over it; "": TCP alone
    publish
      steps             list of {"bodies": [base64, …], "delay_ms": n}: one body is a PUB, more are an MPUB, a delay makes
                        it a DPUB; each step waits for the answer to the one before
      answer            {"published": messages}
    consume
      channel           the channel
      count             messages to finish; what still arrives while closing is finished as well
      max_in_flight     RDY
      message_timeout_ms  asked for with IDENTIFY; 0: the server's default
      requeue_first     whether a first delivery is requeued (by requeue_delay_ms) instead of finished
      directory         "HOST:PORT" of a directory's HTTP door, to be asked for the topic instead of using the address
      hold_ms           keep each message this long before finishing it, and TOUCH it every touch_every_ms
      answer            {"deliveries": [{"body": base64, "id", "attempts", "timestamp_ns", "finished"}, …]}
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CLIENTS", "Client", "Consumed", "Step"]

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".peers"
JOB_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """One publishing command."""

    bodies: list[bytes]
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Consumed:
    """One delivery as a client saw it."""

    body: bytes
    id: str
    attempts: int
    timestamp_ns: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Client:
    """A client program and what is known about its library."""

    name: str
    title: str
    command: tuple[str, ...]
    # It waits for what is in flight before it goes, so a clean shutdown delivers nothing twice.
    drains: bool = False
    # It can ask for a message timeout with IDENTIFY.
    asks_timeout: bool = True
    # What it cannot do, by the names of the modes, and why; "publish " in front: only publishing cannot.
    cannot: Mapping[str, str] = field(default_factory=dict)
    # What users should know of what it can do; "" is all of it.
    remarks: Mapping[str, str] = field(default_factory=dict)

    def start(self, **job: object) -> subprocess.Popen[str]:
        """Start a job; `finish` waits for it."""
        program = Path(self.command[0])
        if program.is_absolute() and not program.exists():
            pytest.fail(f"{program} is missing: run peers/build.sh")
        defaults: dict[str, object] = {
            "auth_secret": "",
            "steps": [],
            "tls_root_file": "",
            "snappy": False,
            "deflate": False,
            "channel": "",
            "count": 0,
            "max_in_flight": 1,
            "message_timeout_ms": 0,
            "requeue_first": False,
            "requeue_delay_ms": 0,
            "hold_ms": 0,
            "touch_every_ms": 0,
            "directory": "",
            "http": "",
        }
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(defaults | job))
        process.stdin.close()
        process.stdin = None
        return process

    def finish(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Wait for a job and return its answer."""
        try:
            out, err = process.communicate(timeout=JOB_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
            pytest.fail(f"{self.name} did not end within {JOB_TIMEOUT_S:.0f} s: {err[-2000:]}")
        assert process.returncode == 0, f"{self.name}: {err[-2000:]}"
        return dict(json.loads(out.splitlines()[-1]))

    def publish(self, address: str, topic: str, steps: list[Step], **options: object) -> int:
        """Publish; returns the number of messages that were acknowledged."""
        coded = [{"bodies": [base64.b64encode(body).decode() for body in step.bodies], "delay_ms": step.delay_ms} for step in steps]
        return int(self.finish(self.start(action="publish", address=address, topic=topic, steps=coded, **options))["published"])

    def consume(self, address: str, topic: str, channel: str, count: int, **options: object) -> list[Consumed]:
        """Consume until `count` messages are finished."""
        return self.consumed(self.start(action="consume", address=address, topic=topic, channel=channel, count=count, **options))

    def consumed(self, process: subprocess.Popen[str]) -> list[Consumed]:
        """Wait for a consuming job and return what it saw."""
        deliveries = self.finish(process)["deliveries"]
        return [Consumed(**{**each, "body": base64.b64decode(each["body"])}) for each in deliveries]


def python_client(name: str, version: str, **known: Any) -> Client:
    return Client(name, f"{name} {version}", (sys.executable, "-m", f"tests.interop.clients.{name}_client"), **known)


NOT_OFFERED = "not offered by the client"
COMPRESSED_PRODUCER = "its producer fails with every server as soon as it asks for compression"
RACE = (
    "on nsqd it hangs now and then at connecting, because it does not expect two answers in one piece; polymq leaves a moment between them"
)

CLIENTS = (
    python_client(
        "pynsq",
        "0.9.1",
        remarks={
            "snappy": f"{RACE}. Messages of more than a kilobyte break its decompression now and then, with any server",
            "deflate": RACE,
        },
    ),
    python_client(
        "ansq",
        "0.3.0",
        cannot={
            "tls": NOT_OFFERED,
            "snappy": NOT_OFFERED,
            "deflate": NOT_OFFERED,
            "auth": "it sends AUTH, and then refuses to do anything, because nobody tells it that it did",
        },
    ),
    python_client(
        "gnsq",
        "1.0.2",
        asks_timeout=False,
        cannot={
            "tls": "not tested: it needs `ssl.wrap_socket`, which Python has not had since 3.12",
            "publish snappy": COMPRESSED_PRODUCER,
            "publish deflate": COMPRESSED_PRODUCER,
        },
    ),
    Client("nsqjs", "nsqjs 0.13.0", ("node", str(PEERS / "nsqjs" / "client.js"))),
    Client("go-nsq", "go-nsq 1.1.0", (str(PEERS / "bin" / "go-nsq-client"),), drains=True),
    Client(
        "php",
        "PHP, plain sockets",
        ("php", str(ROOT / "peers" / "php" / "client.php")),
        cannot={"tls": NOT_OFFERED, "snappy": NOT_OFFERED, "deflate": NOT_OFFERED},
        remarks={
            "": "with the habits of PHP clients in use: `client_id` null, answers counted, MPUB with the size of the bodies alone, "
            "`/pub?defer=0`, no CLS"
        },
    ),
)
