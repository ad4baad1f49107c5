"""The folder as a whole: opening, refusing, creating, deleting, stopping, many partitions."""

from __future__ import annotations

import errno
import tracemalloc
from random import Random
from typing import TYPE_CHECKING

import pytest

from polymq.errors import StoreFailed
from polymq.store import inspect
from polymq.store.files import RealFiles
from polymq.store.store import FORMAT, FORMAT_NAME, Store
from polymq.store.ticket import TicketState
from polymq.store.workers import ThreadWorker
from polymq.testing.clock import FakeClock
from polymq.testing.disk import DiskFault
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies, read_all

if TYPE_CHECKING:
    from pathlib import Path


def test_a_new_folder_says_what_it_is() -> None:
    harness = Harness()
    harness.open()
    assert harness.files.open(FORMAT_NAME).pread(100, 0) == FORMAT
    assert harness.replayed == []
    assert harness.store.health() == []


def test_folders_that_are_not_ours_are_refused() -> None:
    harness = Harness()
    harness.files.open(FORMAT_NAME, create=True).pwrite(b"polymq data folder, format 9\n", 0)
    with pytest.raises(StoreFailed, match="format 9"):
        harness.open()
    harness = Harness()
    harness.files.make_folder("journal/x")
    with pytest.raises(StoreFailed, match="no FORMAT"):
        harness.open()


def test_a_folder_in_use_is_refused_and_free_after_a_refusal() -> None:
    harness = Harness()
    harness.open()
    with pytest.raises(StoreFailed, match="in use"):
        harness.open()
    harness.store.close(clean=False)
    harness.files.faults.append(DiskFault("sync", path="journal/"))
    with pytest.raises(StoreFailed, match="journal"):
        harness.open()
    harness.open()


@pytest.mark.parametrize("kind", ["create", "write", "read"])
def test_a_broken_disk_at_the_start_is_said(kind: str) -> None:
    harness = Harness()
    harness.files.faults.append(DiskFault(kind))
    if kind == "read":
        harness.open()
        harness.store.close(clean=True)
    with pytest.raises(StoreFailed):
        harness.open()


def test_a_deleted_partition_leaves_nothing() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=True)
    reader = log.reader(0)
    harness.publish(log, bodies(0, 5))
    harness.settle()
    ticket = log.append(MessageBatch.of(bodies(5, 5)), now_ns=1, origin=1)
    store.delete_log(1)
    assert harness.files.exists("partitions/0000001")
    harness.settle()
    assert ticket.state is TicketState.FAILED
    assert not harness.files.exists("partitions/0000001")
    with pytest.raises(StoreFailed, match="deleted"):
        log.append(MessageBatch.of([b"x"]), now_ns=1, origin=1)
    assert store.health() == []
    reader.take(1, 1000)
    harness.crash(power_loss=True)
    store = harness.open()
    assert store.create_log(1, sync=False).end == 0


def test_files_of_a_deleted_partition_go_though_a_kill_came_first() -> None:
    harness = Harness()
    store = harness.open()
    for number in (1, 2, 3, 7):
        harness.publish(store.create_log(number, sync=False), bodies(0, 3))
    harness.settle()
    store.delete_log(2)
    store.delete_log(3)
    store.delete_log(7)
    store.commit()
    assert harness.files.exists("partitions/0000002")
    harness.crash()
    store = harness.open()
    log = store.open_log(1, sync=False)
    store.forget_others(4)
    assert not harness.files.exists("partitions/0000002")
    assert not harness.files.exists("partitions/0000003")
    # A number that may still be given out is `create_log`'s to look after.
    assert harness.files.exists("partitions/0000007")
    assert store.create_log(7, sync=False).end == 0
    assert not harness.files.exists("partitions/0000007")
    assert read_all(harness, log) == bodies(0, 3)


@pytest.mark.parametrize("synced", [False, True])
def test_a_partition_of_which_the_journal_knows_is_not_given_up(synced: bool) -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.publish(log, bodies(0, 3))
    if synced:
        harness.settle()
    harness.crash()
    harness.open().forget_others(4)
    assert read_all(harness, harness.store.open_log(1, sync=False)) == bodies(0, 3)


def test_a_partition_that_is_deleted_unopened_is_not_announced_any_more() -> None:
    harness = Harness()
    harness.publish(harness.open().create_log(1, sync=False), bodies(0, 3))
    harness.crash()
    harness.open().delete_log(1)
    harness.store.journal.snapshot([])
    harness.settle()
    assert not any("partition 1" in row.text for row in inspect.entries(harness.files) if "deleted" not in row.text)


def test_a_partition_whose_catalogue_entry_was_lost_starts_from_nothing() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.publish(log, bodies(0, 5))
    harness.crash()
    log = harness.open().create_log(1, sync=False)
    assert (log.start, log.end) == (0, 0)
    harness.publish(log, bodies(10, 2))
    assert read_all(harness, log) == bodies(10, 2)


def test_nothing_is_on_the_disk_before_the_first_append() -> None:
    harness = Harness()
    store = harness.open()
    operations = harness.files.operations
    for number in range(100):
        store.create_log(number, sync=False)
    assert harness.files.operations == operations


def test_a_clean_start_opens_no_partition() -> None:
    harness = Harness()
    store = harness.open()
    for number in range(50):
        harness.publish(store.create_log(number, sync=number % 2 == 0), bodies(0, 3))
    store.close(clean=True)
    harness.crash(power_loss=True)
    touched: list[str] = []
    harness.files.watch(lambda kind, path: touched.append(path) if path.startswith("partitions") else None)
    store = harness.open()
    logs = [store.open_log(number, sync=number % 2 == 0) for number in range(50)]
    assert touched == []
    assert [(log.start, log.end, log.readable, log.size_bytes > 64) for log in logs] == [(0, 3, 3, True)] * 50
    assert store.epoch == 1
    for log in logs:
        assert read_all(harness, log) == bodies(0, 3)


def test_an_unclean_start_opens_each_partition_once() -> None:
    harness = Harness()
    store = harness.open()
    for number in range(20):
        harness.publish(store.create_log(number, sync=False), bodies(0, 3))
    harness.settle()
    harness.crash()
    reads: list[str] = []
    harness.files.watch(lambda kind, path: reads.append(path) if path.startswith("partitions") else None)
    store = harness.open()
    for number in range(20):
        assert store.open_log(number, sync=False).end == 3
    assert len(reads) <= 2 * 20


def test_a_store_that_was_well_only_in_part_does_not_claim_a_clean_stop() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.files.faults.append(DiskFault("sync", path="partitions/"))
    harness.publish(log, bodies(0, 3))
    harness.settle()
    assert log.failed
    store.close(clean=True)
    harness.crash()
    assert not harness.open()._clean


def test_idle_partitions_take_little_memory() -> None:
    harness = Harness()
    store = harness.open()
    tracemalloc.start()
    logs = [store.create_log(number, sync=False) for number in range(500)]
    readers = [log.reader(0) for log in logs]
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(readers) == 500
    assert used < 500 * 4000


def test_everything_together_on_a_real_disk(tmp_path: Path) -> None:
    random = Random(1)
    harness = Harness()

    def opened() -> tuple[Store, ThreadWorker]:
        worker = ThreadWorker(lambda: None)
        store = Store.open(
            RealFiles(tmp_path),
            worker,
            clock=FakeClock(),
            boot_id="b",
            random_u64=lambda: random.getrandbits(64),
            settings=harness.settings,
        )
        harness.store, harness.worker = store, worker
        harness.replayed = list(store.replay())
        return store, worker

    store, worker = opened()
    log = store.create_log(1, sync=True)
    ticket = None
    for number in range(100):
        ticket = log.append(MessageBatch.of(bodies(number, 1, 100)), now_ns=number, origin=1)
        store.journal.append(b"\x40%d" % number)
        store.commit()
        worker.drain()
        store.commit()
    assert ticket is not None
    worker.drain()
    assert ticket.state is TicketState.DONE
    assert read_all(harness, log) == bodies(0, 100, 100)
    store.close(clean=True)
    worker.close()
    store, worker = opened()
    assert len(harness.replayed) == 100
    log = store.open_log(1, sync=True)
    assert read_all(harness, log) == bodies(0, 100, 100)
    log.append(MessageBatch.of([b"x"]), now_ns=1, origin=1)
    store.commit()
    worker.drain()
    store.close(clean=False)
    worker.close()
    store, worker = opened()
    assert not store._clean
    log = store.open_log(1, sync=False)
    assert read_all(harness, log, 100) == [b"x"]
    store.close(clean=True)
    worker.close()


def test_what_a_start_has_journaled_can_be_made_safe_before_anything_else() -> None:
    harness = Harness()
    store = harness.open()
    harness.publish(store.create_log(1, sync=False), [b"x"])
    harness.settle()
    store.journal.append(b"\x40cut")
    operations: list[tuple[str, str]] = []
    harness.files.watch(lambda kind, path: operations.append((kind, path.split("/")[0])))
    store.secure()
    assert ("sync", "journal") in operations
    assert {folder for _kind, folder in operations} == {"journal"}
    harness.crash(power_loss=True)
    harness.open()
    assert b"\x40cut" in harness.replayed


def test_a_start_that_cannot_be_made_safe_fails() -> None:
    for kind, error in (("sync", errno.EIO), ("open", errno.EMFILE)):
        harness = Harness()
        store = harness.open()
        store.journal.append(b"\x40cut")
        harness.files.faults.append(DiskFault(kind, errno=error, path="journal"))
        with pytest.raises(StoreFailed, match="journal"):
            store.secure()
