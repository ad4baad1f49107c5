"""The loop over a receiver of the test's own: nothing is acknowledged before it is durable, whatever happens."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from polymq.errors import ConnectionLost, LocalProtocolError, Refusal, RefusalCode, StoreFailed
from polymq.spool import folder
from polymq.spool.feed import Feed
from polymq.spool.segments import SpoolLocked
from polymq.spool.spooler import Spooler
from polymq.store.files import RealFiles
from tests.unit.spool.spools import SMALL, portion, writer

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.spool.portion import Portion

FEED = Feed("nsq", ("t",), ("server:1",), channel="c")
QUICK = replace(SMALL, full_retry_seconds=0.001, lock_wait_seconds=0.0, status_interval_seconds=0.01)


class FakeReceiver:
    """Gives what the test puts in; `opens` are what opening raises, one after the other."""

    def __init__(self, opens: list[Exception | None] | None = None) -> None:
        self.queue: asyncio.Queue[list[Portion] | Exception] = asyncio.Queue()
        self.opens = opens or []
        self.left: list[Portion] = []
        self.opened = self.closed = self.touched = 0
        self.touch_seconds = 0.001

    async def open(self) -> None:
        self.opened += 1
        error = self.opens.pop(0) if self.opens else None
        if error is not None:
            raise error

    async def take(self) -> list[Portion]:
        found = await self.queue.get()
        if isinstance(found, Exception):
            raise found
        return found

    def rest(self) -> list[Portion]:
        found, self.left = self.left, []
        return found

    async def close(self) -> None:
        self.closed += 1


def spooler(path: Path, receiver: FakeReceiver, **more: Any) -> Spooler:
    return Spooler(path, FEED, QUICK, receiver=lambda *_: receiver, **more)


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - it is looked at from outside
            await asyncio.sleep(0)


def test_what_is_acknowledged_is_durable(tmp_path: Path) -> None:
    receiver = FakeReceiver()
    ends: list[int] = []

    def note() -> None:
        found = folder.position(tmp_path)
        ends.append(found.end if found else -1)

    async def run() -> None:
        made = spooler(tmp_path, receiver)
        running = asyncio.create_task(made.run())
        await receiver.queue.put([portion([b"a", b"b"], acknowledge=note), portion([b"c"], acknowledge=note)])
        await receiver.queue.put([portion([b"d"], acknowledge=note)])
        await until(lambda: len(ends) == 3)
        receiver.left = [portion([b"e"])]
        assert made.report.is_recovered
        made.stop()
        await running

    asyncio.run(run())
    assert ends == [3, 3, 4]
    found = folder.position(tmp_path)
    assert found is not None
    assert found.end == 5
    assert receiver.closed == 1
    assert json.loads((tmp_path / folder.STATUS).read_text(encoding="utf-8"))["state"] == "stopped"


def test_a_lost_broker_is_found_again(tmp_path: Path) -> None:
    receiver = FakeReceiver([ConnectionLost("away"), None, Refusal(RefusalCode.FORBIDDEN, "not now"), None])

    async def run() -> None:
        made = spooler(tmp_path, receiver)
        running = asyncio.create_task(made.run())
        await receiver.queue.put(ConnectionLost("gone"))
        await receiver.queue.put([portion([b"a"])])
        await until(lambda: made.report.stored_count == 1)
        assert made.report.trouble_count == 3
        made.stop()
        await running

    asyncio.run(run())
    assert receiver.opened == receiver.closed == 4


@pytest.mark.parametrize("error", [Refusal(RefusalCode.FORBIDDEN, "never"), LocalProtocolError("no such name")])
def test_a_refusal_at_the_beginning_is_raised(tmp_path: Path, error: Exception) -> None:
    receiver = FakeReceiver([error])
    with pytest.raises(type(error), match=str(error)):
        asyncio.run(spooler(tmp_path, receiver).run())
    assert json.loads((tmp_path / folder.STATUS).read_text(encoding="utf-8"))["state"] == "failed"


def test_a_spool_that_is_taken_is_not_opened(tmp_path: Path) -> None:
    first = writer(RealFiles(tmp_path))
    first.open()
    receiver = FakeReceiver()
    made = spooler(tmp_path, receiver)
    with pytest.raises(SpoolLocked):
        asyncio.run(made.run())
    assert (receiver.opened, made.report.is_recovered) == (0, False)
    first.close()


class NarrowFiles(RealFiles):
    """A disk on which files of more than so many bytes cannot be made."""

    room = 1 << 40
    fails = False

    def prepare(self, path: str, size: int) -> None:
        if size > NarrowFiles.room:
            raise OSError(28, "No space left on device", path)
        super().prepare(path, size)

    def sync_folder(self, path: str) -> None:
        if NarrowFiles.fails:
            raise OSError(5, "Input/output error", path)
        super().sync_folder(path)


def test_a_full_disk_stops_receiving_keeps_what_came_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = FakeReceiver()
    acknowledged: list[bytes] = []
    touched: list[bytes] = []
    monkeypatch.setattr(NarrowFiles, "room", 100)

    async def run() -> None:
        made = spooler(tmp_path, receiver, files=NarrowFiles)
        running = asyncio.create_task(made.run())
        first = portion([b"a"], acknowledge=lambda: acknowledged.append(b"a"))
        first.touch = lambda: touched.append(b"a")
        await receiver.queue.put([first])
        await receiver.queue.put([portion([b"b"], acknowledge=lambda: acknowledged.append(b"b"))])
        await until(lambda: made.report.trouble_count > 3 and touched)
        assert acknowledged == []
        assert receiver.queue.qsize() == 1
        assert made.report.state == "full"
        monkeypatch.setattr(NarrowFiles, "room", 1 << 40)
        await until(lambda: len(acknowledged) == 2)
        assert made.report.state == "receiving"
        made.stop()
        await running

    asyncio.run(run())
    assert acknowledged == [b"a", b"b"]


def test_a_full_disk_does_not_keep_it_from_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = FakeReceiver()
    monkeypatch.setattr(NarrowFiles, "room", 100)
    acknowledged: list[int] = []

    async def run() -> None:
        made = spooler(tmp_path, receiver, files=NarrowFiles)
        running = asyncio.create_task(made.run())
        await receiver.queue.put([portion([b"a"], acknowledge=lambda: acknowledged.append(1))])
        await until(lambda: made.report.is_full)
        made.stop()
        await running

    asyncio.run(run())
    assert acknowledged == []


def test_a_disk_that_fails_ends_it_without_an_acknowledgement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = FakeReceiver()
    acknowledged: list[int] = []

    async def run() -> None:
        made = spooler(tmp_path, receiver, files=NarrowFiles)
        running = asyncio.create_task(made.run())
        await until(lambda: receiver.opened)
        monkeypatch.setattr(NarrowFiles, "fails", True)
        await receiver.queue.put([portion([b"a"], acknowledge=lambda: acknowledged.append(1))])
        await running

    with pytest.raises(StoreFailed, match="Input/output error"):
        asyncio.run(run())
    assert acknowledged == []


def test_what_is_committed_is_dropped_in_time(tmp_path: Path) -> None:
    receiver = FakeReceiver()

    async def run() -> None:
        made = Spooler(tmp_path, FEED, replace(QUICK, keep_seconds=0.0), receiver=lambda *_: receiver)
        running = asyncio.create_task(made.run())
        for n in range(100):
            await receiver.queue.put([portion([b"%d" % n * 20])])
        await until(lambda: made.report.stored_count == 100)
        count = len(folder.segments(tmp_path))
        assert count > 2
        folder.write_committed(tmp_path, 100)
        await until(lambda: len(folder.segments(tmp_path)) == 1)
        made.stop()
        await running

    asyncio.run(run())


def test_stopping_before_it_runs_is_enough(tmp_path: Path) -> None:
    receiver = FakeReceiver()
    made = spooler(tmp_path, receiver)
    made.stop()
    asyncio.run(made.run())
    assert receiver.opened == 0
    made.stop()
