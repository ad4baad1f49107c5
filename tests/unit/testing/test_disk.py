"""Tests of the disk over memory: the port itself, what a kill and a power loss leave, and the faults."""

import errno

import pytest

from polymq.testing.disk import DiskFault, FakeFile, FakeFiles, SimulatedKill

SECTOR = 512
SEEDS = range(60)


def synced_file(files: FakeFiles, path: str, data: bytes) -> FakeFile:
    """Create a file that survives everything."""
    file = files.open(path, create=True)
    file.pwrite(data, 0)
    file.sync()
    files.sync_folder("")
    return file


def contents(files: FakeFiles, path: str) -> bytes:
    file = files.open(path)
    return file.pread(file.size(), 0)


def after_power_loss(change: "list[bytes]", seed: int) -> bytes:
    """Write each of `change` over a synced file of four sectors, lose power, and read it back."""
    files = FakeFiles(seed)
    file = synced_file(files, "a", b"0" * 4 * SECTOR)
    for data in change:
        file.pwrite(data, 0)
    return contents(files.crash(power_loss=True), "a")


def test_write_and_read_back() -> None:
    file = FakeFiles().open("a", create=True)
    file.pwrite(b"hello", 3)
    assert file.size() == 8
    assert file.pread(100, 0) == b"\0\0\0hello"
    assert file.pread_cached(2, 3) == b"he"


def test_open_of_a_missing_file() -> None:
    with pytest.raises(FileNotFoundError):
        FakeFiles().open("a")


def test_allocate_reads_as_zeros_and_never_shrinks() -> None:
    file = FakeFiles().open("a", create=True)
    file.pwrite(b"x", 0)
    file.allocate(10)
    file.allocate(5)
    assert file.pread(100, 0) == b"x" + bytes(9)


def test_truncate_then_extend_reads_as_zeros() -> None:
    file = FakeFiles().open("a", create=True)
    file.pwrite(b"x" * 100, 0)
    file.truncate(10)
    file.allocate(100)
    assert file.pread(100, 0) == b"x" * 10 + bytes(90)


def test_map_shows_later_writes_and_is_read_only() -> None:
    file = FakeFiles().open("a", create=True)
    file.allocate(10)
    view = file.map(10)
    file.pwrite(b"ab", 4)
    assert bytes(view) == b"\0\0\0\0ab\0\0\0\0"
    assert view.readonly


def test_map_survives_growth_and_shows_writes_after_it() -> None:
    file = FakeFiles().open("a", create=True)
    file.allocate(10)
    view = file.map(10)
    file.allocate(5000)
    file.pwrite(b"abcd", 8)
    assert bytes(view[8:]) == b"ab"
    assert file.pread(4, 8) == b"abcd"


def test_map_shows_poison_behind_a_cut_and_zeros_after_extension() -> None:
    file = FakeFiles().open("a", create=True)
    file.pwrite(b"x" * 10, 0)
    view = file.map(10)
    file.truncate(6)
    assert bytes(view) == b"x" * 6 + b"\xdd" * 4
    file.allocate(8)
    assert bytes(view) == b"x" * 6 + b"\0\0" + b"\xdd" * 2


def test_folders() -> None:
    files = FakeFiles()
    files.make_folder("a/b")
    files.make_folder("a/b")
    files.open("a/b/c", create=True)
    files.open("a/b/d", create=True)
    assert sorted(files.list("a/b")) == ["c", "d"]
    assert files.list("missing") == []
    assert files.exists("a/b/c")
    files.rename("a/b/c", "a/b/e")
    files.remove("a/b/d")
    assert files.list("a/b") == ["e"]
    with pytest.raises(OSError, match="not empty"):
        files.remove("a/b")


def test_a_kill_keeps_everything_that_was_written() -> None:
    files = FakeFiles()
    files.open("a", create=True).pwrite(b"unsynced", 0)
    assert contents(files.crash(), "a") == b"unsynced"


def test_a_power_loss_keeps_everything_that_was_synced() -> None:
    assert all(after_power_loss([], seed) == b"0" * 4 * SECTOR for seed in SEEDS)


def test_a_power_loss_drops_any_subset_of_sectors() -> None:
    outcomes = {after_power_loss([b"1" * 4 * SECTOR], seed)[::SECTOR] for seed in range(400)}
    assert len(outcomes) == 16


def test_a_power_loss_may_leave_a_state_in_between() -> None:
    outcomes = {after_power_loss([b"1" * SECTOR, b"2" * SECTOR], seed)[:1] for seed in SEEDS}
    assert outcomes == {b"0", b"1", b"2"}


def test_a_sector_is_never_torn() -> None:
    for seed in SEEDS:
        data = after_power_loss([b"1" * 4 * SECTOR, b"2" * 700], seed)
        assert data[:SECTOR] in {b"0" * SECTOR, b"1" * SECTOR, b"2" * SECTOR}


def test_what_survived_one_power_loss_survives_the_next() -> None:
    for seed in SEEDS:
        files = FakeFiles(seed)
        synced_file(files, "a", b"0" * 4 * SECTOR).pwrite(b"1" * 4 * SECTOR, 0)
        files = files.crash(power_loss=True)
        before = contents(files, "a")
        assert contents(files.crash(power_loss=True), "a") == before


def test_an_unsynced_size_may_be_lost() -> None:
    sizes = set()
    for seed in SEEDS:
        files = FakeFiles(seed)
        synced_file(files, "a", b"0" * 100).allocate(5000)
        sizes.add(files.crash(power_loss=True).open("a").size())
    assert sizes == {100, 5000}


def test_an_unsynced_cut_may_come_back() -> None:
    outcomes = set()
    for seed in SEEDS:
        files = FakeFiles(seed)
        file = synced_file(files, "a", b"0" * SECTOR * 2)
        file.truncate(SECTOR)
        file.allocate(SECTOR * 2)
        outcomes.add(contents(files.crash(power_loss=True), "a")[SECTOR:])
    assert outcomes >= {b"0" * SECTOR, bytes(SECTOR)}


def test_an_unsynced_kill_then_power_loss_still_drops() -> None:
    outcomes = set()
    for seed in SEEDS:
        files = FakeFiles(seed)
        synced_file(files, "a", b"0").pwrite(b"1", 0)
        outcomes.add(contents(files.crash().crash(power_loss=True), "a"))
    assert outcomes == {b"0", b"1"}


def test_unsynced_names_may_vanish_or_come_back() -> None:
    outcomes = set()
    for seed in range(200):
        files = FakeFiles(seed)
        synced_file(files, "old", b"x")
        files.open("new", create=True)
        files.rename("old", "renamed")
        outcomes.add(tuple(sorted(files.crash(power_loss=True).list(""))))
    assert outcomes == {("old",), ("renamed",), ("new", "old"), ("new", "renamed")}


def test_a_failed_sync_leaves_doubt_that_a_later_sync_does_not_remove() -> None:
    outcomes = set()
    for seed in SEEDS:
        files = FakeFiles(seed)
        file = synced_file(files, "a", b"0" * 2 * SECTOR)
        file.pwrite(b"1", 0)
        files.faults.append(DiskFault("sync"))
        with pytest.raises(OSError, match="error"):
            file.sync()
        file.pwrite(b"2", SECTOR)
        file.sync()
        data = contents(files.crash(power_loss=True), "a")
        assert data[SECTOR : SECTOR + 1] == b"2"
        outcomes.add(data[:1])
    assert outcomes == {b"0", b"1"}


def test_a_sector_written_again_after_a_failed_sync_is_safe_once_synced() -> None:
    for seed in SEEDS:
        files = FakeFiles(seed)
        file = synced_file(files, "a", b"0")
        file.pwrite(b"1", 0)
        files.faults.append(DiskFault("sync"))
        with pytest.raises(OSError, match="error"):
            file.sync()
        file.pwrite(b"2", 0)
        file.sync()
        assert contents(files.crash(power_loss=True), "a") == b"2"


def test_a_full_disk_refuses_growth_until_something_is_removed() -> None:
    files = FakeFiles(capacity_bytes=1000)
    file = files.open("a", create=True)
    file.allocate(900)
    with pytest.raises(OSError, match="space") as caught:
        files.open("b", create=True).allocate(200)
    assert caught.value.errno == errno.ENOSPC
    file.pwrite(b"x" * 900, 0)
    files.remove("a")
    files.open("b").allocate(200)
    assert files.free_bytes() == 800


def test_faults_match_kind_and_path_skip_and_count() -> None:
    files = FakeFiles()
    files.faults.append(DiskFault("write", path="b", skip=1, count=2))
    other, file = files.open("a", create=True), files.open("b", create=True)
    other.pwrite(b"1", 0)
    file.pwrite(b"1", 0)
    for _ in range(2):
        with pytest.raises(OSError, match="error"):
            file.pwrite(b"1", 0)
    file.pwrite(b"1", 0)
    assert files.faults == []


def test_a_failing_write_may_arrive_in_part() -> None:
    arrived = set()
    for seed in SEEDS:
        files = FakeFiles(seed)
        file = synced_file(files, "a", b"0" * 10)
        files.faults.append(DiskFault("write"))
        with pytest.raises(OSError, match="error"):
            file.pwrite(b"1" * 10, 0)
        arrived.add(contents(files, "a").count(b"1"))
    assert min(arrived) == 0
    assert len(arrived) > 5


def test_kill_at_every_operation_ends_the_process_there() -> None:
    files = FakeFiles()
    synced_file(files, "a", b"x")
    count = files.operations
    assert count == 4  # create, write, sync, sync_folder
    for at in range(count):
        files = FakeFiles()
        files.kill_at = at
        with pytest.raises(SimulatedKill):
            synced_file(files, "a", b"x")
        assert files.operations == at + 1
        with pytest.raises(AssertionError, match="killed"):
            files.open("b", create=True)
        assert files.crash().exists("a") == (at > 0)


def test_operations_are_shown_to_the_watcher() -> None:
    files = FakeFiles()
    seen: list[tuple[str, str]] = []
    files.watch(lambda kind, path: seen.append((kind, path)))
    synced_file(files, "a", b"x")
    assert seen == [("create", "a"), ("write", "a"), ("sync", "a"), ("sync_folder", "")]


def test_reading_evicted_pages_needs_the_disk_once() -> None:
    files = FakeFiles()
    file = synced_file(files, "a", b"x" * 10_000)
    files.evict()
    assert file.pread_cached(10, 5000) is None
    assert file.pread(10, 5000) == b"x" * 10
    assert file.pread_cached(10, 5000) == b"x" * 10
    assert file.pread_cached(10, 0) is None
    file.pwrite(b"y", 0)
    assert file.pread_cached(10, 0) == b"y" + b"x" * 9


def test_the_folder_belongs_to_one_process() -> None:
    files = FakeFiles()
    files.lock()
    with pytest.raises(BlockingIOError):
        files.lock()
    files.close()
    files.lock()
    files.crash().lock()


def test_a_killed_process_is_caught_when_it_goes_on() -> None:
    files = FakeFiles()
    file = files.open("a", create=True)
    files.crash()
    with pytest.raises(AssertionError, match="killed"):
        file.pwrite(b"x", 0)
