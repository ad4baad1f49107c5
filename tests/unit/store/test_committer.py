"""Group commit: one job at a time, what it covers, what waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.store.committer import UNSURE_NAME, remove_paths, sync_paths
from polymq.store.ticket import TicketState
from polymq.testing.disk import DiskFault, FakeFiles
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_one_job_covers_everything_and_new_names() -> None:
    harness = Harness()
    store = harness.open()
    for number in (1, 2, 3):
        store.create_log(number, sync=False).append(MessageBatch.of([b"x"]), now_ns=1, origin=1)
    synced: list[tuple[str, str]] = []
    harness.files.watch(lambda kind, path: synced.append((kind, path)) if kind.startswith("sync") else None)
    harness.settle()
    files = [path for kind, path in synced if kind == "sync"]
    folders = [path for kind, path in synced if kind == "sync_folder"]
    assert [path for path in files if path.startswith("partitions")] == [f"partitions/000000{n}/{0:020d}.seg" for n in (1, 2, 3)]
    assert {f"partitions/000000{n}" for n in (1, 2, 3)} <= set(folders)
    assert "partitions" in folders


def test_a_job_settles_what_was_written_before_it_and_nothing_later() -> None:
    harness = Harness()
    harness.worker_delay_ns_max = 1_000_000
    store = harness.open()
    log = store.create_log(1, sync=True)
    first = log.append(MessageBatch.of(bodies(0, 1)), now_ns=1, origin=1)
    store.commit()
    second = log.append(MessageBatch.of(bodies(1, 1)), now_ns=1, origin=1)
    entry = store.journal.ticket(sync=True)
    store.commit()
    while first.state is TicketState.PENDING:
        assert second.state is TicketState.PENDING
        assert log.readable == 0
        harness.poll()
    assert (log.readable, second.state, entry.state) == (1, TicketState.PENDING, TicketState.PENDING)
    store.commit()
    while second.state is TicketState.PENDING:
        harness.poll()
    assert (log.readable, entry.state) == (2, TicketState.DONE)


def test_the_usual_partition_is_synced_within_the_interval() -> None:
    harness = Harness(sync_interval_ns=1000)
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.clock.advance(50_000)
    harness.settle()
    log.append(MessageBatch.of(bodies(0, 1)), now_ns=1, origin=1)
    store.commit()
    due_ns = store.due_ns
    assert due_ns is not None
    assert due_ns - harness.clock.monotonic_ns() <= 1000
    store.poll()
    assert log.synced_point is None
    harness.clock.advance_to(due_ns)
    store.commit()
    store.poll()
    assert log.synced_point is not None
    assert log.synced_point.end == 1


def test_an_idle_store_has_nothing_to_do() -> None:
    harness = Harness()
    store = harness.open()
    harness.publish(store.create_log(1, sync=False), [b"x"])
    harness.settle()
    operations = harness.files.operations
    assert store.due_ns is None
    harness.settle()
    assert harness.files.operations == operations


def test_files_are_synced_before_the_folders_that_name_them() -> None:
    files = FakeFiles()
    files.make_folder("a")
    files.open("a/b", create=True).pwrite(b"x", 0)
    seen: list[str] = []
    files.watch(lambda kind, path: seen.append(f"{kind} {path}"))
    sync_paths(files, ["a/b"], ["a"])
    assert seen == ["sync a/b", "sync_folder a"]


def test_each_partition_has_its_files_synced_before_their_names_and_the_journal_last() -> None:
    harness = Harness()
    store = harness.open()
    for number in (1, 2):
        store.create_log(number, sync=False).append(MessageBatch.of([b"x"]), now_ns=1, origin=1)
    seen: list[tuple[str, str]] = []
    harness.files.watch(lambda kind, path: seen.append((kind, path.partition("/0000000000")[0])) if kind.startswith("sync") else None)
    store.commit()
    harness.settle()
    folders = [f"partitions/000000{number}" for number in (1, 2)]
    for folder in folders:
        assert seen.index(("sync", folder)) < seen.index(("sync_folder", folder))
    assert seen.index(("sync", "journal")) > seen.index(("sync_folder", "partitions"))


def test_names_are_not_synced_for_a_file_that_could_not_be() -> None:
    harness = Harness()
    store = harness.open()
    logs = [store.create_log(number, sync=True) for number in (1, 2)]
    tickets = [log.append(MessageBatch.of([b"x"]), now_ns=1, origin=1) for log in logs]
    harness.files.faults.append(DiskFault("sync", path="partitions/0000001"))
    folders: list[str] = []
    harness.files.watch(lambda kind, path: folders.append(path) if kind == "sync_folder" else None)
    harness.settle()
    assert "partitions/0000001" not in folders
    assert "partitions/0000002" in folders
    assert [ticket.state for ticket in tickets] == [TicketState.FAILED, TicketState.DONE]


class WithoutMemory(FakeFiles):
    """A disk on which a sync ends in an error that has no text."""

    lacking = False

    def sync_files(self, paths: Sequence[str]) -> Sequence[int]:
        if self.lacking:
            raise MemoryError
        return super().sync_files(paths)


def test_a_sync_that_broke_off_without_a_word_has_failed() -> None:
    files = WithoutMemory()
    harness = Harness(files=files)
    store = harness.open()
    log = store.create_log(1, sync=True)
    ticket = log.append(MessageBatch.of([b"x"]), now_ns=1, origin=1)
    files.lacking = True
    harness.settle()
    assert ticket.state is TicketState.FAILED
    assert (log.readable, log.durable) == (0, 0)
    assert "MemoryError" in store.journal.failed
    assert store.figures().syncs_failed == 1
    files.lacking = False
    # The next start looks at every partition.
    assert files.exists(UNSURE_NAME)


def test_removing_takes_whole_folders_and_what_is_not_there() -> None:
    files = FakeFiles()
    files.make_folder("a")
    files.open("a/b", create=True)
    files.open("c", create=True)
    remove_paths(files, ["a/", "c", "d", "e/"])
    assert not any(files.exists(name) for name in ("a", "c"))


def test_files_stay_while_the_journal_cannot_say_that_they_are_forgotten() -> None:
    harness = Harness()
    store = harness.open()
    harness.publish(store.create_log(1, sync=False), bodies(0, 5))
    harness.settle()
    store.delete_log(1)
    store.journal.append(b"\x40" + bytes(100_000))
    harness.files.capacity_bytes = 0
    for _ in range(4):
        harness.turn()
    assert store.journal.blocked
    assert harness.files.exists("partitions/0000001")
    harness.files.capacity_bytes = 1 << 30
    harness.settle()
    assert not harness.files.exists("partitions/0000001")
