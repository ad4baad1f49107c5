"""The log as a source: every partition from where the cursor says, nothing passed over when the node loses, trims or makes it anew."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from polymq.clients.bridge_cursor import Cursor, Position
from polymq.clients.bridge_ends import Carried, Tally
from polymq.clients.bridge_log import LogBegin, LogSource
from polymq.clients.log import Chunk, LogClient, OffsetOutOfRange, PartitionInfo, TopicInfo
from polymq.errors import ConnectionLost, Refusal, RefusalCode
from polymq.wire.batch import ATTRIBUTE_RENEWED, BatchHeader, Message, encode_message, seal
from polymq.wire.records import HEADER_SIZE_BYTES

if TYPE_CHECKING:
    from pathlib import Path


class FakeLog:
    """Partitions of batches of two messages; answers like the client of the log's door."""

    def __init__(self, *ends: int) -> None:
        self.starts = [0 for _ in ends]
        self.ends = list(ends)
        self.number = 1
        self.epochs: list[tuple[int, int]] = [(1, 0)]
        self.waits: list[int] = []
        self.is_there = True
        self.renewed: set[int] = set()  # first offsets of batches
        self.is_closed = False

    def topic(self, name: str) -> TopicInfo:
        if not self.is_there:
            raise Refusal(RefusalCode.TOPIC_NOT_FOUND)
        infos = [
            PartitionInfo(partition, self.number + partition, self.epochs[-1][0], tuple(self.epochs), start, end, end)
            for partition, (start, end) in enumerate(zip(self.starts, self.ends, strict=True))
        ]
        return TopicInfo("", name, tuple(infos))

    def offset_at(self, topic: str, partition: int, time_ns: int) -> int:
        del topic, partition
        return time_ns

    def records(self, topic: str, partition: int, offset: int, *, end: int, size_bytes_max: int, wait_ms: int) -> Chunk:
        del topic, end, size_bytes_max
        self.waits.append(wait_ms)
        start, readable = self.starts[partition], self.ends[partition]
        if not start <= offset <= readable:
            raise OffsetOutOfRange("gone", start=start, readable=readable)
        first = offset - offset % 2
        mark = ATTRIBUTE_RENEWED if first in self.renewed else 0
        data = _batch(first, range(first, min(first + 2, readable)), mark) if offset < readable else b""
        return Chunk(data, self.epochs[-1][0], start, readable, self.number + partition)

    def close(self) -> None:
        self.is_closed = True


def _batch(base_offset: int, offsets: range, attributes: int) -> bytes:
    data = bytearray(HEADER_SIZE_BYTES)
    for offset in offsets:
        data += encode_message(Message(b"m%d" % offset, b"k", ((b"h", b"v"),), expiry_ns=77))
    seal(data, 0, len(data), BatchHeader(count=len(offsets), base_offset=base_offset, base_time_ns=1, attributes=attributes))
    return bytes(data)


class Reading:
    """A source over a fake log, and what it has said."""

    def __init__(self, log: FakeLog, *, follows: bool = False, begin: LogBegin | None = None, cursor: Cursor | None = None) -> None:
        self.log = log
        self.tally = Tally()
        self.notes: list[str] = []
        self.now = 0.0
        self.source = LogSource(
            cast("LogClient", log),
            "orders",
            self.tally,
            follows=follows,
            begin=begin or LogBegin(),
            cursor=cursor,
            note=self.notes.append,
            monotonic=lambda: self.now,
        )

    async def some(self, reads: int) -> list[Carried]:
        """What so many reads give."""
        found = []
        for _ in range(reads):
            found += await self.source.read() or []
        return found

    async def all(self) -> list[tuple[Any, bytes]]:
        """What comes until the end: (partition, body)."""
        await self.source.open()
        found = []
        while (batch := await self.source.read()) is not None:
            found += batch
            await self.source.settle(batch)
        await self.source.close()
        return [(each.order, each.body) for each in found]


def bodies(messages: list[Carried]) -> list[bytes]:
    return [each.body for each in messages]


def test_every_partition_is_read_to_the_end_that_it_had() -> None:
    log = FakeLog(5, 0, 3)

    async def go() -> list[tuple[Any, bytes]]:
        reading = Reading(log)
        await reading.source.open()
        assert reading.source.left() == 8
        log.ends = [50, 50, 50]  # published meanwhile: the next run's
        return await reading.all()

    found = asyncio.run(go())
    assert sorted(found) == [(0, b"m%d" % n) for n in range(5)] + [(2, b"m%d" % n) for n in range(3)]
    assert [body for partition, body in found if partition == 0] == [b"m%d" % n for n in range(5)]
    assert set(log.waits) == {0}


def test_a_message_has_its_fields() -> None:
    async def go() -> list[Carried]:
        reading = Reading(FakeLog(1))
        await reading.source.open()
        return await reading.some(1)

    (message,) = asyncio.run(go())
    assert (message.body, message.key, list(message.headers), message.expiry_ns) == (b"m0", b"k", [(b"h", b"v")], 77)


@pytest.mark.parametrize(
    ("begin", "first"),
    [(LogBegin(), 2), (LogBegin("latest"), 9), (LogBegin("offset", 5), 5), (LogBegin("time", time_ns=7), 7), (LogBegin("offset", 1), 2)],
)
def test_it_begins_where_it_is_told(begin: LogBegin, first: int) -> None:
    log = FakeLog(9)
    log.starts = [2]
    reading = Reading(log, begin=begin)
    assert [body for _, body in asyncio.run(reading.all())] == [b"m%d" % n for n in range(first, 9)]
    assert reading.tally.gone == max(0, 2 - begin.offset) * (begin.where == "offset")


def test_a_cursor_says_what_is_settled_and_no_more(tmp_path: Path) -> None:
    log = FakeLog(9, 4)

    async def first() -> None:
        with Cursor(tmp_path / "c", "s", "t") as cursor:
            reading = Reading(log, cursor=cursor)
            await reading.source.open()
            read = await reading.some(4)
            mine = [each for each in read if each.order == 0]
            assert len(read) > 3
            await reading.source.settle(mine[:3])
            await reading.source.keep(moved=3, is_last=True)
            await reading.source.close()

    async def second(begin: LogBegin) -> list[tuple[Any, bytes]]:
        with Cursor(tmp_path / "c", "s", "t") as cursor:
            assert cursor.moved == 3
            assert cursor.positions == {0: Position(1, 1, 3), 1: Position(2, 1, 0)}
            return await Reading(log, cursor=cursor, begin=begin).all()

    asyncio.run(first())
    found = asyncio.run(second(LogBegin("latest")))  # where to begin is for the first time
    assert sorted(found) == [(0, b"m%d" % n) for n in range(3, 9)] + [(1, b"m%d" % n) for n in range(4)]


def test_latest_stays_where_it_was_when_nothing_was_moved(tmp_path: Path) -> None:
    log = FakeLog(9)

    async def go() -> list[tuple[Any, bytes]]:
        with Cursor(tmp_path / "c", "s", "t") as cursor:
            reading = Reading(log, cursor=cursor, begin=LogBegin("latest"), follows=True)
            await reading.source.open()
            await reading.source.keep(moved=0, is_last=True)
        log.ends = [11]
        with Cursor(tmp_path / "c", "s", "t") as cursor:
            return await Reading(log, cursor=cursor).all()

    assert [body for _, body in asyncio.run(go())] == [b"m9", b"m10"]


def test_a_cursor_is_written_at_most_twice_a_second_and_at_the_end(tmp_path: Path) -> None:
    async def go() -> None:
        with Cursor(tmp_path / "c", "s", "t") as cursor:
            reading = Reading(FakeLog(9), cursor=cursor)
            await reading.source.open()
            said = []
            for now, is_last in ((1.0, False), (1.1, False), (1.2, True), (1.3, True), (2.0, False)):
                reading.now = now
                if now != 1.3:
                    await reading.source.settle(await reading.some(1))
                await reading.source.keep(moved=1, is_last=is_last)
                said.append(json.loads((tmp_path / "c").read_text())["partitions"]["0"]["offset"])
            assert said == [2, 2, 6, 6, 8]

    asyncio.run(go())


def test_following_waits_only_when_a_whole_round_was_empty() -> None:
    log = FakeLog(2, 0)

    async def go() -> None:
        reading = Reading(log, follows=True)
        await reading.source.open()
        assert bodies(await reading.some(2)) == [b"m0", b"m1"]
        assert await reading.some(2) == []
        assert log.waits == [0, 0, 0, 0]
        assert await reading.some(2) == []
        assert log.waits[4:] == [500, 500]
        log.ends = [3, 0]
        assert bodies(await reading.some(1)) == [b"m2"]
        assert reading.source.left() == 0

    asyncio.run(go())


def test_following_finds_new_partitions() -> None:
    log = FakeLog(0)

    async def go() -> list[Carried]:
        reading = Reading(log, follows=True, begin=LogBegin("latest"))
        await reading.source.open()
        log.starts, log.ends = [0, 0], [0, 2]
        assert await reading.some(3) == []
        reading.now += 60
        return await reading.some(6)

    assert bodies(asyncio.run(go())) == [b"m0", b"m1"]


def test_what_retention_took_is_counted() -> None:
    log = FakeLog(9)

    async def go() -> list[tuple[Any, bytes]]:
        reading = Reading(log)
        await reading.source.open()
        log.starts = [4]
        found = await reading.all()
        assert reading.tally.gone == 4
        assert "offsets 0 to 3 were gone" in reading.notes[0]
        return found

    assert [body for _, body in asyncio.run(go())] == [b"m%d" % n for n in range(4, 9)]


def test_everything_gone_is_an_end_too() -> None:
    log = FakeLog(4)

    async def go() -> None:
        reading = Reading(log)
        await reading.source.open()
        log.starts, log.ends = [8], [8]
        assert await reading.all() == []

    asyncio.run(go())


def test_a_new_epoch_takes_it_back_to_where_offsets_were_given_again() -> None:
    log = FakeLog(8)

    async def go() -> list[bytes]:
        reading = Reading(log, follows=True)
        await reading.source.open()
        assert len(await reading.some(3)) == 6
        log.epochs.append((2, 3))
        found = bodies(await reading.some(4))
        assert "lost power" in reading.notes[0]
        return found

    assert asyncio.run(go()) == [b"m%d" % n for n in range(3, 8)]


def test_a_topic_made_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = FakeLog(8)

    async def go() -> None:
        with Cursor(tmp_path / "c", "s", "t") as cursor:
            reading = Reading(log, follows=True, cursor=cursor)
            await reading.source.open()
            old = await reading.some(3)
            log.number, log.ends = 5, [8]
            new = await reading.some(3)
            assert bodies(new)[0] == b"m0"
            assert "made again" in reading.notes[0]
            await reading.source.settle(old)
            await reading.source.keep(moved=1, is_last=True)
        # The cursor still speaks of the old log: so the new one is read from its beginning, again.
        with Cursor(tmp_path / "c", "s", "t") as cursor:
            assert cursor.positions == {0: Position(1, 1, 6)}
            reading = Reading(log, cursor=cursor)
            assert len(await reading.all()) == 8
            assert "made again" in reading.notes[0]

    asyncio.run(go())


def test_a_topic_that_is_not_there_is_an_error_at_first_and_trouble_later() -> None:
    log = FakeLog(1)
    log.is_there = False

    async def go() -> None:
        reading = Reading(log, follows=True)
        with pytest.raises(Refusal, match="no topic 'orders'"):
            await reading.source.open()
        log.is_there = True
        await reading.source.open()
        log.is_there = False
        reading.now += 60
        with pytest.raises(ConnectionLost, match="any more"):
            await reading.source.read()
        await reading.source.close()

    asyncio.run(go())
    assert log.is_closed


def test_what_readers_pass_over_is_not_moved() -> None:
    """Copies for one work group: the batches that begin at 2, 4 and 8."""
    log = FakeLog(9)
    log.renewed = {2, 4, 8}

    async def run() -> None:
        reading = Reading(log)
        await reading.source.open()
        found = await reading.some(9)
        assert [message.body for message in found] == [b"m0", b"m1", b"m6", b"m7"]
        assert await reading.source.read() is None
        assert (reading.source.left(), reading.tally.gone, reading.notes) == (0, 0, [])

    asyncio.run(run())
