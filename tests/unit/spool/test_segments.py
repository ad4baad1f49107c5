"""The writer's files: what is appended is there after whatever happens, and nothing that was never durable."""

from __future__ import annotations

import errno
import random
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from polymq.errors import CorruptRecord, StoreFailed, StoreFull
from polymq.spool import folder
from polymq.spool.reading import Catalogue, read_piece
from polymq.spool.segments import SpoolLocked
from polymq.spool.window import IdWindow
from polymq.store.files import RealFiles
from polymq.testing.disk import DiskFault, FakeFiles, SimulatedKill
from polymq.wire.records import columns
from tests.unit.spool.spools import NOW_NS, SALT, SMALL, filled, portion, writer

if TYPE_CHECKING:
    from pathlib import Path


def bodies_in(path: Path) -> list[bytes]:
    catalogue = Catalogue(path, "nsq")
    found = []
    for piece in catalogue.pieces(catalogue.start(), catalogue.end()):
        for stretch in read_piece(path, piece):
            made = columns(stretch.data, 0, stretch.size, stretch.first, stretch.end)
            found += [bytes(made.bodies[made.body_ends[n] : made.body_ends[n + 1]]) for n in range(made.count)]
    return found


def test_what_is_appended_is_read_in_order_over_segments_and_restarts(tmp_path: Path) -> None:
    expected = []
    for life in range(3):
        batches = [[b"%d-%d-%d" % (life, n, m) for m in range(5)] for n in range(40)]
        filled(tmp_path, batches)
        expected += [body for batch in batches for body in batch]
    assert bodies_in(tmp_path) == expected
    assert len(folder.segments(tmp_path)) > 3
    assert Catalogue(tmp_path, "nsq").end() == 600


def test_one_process_writes(tmp_path: Path) -> None:
    filled(tmp_path, [[b"a"]])
    first = writer(RealFiles(tmp_path))
    first.open()
    with pytest.raises(SpoolLocked, match="another process writes this spool"):
        writer(RealFiles(tmp_path)).open()
    first.close()
    second = writer(RealFiles(tmp_path))
    second.open()
    second.close()


def test_a_spool_is_for_one_protocol_and_segments_without_identity_are_refused(tmp_path: Path) -> None:
    filled(tmp_path, [[b"a"]])
    text = (tmp_path / folder.IDENTITY).read_text(encoding="utf-8")
    (tmp_path / folder.IDENTITY).write_text(text.replace("nsq", "nats"), encoding="utf-8")
    with pytest.raises(StoreFailed, match="is for nats"):
        writer(RealFiles(tmp_path)).open()
    (tmp_path / folder.IDENTITY).unlink()
    with pytest.raises(StoreFailed, match=r"no spool\.json"):
        writer(RealFiles(tmp_path)).open()


def test_a_torn_end_is_cut_wherever_it_is_torn(tmp_path: Path) -> None:
    # As a SIGKILL between the write and the sync leaves it: the position still says what was durable before.
    base = tmp_path / "base"
    filled(base, [[b"one", b"two"], [b"three"]])
    before = folder.position(base)
    assert before is not None
    whole = tmp_path / "whole"
    shutil.copytree(base, whole)
    filled(whole, [[b"four", b"five"], [b"six"]])
    after = folder.position(whole)
    assert after is not None
    (name,) = [folder.segment_name(each) for each in folder.segments(whole)]
    data = (whole / name).read_bytes()
    for cut in range(before.used, after.used + 1):
        torn = tmp_path / "torn"
        shutil.copytree(base, torn)
        (torn / name).write_bytes(data[:cut] + bytes(len(data) - cut))
        opened = writer(RealFiles(torn))
        opened.open()
        expected = {3: [], 5: [b"four", b"five"], 6: [b"four", b"five", b"six"]}[opened.end]
        # What lay behind the cut does not come back once something of the same size is written.
        opened.append([portion([b"FOUR", b"FIVE"])])
        opened.close()
        assert bodies_in(torn) == [b"one", b"two", b"three", *expected, b"FOUR", b"FIVE"]
        shutil.rmtree(torn)


def test_a_batch_behind_a_damaged_one_does_not_come_back(tmp_path: Path) -> None:
    filled(tmp_path, [[b"one"]])
    before = folder.position(tmp_path)
    assert before is not None
    pages = (tmp_path / folder.POSITION).read_bytes()
    filled(tmp_path, [[b"two"], [b"three"]])
    (tmp_path / folder.POSITION).write_bytes(pages)
    path = tmp_path / folder.segment_name(0)
    data = bytearray(path.read_bytes())
    data[before.used + 90] ^= 1
    path.write_bytes(data)
    for _ in range(2):
        opened = writer(RealFiles(tmp_path))
        opened.open()
        opened.append([portion([b"TWO"])])
        opened.close()
    assert bodies_in(tmp_path) == [b"one", b"TWO", b"TWO"]


def test_damage_before_the_durable_position_is_no_torn_end(tmp_path: Path) -> None:
    filled(tmp_path, [[b"one"], [b"two"]])
    path = tmp_path / folder.segment_name(0)
    data = bytearray(path.read_bytes())
    data[64 + 85] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecord, match="were durable"):
        writer(RealFiles(tmp_path)).open()
    with pytest.raises(CorruptRecord, match="checksum"):
        bodies_in(tmp_path)


def test_without_a_position_the_files_say_how_far_it_goes(tmp_path: Path) -> None:
    filled(tmp_path, [[b"%d" % n] for n in range(60)])
    (tmp_path / folder.POSITION).write_bytes(b"")
    with pytest.raises(StoreFailed, match="start its spooler"):
        Catalogue(tmp_path, "nsq").end()
    filled(tmp_path, [])
    assert bodies_in(tmp_path) == [b"%d" % n for n in range(60)]


def test_numbers_go_on_where_they_were_though_all_segments_are_gone(tmp_path: Path) -> None:
    filled(tmp_path, [[b"one", b"two"]])
    (tmp_path / folder.segment_name(0)).unlink()
    filled(tmp_path, [[b"three"]])
    assert folder.segments(tmp_path) == [2]
    assert Catalogue(tmp_path, "nsq").start() == 2


def test_a_segment_without_its_header_is_begun_anew(tmp_path: Path) -> None:
    filled(tmp_path, [[b"one", b"two"]])
    position = folder.position(tmp_path)
    assert position is not None
    (tmp_path / folder.segment_name(2)).write_bytes(bytes(4096))
    filled(tmp_path, [[b"three"]])
    assert bodies_in(tmp_path) == [b"one", b"two", b"three"]
    # And if it is the only one, because the others have been dropped: its name says where it begins.
    other = tmp_path / "other"
    filled(other, [])
    (other / folder.segment_name(7)).write_bytes(bytes(4096))
    (other / folder.POSITION).unlink()
    filled(other, [[b"eight"]])
    assert (Catalogue(other, "nsq").start(), Catalogue(other, "nsq").end()) == (7, 8)


def test_a_full_disk_refuses_and_the_same_append_may_be_tried_again() -> None:
    files = FakeFiles(random.Random(1))
    opened = writer(files)
    opened.open()
    opened.append([portion([b"one"])])
    files.capacity_bytes = files.used_bytes + 100
    large = portion([bytes(10_000)])
    for _ in range(2):
        with pytest.raises(StoreFull, match="no room"):
            opened.append([large])
        assert opened.end == 1
    files.capacity_bytes = files.used_bytes + 1_000_000
    opened.append([large])
    assert opened.end == 2
    opened.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_what_is_durable_and_could_not_be_published_is_not_written_twice(code: int) -> None:
    files = FakeFiles(random.Random(1))
    opened = writer(files)
    opened.open()
    opened.append([portion([b"one"])])
    some = [portion([b"two", b"three"])]
    files.faults.append(DiskFault("write", code, folder.POSITION, count=2))
    size = opened.size_bytes
    for _ in range(2):
        with pytest.raises(StoreFull, match="no room"):
            opened.append(some)
    opened.append(list(some))
    written = opened.size_bytes - size
    published = folder.parse_position(files.open(folder.POSITION).pread(folder.POSITION_SIZE_BYTES, 0))
    assert published is not None
    assert (opened.end, published.end, published.used) == (3, 3, opened.size_bytes)
    # Others of the same content are others.
    opened.append([portion([b"two", b"three"])])
    assert (opened.end, opened.size_bytes) == (5, size + 2 * written)
    # Whoever gives up trying goes on with something else: nothing is lost or doubled.
    files.faults.append(DiskFault("write", code, folder.POSITION))
    with pytest.raises(StoreFull, match="no room"):
        opened.append([portion([b"six"])])
    opened.append([portion([b"seven"])])
    assert opened.end == 7
    opened.close()


def test_a_failed_sync_is_not_tried_again_and_a_new_start_writes_anew() -> None:
    files = FakeFiles(random.Random(1))
    opened = writer(files)
    opened.open()
    opened.append([portion([b"one"])])
    files.faults.append(DiskFault("sync", errno.EIO, folder.segment_name(0)))
    with pytest.raises(StoreFailed):
        opened.append([portion([b"two"])])
    assert opened.end == 1
    opened.close()
    again = writer(files.crash())
    again.open()
    assert again.end in (1, 2)
    again.close()


@pytest.mark.parametrize("power_loss", [False, True])
def test_what_was_appended_survives_a_kill_at_every_operation(power_loss: bool) -> None:
    for kill_at in range(1, 400, 3):
        files = FakeFiles(random.Random(kill_at))
        files.kill_at = kill_at
        durable = 0
        has_ended = False
        try:
            opened = writer(files)
            opened.open()
            for n in range(30):
                opened.append([portion([b"%d" % n * 20, b"x" * 300])])
                durable = opened.end
            has_ended = True
        except SimulatedKill:
            pass
        after = files.crash(power_loss=power_loss)
        again = writer(after)
        again.open()
        assert durable <= again.end <= durable + 2
        again.append([portion([b"more"])])
        again.close()
        if has_ended:
            break
    else:
        raise AssertionError("the kills never reached the end")


def test_the_newest_ids_come_back_into_a_window(tmp_path: Path) -> None:
    filled(tmp_path, [[b"%d" % n] for n in range(300)])
    opened = writer(RealFiles(tmp_path))
    opened.open()
    window = IdWindow(1000)
    assert opened.fill(window) == 300
    assert not any(window.add((b"%d" % n).rjust(16, b"."), SALT) for n in range(300))
    small = IdWindow(10)
    assert 10 <= opened.fill(small) < 300
    assert not any(small.add((b"%d" % n).rjust(16, b"."), SALT) for n in range(290, 300))
    opened.close()


def test_only_what_is_committed_and_old_or_too_much_is_dropped(tmp_path: Path) -> None:
    now = [NOW_NS]
    settings = replace(SMALL, keep_seconds=100.0)
    opened = writer(RealFiles(tmp_path), settings, wall_ns=lambda: now[0])
    opened.open()
    for n in range(200):
        opened.append([portion([b"%d" % n * 10])])
    bases = folder.segments(tmp_path)
    assert opened.trim(0) == 0
    assert opened.trim(200) == 0
    now[0] += 101 * 10**9
    assert opened.trim(0) == 0
    assert opened.trim(bases[2] - 1) == 1
    assert opened.start == bases[1]
    assert opened.trim(200) == len(bases) - 2
    assert folder.segments(tmp_path) == bases[-1:]
    opened.append([portion([b"more"])])
    opened.close()
    # By size, however new.
    other = writer(RealFiles(tmp_path / "other"), replace(SMALL, keep_size_bytes=9000))
    other.open()
    for n in range(200):
        other.append([portion([b"%d" % n * 10])])
    assert other.trim(200) > 0
    assert other.size_bytes < 9000 + 2 * SMALL.segment_size_bytes_max
    other.close()


def test_the_next_segment_is_ready_before_it_is_needed(tmp_path: Path) -> None:
    opened = writer(RealFiles(tmp_path))
    opened.open()
    assert not opened.wants_next
    opened.append([portion([b"x" * 3000])])
    assert opened.wants_next
    opened.prepare_next()
    assert not opened.wants_next
    assert (tmp_path / "next.seg").stat().st_size == 8192
    opened.append([portion([b"y" * 3000])])
    assert not (tmp_path / "next.seg").exists()
    opened.prepare_next()
    opened.close()
    filled(tmp_path, [[b"z"]])
    assert bodies_in(tmp_path) == [b"x" * 3000, b"y" * 3000, b"z"]


def test_an_append_that_is_larger_than_a_segment_gets_one_of_its_size(tmp_path: Path) -> None:
    filled(tmp_path, [[b"a" * 20_000], [b"b"], [b"c" * 30_000, b"d" * 30_000]])
    assert [len(body) for body in bodies_in(tmp_path)] == [20_000, 1, 30_000, 30_000]
