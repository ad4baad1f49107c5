"""What a peer said, as the decoder hands it on: the only thing that passes between decoder and gateway (or client).

Plain sends come as rows of numbers, a run of them at a time; all else is an object. Read next: `decode.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.protocols.rocketmq.codes import FLAG_ONEWAY, FLAG_RESPONSE

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BINARY",
    "BODY_AT",
    "BODY_SIZE",
    "COLUMNS",
    "EXTRA_AT",
    "EXTRA_SIZE",
    "FLAGS",
    "ONEWAY",
    "OPAQUE",
    "QUEUE_ID",
    "TOPIC",
    "V2",
    "Event",
    "Request",
    "Sends",
    "Violation",
]

# The columns of a row: int32 each.
COLUMNS: Final = 8
OPAQUE: Final = 0
FLAGS: Final = 1
TOPIC: Final = 2  # an index of `Sends.topics`
QUEUE_ID: Final = 3
BODY_AT: Final = 4  # in `Sends.view`
BODY_SIZE: Final = 5
EXTRA_AT: Final = 6  # in `Sends.extras`
EXTRA_SIZE: Final = 7

# Bits of FLAGS.
ONEWAY: Final = 1  # nothing may be answered
BINARY: Final = 2  # the answer's header is to be binary, too
V2: Final = 4  # SEND_MESSAGE_V2, not SEND_MESSAGE


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

    @property
    def response(self) -> bool:
        """Whether this answers a request of ours."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def oneway(self) -> bool:
        """Whether nothing may be answered."""
        return bool(self.flag & FLAG_ONEWAY)


class Sends:
    """A run of sends that are nothing but appends: rows `first` to `first + count`, each COLUMNS numbers of `rows`.

    That is: SEND_MESSAGE and SEND_MESSAGE_V2 of a valid topic that is nobody's retry or dead-letter topic and not the broker's
    own, with all fields that are needed, body and properties within their limits, no batch, no transaction, no delay, no reply.
    The queue may be one that is not there, or negative: any. `size_bytes` is what all of it takes in the log.

    Bodies lie in `view`, as it was fed; `extras` has the native extra of each message (`stored`), ready for its record. Valid until the
    next feed of any decoder: who keeps something copies it.
    """

    __slots__ = ("count", "extras", "first", "rows", "size_bytes", "topics", "view")

    def __init__(
        self, view: memoryview, rows: memoryview, extras: memoryview, topics: Sequence[str], *, first: int, count: int, size_bytes: int
    ) -> None:
        self.view = view
        self.rows = rows
        self.extras = extras
        self.topics = topics
        self.first = first
        self.count = count
        self.size_bytes = size_bytes

    def number(self, row: int, column: int) -> int:
        """Read one number; rows count from the start of `rows`, as they do in the orders of `encode.by_queue`."""
        return int(self.rows[COLUMNS * row + column])

    def topic(self, row: int) -> str:
        """Name the topic of a row."""
        return self.topics[self.rows[COLUMNS * row + TOPIC]]

    def body(self, row: int) -> bytes:
        """Copy a body out: for what is not hot."""
        at = self.rows[COLUMNS * row + BODY_AT]
        return bytes(self.view[at : at + self.rows[COLUMNS * row + BODY_SIZE]])

    def extra(self, row: int) -> bytes:
        """Copy a native extra out: for what is not hot."""
        at = self.rows[COLUMNS * row + EXTRA_AT]
        return bytes(self.extras[at : at + self.rows[COLUMNS * row + EXTRA_SIZE]])


@dataclass(frozen=True, slots=True)
class Violation:
    """The peer broke the protocol: its connection is closed without a word, as the real broker does. Always the last event."""

    reason: str


Event = Request | Sends | Violation
