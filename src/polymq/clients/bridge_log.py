"""The log of a polymq node as the source of a bridge: every partition, from an offset on, without taking anything from anybody.

How far each partition has come is what the cursor keeps: an offset, together with the number of the log and its epoch. When the node has
lost the end of its log with the power, the epoch says from where on offsets are given again; when the topic was made anew, its number
is another one, and it is read from its beginning. So nothing is passed over, whatever happened to the node meanwhile.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from polymq.clients.bridge_cursor import Position
from polymq.clients.bridge_ends import Carried
from polymq.clients.log import OffsetOutOfRange
from polymq.errors import ConnectionLost, Refusal, RefusalCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from polymq.clients.bridge_cursor import Cursor
    from polymq.clients.bridge_ends import Tally
    from polymq.clients.log import Chunk, LogClient, PartitionInfo

__all__ = ["LogBegin", "LogSource"]

_FETCH_SIZE_BYTES: Final = 1 << 20
_END: Final = 1 << 62
# How long a round of questions takes when nothing new comes; the partitions share it.
_ROUND_MS: Final = 1000
# How often it is looked whether the topic has more partitions.
_LOOK_SECONDS: Final = 10.0
# A cursor is written at most as often, and when there is nothing else to do.
_KEEP_SECONDS: Final = 0.5

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LogBegin:
    """Where to begin in a partition that no cursor knows: "earliest", "latest", an offset, or a time in ns."""

    where: str = "earliest"
    offset: int = 0
    time_ns: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a message lies. The next position is `offset` + 1, of this log in this epoch."""

    partition: int
    number: int
    epoch: int
    offset: int


class LogSource:
    """All partitions of a topic; to their ends of when it was opened, or for ever (`follows`).

    `note` is told what somebody should know. `tally` gets what retention has taken away.
    """

    def __init__(
        self,
        client: LogClient,
        topic: str,
        tally: Tally,
        *,
        follows: bool,
        begin: LogBegin,
        cursor: Cursor | None = None,
        note: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._topic = topic
        self._tally = tally
        self._follows = follows
        self._begin = begin
        self._cursor = cursor
        self._note = note
        self._monotonic = monotonic
        # The client belongs to one thread at a time; what was asked before is answered before.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="polymq log")
        self._next: dict[int, Position] = {}  # what is read next
        self._settled: dict[int, Position] = dict(cursor.positions) if cursor is not None else {}
        self._ends: dict[int, int] = {}
        self._turns: list[int] = []
        self._found = True  # in this round; the first one does not wait
        self._waits = False
        self._looked_at = 0.0
        self._kept_at = 0.0
        self._kept = dict(self._settled)

    async def open(self) -> None:
        """Find out what there is; raises Refusal when there is no such topic."""
        await self._look()

    def left(self) -> int:
        """Count what is still to be read, by what is known of the ends."""
        return sum(max(0, end - self._next[partition].offset) for partition, end in self._ends.items())

    def is_wanted(self, message: Carried) -> bool:
        """Say yes: only the position decides."""
        del message
        return True

    async def read(self) -> list[Carried] | None:
        """Ask the next partition; when none of them had anything for a round, the next round waits."""
        if self._follows and self._monotonic() - self._looked_at >= _LOOK_SECONDS:
            await self._look()
        if not self._turns:
            self._turns = [partition for partition in sorted(self._next) if self._follows or self._is_open(partition)]
            if not self._turns:
                return None
            self._waits = self._follows and not self._found
            self._found = False
        partition = self._turns[0]
        position = self._next[partition]
        end = _END if self._follows else self._ends[partition]
        wait_ms = _ROUND_MS // len(self._next) if self._waits else 0
        try:
            chunk, found = await self._ask(self._fetch, partition, position.offset, end, wait_ms)
        except OffsetOutOfRange as error:
            self._step(partition, position, error)
            return []
        if chunk.number != position.number:
            self._note(f"partition {partition}: the topic was deleted and made again; going on at the beginning of the new one")
            self._next[partition] = Position(chunk.number, chunk.epoch, chunk.start)
            return []
        if chunk.epoch != position.epoch:
            await self._begin_epoch(partition, position, chunk)
            return []
        self._turns.pop(0)
        self._ends[partition] = chunk.readable if self._follows else end
        if not chunk.data:
            if not self._follows:
                self._ends[partition] = position.offset  # retention has taken what was left before the end
            return []
        self._found = True
        self._next[partition] = Position(position.number, position.epoch, min(chunk.end, end))
        return found

    async def settle(self, messages: Sequence[Carried]) -> None:
        """Go past messages; those of a log that is no more say nothing about the new one."""
        for message in messages:
            place = message.place
            assert isinstance(place, _Place)
            self._settled[place.partition] = Position(place.number, place.epoch, place.offset + 1)

    async def keep(self, *, moved: int, is_last: bool = False) -> None:
        """Write the cursor, if there is one, at most twice a second."""
        now = self._monotonic()
        if self._cursor is None or (not is_last and now - self._kept_at < _KEEP_SECONDS) or self._settled == self._kept:
            return
        self._kept_at = now
        self._kept = dict(self._settled)
        self._cursor.write(self._kept, self._cursor.moved + moved)

    async def close(self) -> None:
        """Disconnect."""
        self._thread.submit(self._client.close)
        self._thread.shutdown(wait=False)

    # --- Inside -------------------------------------------------------------------------------------------------------

    async def _ask(self, question: Callable[..., _T], *arguments: object) -> _T:
        """Ask in the thread; what a cancelled wait was for is forgotten, and asked again."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, question, *arguments)

    def _is_open(self, partition: int) -> bool:
        return self._next[partition].offset < self._ends[partition]

    def _fetch(self, partition: int, offset: int, end: int, wait_ms: int) -> tuple[Chunk, list[Carried]]:
        chunk = self._client.records(self._topic, partition, offset, end=end, size_bytes_max=_FETCH_SIZE_BYTES, wait_ms=wait_ms)
        return chunk, list(_messages(chunk, partition, offset, end))

    async def _look(self) -> None:
        """Take in the partitions; new ones begin at their beginning unless this is the first look."""
        try:
            infos = (await self._ask(self._client.topic, self._topic)).partitions
        except Refusal as error:
            if error.code is not RefusalCode.TOPIC_NOT_FOUND:
                raise
            if self._next:
                raise ConnectionLost(f"the source has no topic {self._topic} any more") from error
            raise Refusal(error.code, f"the source has no topic {self._topic!r}: polymq stats lists all") from error
        is_first = not self._next
        self._looked_at = self._monotonic()
        for info in infos:
            if info.partition not in self._next:
                self._next[info.partition] = await self._beginning(info, is_first=is_first)
                self._ends[info.partition] = info.readable
                # What is passed over on purpose stays so when this ends before anything was moved.
                self._settled.setdefault(info.partition, self._next[info.partition])

    async def _beginning(self, info: PartitionInfo, *, is_first: bool) -> Position:
        known = self._settled.get(info.partition)
        if known is not None and known.number == info.number:
            return known
        if known is not None:
            self._note(f"partition {info.partition}: the topic was deleted and made again since; beginning at the beginning of the new one")
        elif is_first and (self._cursor is None or self._cursor.is_new):
            return Position(info.number, info.epoch, await self._offset(info))
        return Position(info.number, info.epoch, info.start)

    async def _offset(self, info: PartitionInfo) -> int:
        match self._begin.where:
            case "earliest":
                return info.start
            case "latest":
                return info.readable
            case "offset":
                return self._begin.offset
            case _:
                return await self._ask(self._client.offset_at, self._topic, info.partition, self._begin.time_ns)

    def _step(self, partition: int, position: Position, error: OffsetOutOfRange) -> None:
        """Go on where there is something; raises the error when that is no other place."""
        offset = min(max(position.offset, error.start), error.readable)
        if offset == position.offset:
            raise error
        if offset > position.offset:
            self._tally.gone += offset - position.offset
            self._note(f"partition {partition}: offsets {position.offset} to {offset - 1} were gone before they could be read")
        else:
            self._note(f"partition {partition}: offset {position.offset} is behind the end of the log; going on at {offset}")
        self._next[partition] = Position(position.number, position.epoch, offset)

    async def _begin_epoch(self, partition: int, position: Position, chunk: Chunk) -> None:
        """Go back to where offsets were given again, if that is before where we are."""
        infos = (await self._ask(self._client.topic, self._topic)).partitions
        firsts = [first for info in infos if info.partition == partition for epoch, first in info.epochs if epoch > position.epoch]
        offset = min([position.offset, *firsts])
        self._note(f"partition {partition}: the source lost power, and may give offsets again; going on at {offset}")
        self._next[partition] = Position(position.number, chunk.epoch, offset)


def _messages(chunk: Chunk, partition: int, offset: int, end: int) -> Iterator[Carried]:
    """Take a chunk apart, from `offset` on and before `end`."""
    for here, message in chunk.messages(offset, end):
        place = _Place(partition, chunk.number, chunk.epoch, here)
        yield Carried(message.body, message.key, message.headers, message.expiry_ns, partition, place)
