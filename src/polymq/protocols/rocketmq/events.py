"""What a peer said, as the decoder hands it on: the only thing that passes between decoder and gateway (or client).

Plain sends come as rows of numbers, a run of them at a time; all else is an object. Read next: `decode.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polymq.protocols.rocketmq.codes import FLAG_ONEWAY, FLAG_RESPONSE
from polymq.protocols.rocketmq.sends import (
    BINARY,
    BODY_AT,
    BODY_SIZE,
    COLUMNS,
    EXTRA_AT,
    EXTRA_SIZE,
    FLAGS,
    GENERIC_SIZE,
    ONEWAY,
    OPAQUE,
    QUEUE_ID,
    QUEUES,
    TOPIC,
    V2,
    Sends,
)

__all__ = [
    "BINARY",
    "BODY_AT",
    "BODY_SIZE",
    "COLUMNS",
    "EXTRA_AT",
    "EXTRA_SIZE",
    "FLAGS",
    "GENERIC_SIZE",
    "ONEWAY",
    "OPAQUE",
    "QUEUES",
    "QUEUE_ID",
    "TOPIC",
    "V2",
    "Again",
    "Event",
    "Request",
    "Sends",
    "Violation",
]


@dataclass(slots=True)
class Request:
    """One frame: a request, or the answer to one of ours (`response`). `ext` has strings only (see `header`).

    Not frozen, because making a frozen object takes three times as long.
    """

    code: int
    opaque: int
    flag: int
    ext: dict[str, str]
    body: bytes = b""
    binary: bool = False
    remark: str | None = None
    language: int = 0
    version: int = 0
    key: bytes = b""  # under which `Repeats.lanes` keeps what is to be known of the next one like it; empty: it cannot be repeated

    @property
    def response(self) -> bool:
        """Whether this answers a request of ours."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def oneway(self) -> bool:
        """Whether nothing may be answered."""
        return bool(self.flag & FLAG_ONEWAY)


@dataclass(slots=True)
class Again:
    """A request like one that was answered before; `lane` is what was left for it. Not frozen, as `Request`.

    `number` is where a pull begins, or when a batch was born; `commit_offset` what a pull commits, -1 nothing.
    """

    lane: Any
    opaque: int
    number: int
    commit_offset: int = -1
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Violation:
    """The peer broke the protocol: its connection is closed without a word, as the real broker does. Always the last event."""

    reason: str


Event = Request | Sends | Again | Violation
