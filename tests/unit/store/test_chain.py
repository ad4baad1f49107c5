"""Chains: doubling, making ready ahead, limits on what is reserved."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from polymq.errors import StoreError, StoreFailed, StoreFull
from polymq.store.chain import Chain, prepare
from polymq.store.segment import MAGIC_LOG
from polymq.store.settings import StoreSettings
from polymq.store.volume import Volume
from polymq.store.workers import InlineWorker
from polymq.testing.clock import FakeClock
from polymq.testing.disk import DiskFault, FakeFiles


def chain(*, capacity_bytes: int = 1 << 40, **settings: Any) -> Chain:
    files = FakeFiles(capacity_bytes=capacity_bytes)
    values: dict[str, Any] = {"segment_size_bytes_first": 4096, "segment_size_bytes_max": 16384, "free_bytes_min": 0} | settings
    volume = Volume(
        files,
        InlineWorker(),
        clock=FakeClock(),
        random_u64=iter(range(1, 100)).__next__,
        settings=StoreSettings(**values),
    )
    return Chain(volume, "partitions/0000001", magic=MAGIC_LOG, partition=1, suffix=".seg")


def fill(made: Chain, offset: int) -> None:
    """Use up the active segment."""
    active = made.active
    assert active is not None
    made.wrote(active, active.size_bytes - active.used)
    made.prepare_next()
    made.volume.worker.run_completions()


def test_segments_double_up_to_the_largest() -> None:
    made = chain()
    sizes = []
    for offset in range(5):
        sizes.append(made.roll(offset, room_bytes=100, now_ns=1, epoch=1).size_bytes)
        fill(made, offset)
    assert sizes == [4096, 8192, 16384, 16384, 16384]
    assert made.roll(9, room_bytes=100_000, now_ns=1, epoch=1).size_bytes == 131072


def test_the_next_segment_is_made_ready_when_half_is_used_and_takes_its_name_later() -> None:
    made = chain()
    active = made.roll(0, room_bytes=100, now_ns=1, epoch=1)
    files = made.volume.files
    made.wrote(active, 1900)
    made.prepare_next()
    assert not files.exists(made.next_path)
    made.wrote(active, 100)
    made.prepare_next()
    made.prepare_next()
    assert made.volume.worker.run_completions() == 1
    assert files.exists(made.next_path)
    assert made.volume.reserved_bytes == 4096 - active.used + 8192
    following = made.roll(7, room_bytes=100, now_ns=1, epoch=1)
    assert not files.exists(made.next_path)
    assert files.open(following.path).size() == 8192
    assert made.volume.reserved_bytes == 8192 - 64


def test_what_is_ready_but_too_small_is_not_used() -> None:
    made = chain()
    made.roll(0, room_bytes=100, now_ns=1, epoch=1)
    fill(made, 0)
    assert made.roll(1, room_bytes=10_000, now_ns=1, epoch=1).size_bytes == 16384
    assert made.volume.files.exists(made.next_path)


def test_little_is_reserved_on_a_small_disk() -> None:
    made = chain(capacity_bytes=100_000, reserved_part_max=0.05)
    for offset in range(4):
        segment = made.roll(offset, room_bytes=100, now_ns=1, epoch=1)
        assert segment.size_bytes == 4096
        made.wrote(segment, 2100)
        made.prepare_next()
        made.volume.worker.run_completions()
        assert not made.volume.files.exists(made.next_path)
        assert made.volume.reserved_bytes <= 5000


def nearly_full(made: Chain, error: int, *, count: int = 1) -> None:
    """Use up segments until the next one would have 16 KiB, and let allocations fail from there."""
    for offset in range(2):
        active = made.roll(offset, room_bytes=100, now_ns=1, epoch=1)
        made.wrote(active, active.size_bytes - active.used)
    files = made.volume.files
    assert isinstance(files, FakeFiles)
    files.faults.append(DiskFault("allocate", errno=error, count=count))


@pytest.mark.parametrize(("room_bytes", "size_bytes"), [(100, 4096), (4032, 4096), (4033, 8192), (8128, 8192)])
def test_where_a_doubled_segment_has_no_room_a_smaller_one_is_made(room_bytes: int, size_bytes: int) -> None:
    made = chain()
    nearly_full(made, errno.ENOSPC)
    segment = made.roll(2, room_bytes=room_bytes, now_ns=1, epoch=1)
    assert segment.size_bytes == made.volume.files.open(segment.path).size() == size_bytes
    assert made.volume.reserved_bytes == size_bytes - segment.used


@pytest.mark.parametrize(
    ("error", "count", "room_bytes", "kind"),
    [(errno.ENOSPC, 2, 100, StoreFull), (errno.ENOSPC, 1, 10_000, StoreFull), (errno.EIO, 1, 100, StoreFailed)],
)
def test_only_a_smaller_segment_is_tried_and_once(error: int, count: int, room_bytes: int, kind: type[StoreError]) -> None:
    made = chain()
    nearly_full(made, error, count=count)
    with pytest.raises(kind):
        made.roll(2, room_bytes=room_bytes, now_ns=1, epoch=1)
    assert not made.volume.files.exists(made.path(2))
    assert made.roll(2, room_bytes=100, now_ns=1, epoch=1).size_bytes == 16384


def test_closing_gives_back_what_is_reserved() -> None:
    made = chain()
    made.roll(0, room_bytes=100, now_ns=1, epoch=1)
    fill(made, 0)
    made.close()
    assert made.volume.reserved_bytes == 0
    assert not made.volume.files.exists(made.next_path)
    late = chain()
    active = late.roll(0, room_bytes=100, now_ns=1, epoch=1)
    late.wrote(active, 4000)
    late.prepare_next()
    late.close()
    late.volume.worker.drain()
    assert late.volume.reserved_bytes == 0
    assert not late.volume.files.exists(late.next_path)


def test_a_segment_that_cannot_be_made_ready_is_not_tried_in_every_turn() -> None:
    made = chain()
    files, clock = made.volume.files, made.volume.clock
    assert isinstance(files, FakeFiles)
    assert isinstance(clock, FakeClock)
    active = made.roll(0, room_bytes=100, now_ns=1, epoch=1)
    made.wrote(active, 4000)
    files.faults.append(DiskFault("allocate", errno=errno.EIO, count=2))
    for _ in range(5):
        made.prepare_next()
        made.volume.worker.run_completions()
    assert files.faults[0].count == 1
    assert made.volume.reserved_bytes == active.size_bytes - active.used
    clock.advance(made.volume.settings.sync_interval_ns)
    made.prepare_next()
    made.volume.worker.run_completions()
    assert not files.faults
    clock.advance(made.volume.settings.sync_interval_ns)
    made.prepare_next()
    made.volume.worker.run_completions()
    assert files.exists(made.next_path)


def test_a_segment_that_holds_nothing_grows_in_place() -> None:
    made = chain()
    first = made.roll(5, room_bytes=100, now_ns=1, epoch=1)
    assert made.roll(5, room_bytes=30_000, now_ns=2, epoch=1) is first
    assert first.size_bytes == 32768
    assert made.segments == [first]
    assert made.volume.reserved_bytes == 32768 - 64


def test_a_prepared_file_is_all_zeros_whatever_it_was() -> None:
    files = FakeFiles()
    files.open("next", create=True).pwrite(b"stale" * 1000, 0)
    prepare(files, "next", 3000)
    file = files.open("next")
    assert (file.size(), any(file.pread(3000, 0))) == (3000, False)
