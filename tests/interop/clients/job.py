"""What the client programs share: reading the job from standard input, and answering on standard output."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import dataclass
from typing import Any

__all__ = ["Deliveries", "Job", "Step", "answer", "read_job"]


@dataclass(frozen=True, slots=True)
class Step:
    """One publishing command: PUB for one body, MPUB for more, DPUB with a delay."""

    bodies: list[bytes]
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Job:
    """One job, as tests/interop/jobs.py describes it."""

    action: str
    address: str
    topic: str
    auth_secret: str
    steps: list[Step]
    channel: str
    count: int
    max_in_flight: int
    message_timeout_ms: int
    requeue_first: bool
    requeue_delay_ms: int
    hold_ms: int
    touch_every_ms: int
    directory: str
    http: str
    tls_root_file: str
    snappy: bool
    deflate: bool


def read_job() -> Job:
    """Read the job from standard input."""
    fields: dict[str, Any] = json.load(sys.stdin)
    steps = [Step([base64.b64decode(body) for body in step["bodies"]], step["delay_ms"]) for step in fields.pop("steps")]
    return Job(steps=steps, **fields)


class Deliveries:
    """What a consumer has seen, and whether that is enough."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.seen: list[dict[str, object]] = []
        self.finished = 0

    def add(self, *, body: bytes, message_id: bytes, attempts: int, timestamp_ns: int) -> bool:
        """Note a delivery; True if it is to be finished, False if it is to be requeued."""
        finish = not (self.job.requeue_first and attempts == 1)
        self.seen.append(
            {
                "body": base64.b64encode(body).decode(),
                "id": message_id.decode(),
                "attempts": attempts,
                "timestamp_ns": timestamp_ns,
                "finished": finish,
            }
        )
        return finish

    def finish_one(self) -> bool:
        """Note that a message was finished; True with the one that makes it enough."""
        self.finished += 1
        return self.finished == self.job.count


def answer(result: dict[str, Any]) -> None:
    """Give the answer."""
    print(json.dumps(result), flush=True)
