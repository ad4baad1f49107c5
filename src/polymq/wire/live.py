"""Live messages on their way from who publishes to who listens: a buffer and a table of numbers, never objects.

A decoder hands a `LiveBatch` inwards; who wants which message is found by its subjects, and the encoders write straight
from the buffer into the outputs of those who do. The core knows the columns and nothing of the protocol that filled
them. Read next: `slices.py` for messages that go through the log.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ACCOUNT_AT",
    "ACCOUNT_SIZE",
    "COLUMNS",
    "DIRECTED",
    "HEADER_SIZE",
    "IMPORTED",
    "KEPT",
    "PAYLOAD_AT",
    "PAYLOAD_SIZE",
    "QUEUES_AT",
    "QUEUES_SIZE",
    "REPLY_AT",
    "REPLY_SIZE",
    "SPARE",
    "SUBJECT_AT",
    "SUBJECT_SIZE",
    "UNTAKEN",
    "LiveBatch",
    "LiveMessage",
]

# The columns of a row. Positions count from the start of the view.
SUBJECT_AT: Final = 0
SUBJECT_SIZE: Final = 1
REPLY_AT: Final = 2
REPLY_SIZE: Final = 3  # 0: none
HEADER_SIZE: Final = 4  # the first bytes of the payload; 0: none
PAYLOAD_AT: Final = 5  # headers included
PAYLOAD_SIZE: Final = 6  # headers included
ACCOUNT_AT: Final = 7
ACCOUNT_SIZE: Final = 8  # 0: the connection's own
QUEUES_AT: Final = 9
QUEUES_SIZE: Final = 10  # the names of queue groups, apart by blanks, as they came; 0: none
SPARE: Final = 11  # 0 from the decoder; else some of the following
COLUMNS: Final = 12

# Marks of a message. Set before it is published: KEPT, it is stored already, here or on another server, or not to be stored; DIRECTED, only
# the queue groups that it names are to have it, for the rest have had it.
UNTAKEN: Final = 1  # nobody took it
KEPT: Final = 2  # it is to be stored, or stored
DIRECTED: Final = 4
IMPORTED: Final = 8  # it comes of another namespace: it goes to those who are here, and no further


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """One message of a batch as an object: for tests, and for the paths that are not hot."""

    subject: bytes
    payload: bytes
    reply: bytes = b""
    header_size: int = 0
    account: bytes = b""
    queues: bytes = b""


class LiveBatch:
    """Messages that came one behind the other, whatever their subjects.

    Row i is `rows[COLUMNS * i : COLUMNS * (i + 1)]`, an int32 memoryview (format "i"), for i < `count`. Buffer and rows
    are valid only until the call that handed them over returns: who keeps a message copies it.
    """

    __slots__ = ("count", "rows", "view")

    def __init__(self, view: memoryview, rows: memoryview, count: int) -> None:
        self.view = view
        self.rows = rows
        self.count = count

    @classmethod
    def of(cls, messages: Sequence[LiveMessage], *, marks: int = 0) -> LiveBatch:
        """Make a batch of separate messages, each with these marks: one copy; for the paths that are not hot."""
        rows = array("i")
        buffer = bytearray()
        for message in messages:
            assert 0 <= message.header_size <= len(message.payload)
            places = []
            for part in (message.account, message.subject, message.reply, message.queues, message.payload):
                places.append(len(buffer))
                buffer += part
            account_at, subject_at, reply_at, queues_at, payload_at = places
            rows.extend((subject_at, len(message.subject), reply_at, len(message.reply)))
            rows.extend((message.header_size, payload_at, len(message.payload)))
            rows.extend((account_at, len(message.account), queues_at, len(message.queues), marks))
        return cls(memoryview(bytes(buffer)), memoryview(rows), len(messages))

    def part(self, first: int, count: int) -> LiveBatch:
        """Give `count` messages from the one at `first` on, without a copy."""
        assert 0 <= first <= first + count <= self.count
        return LiveBatch(self.view, self.rows[COLUMNS * first : COLUMNS * (first + count)], count)

    def subject(self, index: int) -> bytes:
        """Copy out what message `index` is about."""
        return self._text(index, SUBJECT_AT)

    def reply(self, index: int) -> bytes:
        """Copy out where answers to message `index` go; empty if nowhere."""
        return self._text(index, REPLY_AT)

    def account(self, index: int) -> bytes:
        """Copy out the account that message `index` names; empty if it is the connection's own."""
        return self._text(index, ACCOUNT_AT)

    def messages(self) -> list[LiveMessage]:
        """Copy every message out: for tests and for the paths that are not hot."""
        return [self.message(index) for index in range(self.count)]

    def message(self, index: int) -> LiveMessage:
        """Copy message `index` out."""
        return LiveMessage(
            subject=self._text(index, SUBJECT_AT),
            payload=self._text(index, PAYLOAD_AT),
            reply=self._text(index, REPLY_AT),
            header_size=self.rows[COLUMNS * index + HEADER_SIZE],
            account=self._text(index, ACCOUNT_AT),
            queues=self._text(index, QUEUES_AT),
        )

    def _text(self, index: int, column: int) -> bytes:
        """Copy out the bytes whose position is in a column and whose size in the next."""
        at = self.rows[COLUMNS * index + column]
        return bytes(self.view[at : at + self.rows[COLUMNS * index + column + 1]])


assert PAYLOAD_SIZE == PAYLOAD_AT + 1
assert ACCOUNT_SIZE == ACCOUNT_AT + 1
assert QUEUES_SIZE == QUEUES_AT + 1
assert REPLY_SIZE == REPLY_AT + 1
assert SUBJECT_SIZE == SUBJECT_AT + 1
