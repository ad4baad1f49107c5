"""The volume: few open files, spare buffers, the mark of free space, descriptors running out."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from polymq.errors import StoreFailed, StoreFull
from polymq.store.segment import Segment
from polymq.store.settings import StoreSettings
from polymq.store.volume import Volume, is_passing, store_error
from polymq.store.workers import InlineWorker
from polymq.testing.clock import FakeClock
from polymq.testing.disk import FakeFiles

if TYPE_CHECKING:
    import pytest


def volume(files: FakeFiles | None = None, **settings: int) -> Volume:
    return Volume(files or FakeFiles(), InlineWorker(), clock=FakeClock(), random_u64=lambda: 1, settings=StoreSettings(**settings))


def segments(files: FakeFiles, count: int) -> list[Segment]:
    made = []
    for number in range(count):
        files.open(f"{number}", create=True).allocate(64)
        segment = Segment(f"{number}", 0)
        segment.size_bytes = 64
        made.append(segment)
    return made


def test_only_so_many_segments_are_open_and_those_in_use_stay() -> None:
    files = FakeFiles()
    space = volume(files, open_segments_max=3)
    made = segments(files, 10)
    for segment in made:
        space.file(segment)
        space.map(made[0])
        assert sum(each.file is not None for each in made) <= 4
    assert made[0].file is not None
    assert made[1].file is None
    assert space.file(made[1]).size() == 64
    space.close()
    assert all(each.file is None for each in made)


def test_when_descriptors_run_out_others_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FakeFiles()
    space = volume(files)
    made = segments(files, 5)
    for segment in made[:4]:
        space.file(segment)
    real = FakeFiles.open
    failures = [OSError(errno.EMFILE, "too many")]

    def scarce(self: FakeFiles, path: str, *, create: bool = False) -> object:
        if failures:
            raise failures.pop()
        return real(self, path, create=create)

    monkeypatch.setattr(FakeFiles, "open", scarce)
    assert space.file(made[4]).size() == 64
    assert sum(each.file is not None for each in made[:4]) == 2
    failures.append(OSError(errno.EMFILE, "too many"))
    space.close()
    assert space.map(made[0]) is None


def test_a_buffer_is_given_again_unless_it_has_grown_huge() -> None:
    space = volume()
    buffer = space.take_buffer()
    space.give_buffer(buffer)
    assert space.take_buffer() is buffer
    buffer.extend(bytes(8 << 20))
    space.give_buffer(buffer)
    assert space.take_buffer() is not buffer


def test_the_mark_of_free_space() -> None:
    assert volume(FakeFiles(capacity_bytes=1 << 40)).free_bytes_min == (1 << 40) // 20
    small = volume(FakeFiles(capacity_bytes=1 << 30))
    assert small.free_bytes_min == 256 << 20
    assert not small.full
    assert volume(FakeFiles(capacity_bytes=255 << 20)).full
    assert not volume(FakeFiles(capacity_bytes=255 << 20), free_bytes_min=0).full


def test_errors_are_translated() -> None:
    assert isinstance(store_error(OSError(errno.ENOSPC, "full"), "it"), StoreFull)
    failed = store_error(OSError(errno.EIO, "broken"), "it")
    assert isinstance(failed, StoreFailed)
    assert str(failed) == "it: broken"
    assert is_passing(OSError(errno.ENOMEM, "x"))
    assert not is_passing(OSError(errno.EIO, "x"))
    assert not is_passing(ValueError("x"))
