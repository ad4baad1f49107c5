"""The jobs that every client program understands, and how to run one.

A job is a JSON object on standard input, its answer a JSON object on standard output, exit status 0:

    action              "publish" or "consume"
    address, topic      "HOST:PORT" of the TCP door; the topic
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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
    command: tuple[str, ...]
    # It waits for what is in flight before it goes, so a clean shutdown delivers nothing twice.
    drains: bool = False
    # It can ask for a message timeout with IDENTIFY.
    asks_timeout: bool = True

    def start(self, **job: object) -> subprocess.Popen[str]:
        """Start a job; `finish` waits for it."""
        program = Path(self.command[0])
        if program.is_absolute() and not program.exists():
            pytest.fail(f"{program} is missing: run peers/build.sh")
        defaults: dict[str, object] = {
            "steps": [],
            "channel": "",
            "count": 0,
            "max_in_flight": 1,
            "message_timeout_ms": 0,
            "requeue_first": False,
            "requeue_delay_ms": 0,
            "hold_ms": 0,
            "touch_every_ms": 0,
            "directory": "",
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

    def publish(self, address: str, topic: str, steps: list[Step]) -> int:
        """Publish; returns the number of messages that were acknowledged."""
        coded = [{"bodies": [base64.b64encode(body).decode() for body in step.bodies], "delay_ms": step.delay_ms} for step in steps]
        return int(self.finish(self.start(action="publish", address=address, topic=topic, steps=coded))["published"])

    def consume(self, address: str, topic: str, channel: str, count: int, **options: object) -> list[Consumed]:
        """Consume until `count` messages are finished."""
        return self.consumed(self.start(action="consume", address=address, topic=topic, channel=channel, count=count, **options))

    def consumed(self, process: subprocess.Popen[str]) -> list[Consumed]:
        """Wait for a consuming job and return what it saw."""
        deliveries = self.finish(process)["deliveries"]
        return [Consumed(**{**each, "body": base64.b64decode(each["body"])}) for each in deliveries]


def python_client(name: str, *, asks_timeout: bool = True) -> Client:
    return Client(name, (sys.executable, "-m", f"tests.interop.clients.{name}_client"), asks_timeout=asks_timeout)


CLIENTS = (
    python_client("pynsq"),
    python_client("ansq"),
    python_client("gnsq", asks_timeout=False),
    Client("nsqjs", ("node", str(PEERS / "nsqjs" / "client.js"))),
    Client("go-nsq", (str(PEERS / "bin" / "go-nsq-client"),), drains=True),
)
