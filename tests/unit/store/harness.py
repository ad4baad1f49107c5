"""A store on a fake disk for tests: small segments, so that a few messages reach every limit."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from polymq.store.settings import StoreSettings
from polymq.store.store import Store
from polymq.store.workers import InlineWorker
from polymq.testing.clock import FakeClock
from polymq.testing.disk import FakeFiles
from polymq.testing.worker import FakeWorker
from polymq.wire.records import read_messages
from polymq.wire.slices import MessageBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.store.files import Files
    from polymq.store.log import Log
    from polymq.store.reader import Reader
    from polymq.store.workers import Worker

__all__ = ["NSQ", "Harness", "bodies", "drain", "read_all"]

NSQ = 1
SMALL: dict[str, Any] = {
    "segment_size_bytes_first": 4096,
    "segment_size_bytes_max": 16384,
    "batch_size_bytes_target": 1024,
    "free_bytes_min": 0,
    "sync_interval_ns": 1000,
    "window_size_bytes": 1024,
    "read_ahead_size_bytes": 4096,
    "index_interval_bytes": 512,
    "journal_growth_bytes_min": 2048,
    "journal_growth_bytes_max": 65536,
}


def bodies(first: int, count: int, size: int = 20) -> list[bytes]:
    """Bodies that tell their numbers."""
    return [b"%d;" % number + b"." * size for number in range(first, first + count)]


class Harness:
    """One data folder over its lives. `files` is the present life's view of the disk."""

    def __init__(self, seed: int = 0, *, files: FakeFiles | None = None, **settings: Any) -> None:
        self.random = Random(seed)
        self.clock = FakeClock()
        self.files = files or FakeFiles(seed)
        self.settings = StoreSettings(**(SMALL | settings))
        self.boot = 1
        # Not 0: jobs run and end at moments of the seed's choice.
        self.worker_delay_ns_max = 0
        self.worker: Worker = InlineWorker()
        self.store: Store
        self.replayed: list[bytes] = []

    def open(self, files: Files | None = None) -> Store:
        """Open the folder; the core's entries are in `replayed`."""
        self.worker = InlineWorker()
        if self.worker_delay_ns_max:
            self.worker = FakeWorker(self.clock, self.random.getrandbits(64), delay_ns_max=self.worker_delay_ns_max)
        self.store = Store.open(
            files or self.files,
            self.worker,
            clock=self.clock,
            boot_id=f"boot-{self.boot}",
            random_u64=lambda: self.random.getrandbits(64),
            settings=self.settings,
        )
        self.replayed = list(self.store.replay())
        return self.store

    def crash(self, *, power_loss: bool = False) -> None:
        """End this life."""
        self.files = self.files.crash(power_loss=power_loss)
        self.boot += power_loss

    def restart(self, number: int = 1, *, sync: bool = False, power_loss: bool = False) -> Log:
        """Crash, open the folder again and one partition in it."""
        self.crash(power_loss=power_loss)
        return self.open().open_log(number, sync=sync)

    def poll(self) -> bool:
        """Poll the store, letting time pass for a worker that needs it."""
        if isinstance(self.worker, FakeWorker):
            self.clock.advance(self.random.randrange(self.worker_delay_ns_max))
        return self.store.poll()

    def turn(self) -> None:
        """Commit what was staged; let time pass, so that syncs become due, and run what has ended."""
        self.store.commit()
        self.clock.advance(600)
        self.poll()

    def publish(self, log: Log, messages: Sequence[bytes], *, origin: int = NSQ) -> None:
        """Append in a turn of its own."""
        log.append(MessageBatch.of(messages), now_ns=self.clock.wall_ns(), origin=origin)
        self.turn()

    def settle(self) -> None:
        """Take turns until everything is synced."""
        for _ in range(8 if not self.worker_delay_ns_max else 30):
            self.turn()


def drain(harness: Harness, reader: Reader, *, count_max: int = 7, size_bytes_max: int = 1 << 20) -> list[bytes]:
    """Read bodies up to the end."""
    found: list[bytes] = []
    while True:
        piece = reader.take(count_max, size_bytes_max)
        if piece is not None:
            assert 0 < piece.count <= count_max
            messages = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)
            found += [message.body for message in messages]
        elif reader.waiting:
            harness.poll()
        else:
            return found


def read_all(harness: Harness, log: Log, offset: int | None = None) -> list[bytes]:
    """Read the bodies from an offset on."""
    return drain(harness, log.reader(log.start if offset is None else offset))
