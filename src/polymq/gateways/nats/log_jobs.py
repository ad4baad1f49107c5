"""What is under way at the log's door: each goes on by a piece at a time, and says what is to be sent and when to ask it again.

Nothing is sent here, and nobody is asked whether he may: see `log_door.py`, which owns them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.nats.log_requests import OutOfRange, answer, replayed
from polymq.wire.batch import read_shown

if TYPE_CHECKING:
    from polymq.core.interest.targets import Entry
    from polymq.core.ports import Log, Reader
    from polymq.core.session import Session
    from polymq.gateways.nats.log_requests import LogRequest
    from polymq.gateways.nats.records import NatsCodec
    from polymq.wire.live import LiveMessage

__all__ = ["Job", "Listing", "Reading"]

# A name that is looked at costs as much as so many bytes that are read: 1 µs, if there are rules.
_NAME_SIZE_BYTES: Final = 32
_LISTING_SIZE_BYTES: Final = 1024


class Job(ABC):
    """Something that is sent to a subject over some turns, on somebody's behalf.

    `principal` is who asked for it: the session may be somebody else by now. `named`: the subject was named in the request, and is not
    where it is to be answered. `slow` is for whom it waits, if somebody has much to receive.
    """

    __slots__ = ("ended", "id", "named", "owner", "principal", "slow", "to")

    def __init__(self, owner: Session, to: bytes, name: str, *, named: bool = False) -> None:
        self.id = name
        self.owner = owner
        self.principal = owner.principal
        self.to = to
        self.named = named
        self.slow: Entry | None = None
        self.ended = False

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it could go on at once, and does not wait for the disk."""

    @property
    def awaits(self) -> tuple[str, str] | None:
        """The topic that has to grow before there is more; None: it does not wait for that."""
        return None

    @abstractmethod
    def go_on(self, size_bytes_max: int) -> tuple[list[LiveMessage], int]:
        """Give what comes next, and how many bytes that cost; raises PolyMQError."""


class Reading(Job):
    """A range of one partition. `left` counts messages, None: without end."""

    __slots__ = ("_codec", "_name", "_reader", "_size_left", "_start_ns", "end", "key", "left", "log", "partition", "topic")

    def __init__(self, owner: Session, request: LogRequest, log: Log, offset: int, to: bytes, name: str, codec: NatsCodec) -> None:
        super().__init__(owner, to, name, named=bool(request.to))
        self.key = (owner.principal.namespace, request.topic)
        self.topic = request.topic
        self.partition = request.partition
        self.log = log
        follows = request.verb == b"FOLLOW"
        self.left = None if follows else request.count
        self.end = None if follows else log.readable
        self._codec = codec
        self._name = request.topic.encode()
        self._size_left = request.size_bytes
        self._start_ns = request.time_ns
        self._reader: Reader | None = log.reader(offset) if request.time_ns is None else None

    @property
    def next(self) -> int | None:
        """The offset with which it goes on; None if that is not known yet."""
        return None if self._reader is None else self._reader.offset

    @property
    def is_ready(self) -> bool:
        """Whether the disk is not being read for it."""
        return self._reader is not None and not self._reader.waiting

    @property
    def awaits(self) -> tuple[str, str] | None:
        """Its topic, when all of that has been read."""
        return self.key if self._reader is not None and self._reader.offset >= self._limit() else None

    def _limit(self) -> int:
        """The offset at which it has to wait, or ends."""
        return self.log.readable if self.end is None else min(self.end, self.log.readable)

    def go_on(self, size_bytes_max: int) -> tuple[list[LiveMessage], int]:
        """Read the next messages; behind the last of a range comes how it ended."""
        reader = self._reader
        if reader is None:
            assert self._start_ns is not None
            offset = self.log.offset_at(self._start_ns)
            if offset is None:
                return [], 0
            reader = self._reader = self.log.reader(offset)
        found, size_bytes = self._read(reader, size_bytes_max)
        if self.left is not None and (self.left <= 0 or self._size_left <= 0 or reader.offset >= self._limit()):
            self.ended = True
            found.append(answer(self.to, {"next": reader.offset, "readable": self.log.readable}, b"204 End Of Range"))
        return found, size_bytes

    def _read(self, reader: Reader, size_bytes_max: int) -> tuple[list[LiveMessage], int]:
        log = self.log
        count = min(self._limit() - reader.offset, limits.SLICE_MESSAGES_MAX)
        if self.left is not None:
            count = min(count, self.left)
        if count <= 0:
            return [], 0
        if reader.offset < log.start:
            # Removed before it was read: the reader would go on at the start, and nobody would know what he has missed.
            raise OutOfRange(log.start, log.readable, reader.offset)
        piece = reader.take(count, min(size_bytes_max, max(1, self._size_left)))
        if piece is None:
            if log.failed and not reader.waiting:
                raise Refusal(RefusalCode.STORE_FAILED, log.failed)
            return [], 0
        found = []
        for index, message in read_shown(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end):
            place = self._name, self.partition, piece.offset + index
            found.append(replayed(self.to, place, self._codec.whole(self._name, message), message))
        size_bytes = piece.end - piece.position
        if self.left is not None:
            self.left -= piece.count
        # A last piece may be followed by more that fits, if it ends with its segment: who wants it goes on from `next`.
        self._size_left = self._size_left - size_bytes if self._size_left > size_bytes_max else 0
        return found, size_bytes


class Listing(Job):
    """A page of the names of topics that may be read, behind a name: looked for some at a time, for there may be a million others."""

    __slots__ = ("_after", "_names")

    def __init__(self, owner: Session, to: bytes, name: str, after: str) -> None:
        super().__init__(owner, to, name)
        self._after = after
        self._names: list[str] = []

    @property
    def is_ready(self) -> bool:
        """It waits for nothing."""
        return True

    def go_on(self, size_bytes_max: int) -> tuple[list[LiveMessage], int]:
        """Look at some names; when the page is full, or there are no more, it is the answer."""
        count_max = max(1, size_bytes_max // _NAME_SIZE_BYTES)
        names, after = self.owner.topic_page(self._after, count_max)
        rules = self.owner.live
        self._names += names if rules is None else [name for name in names if rules.may_listen(name.encode(), b"")]
        most = limits.LOG_REQUEST_TOPICS_MAX
        if after is None or len(self._names) > most:
            self.ended = True
            fields = {"topics": self._names[:most], "more": len(self._names) > most}
            return [answer(self.to, fields)], size_bytes_max if after is not None else _LISTING_SIZE_BYTES + _NAME_SIZE_BYTES * len(names)
        self._after = after
        return [], size_bytes_max
