from __future__ import annotations

import pytest

from polymq import limits
from polymq.core.reading import reach
from polymq.wire.slices import MessageBatch

from .fakes import FakeLog, FakeReader


class CountingReader(FakeReader):
    seeks = 0

    def seek(self, offset: int) -> None:
        self.seeks += 1
        super().seek(offset)


@pytest.fixture
def reader() -> CountingReader:
    log = FakeLog(0, sync=False)
    for _ in range(3):
        log.append(MessageBatch.of([b"x"] * 2000), now_ns=1, origin=1)
    log.readable = log.end
    return CountingReader(log, 10)


@pytest.mark.parametrize(
    ("offset", "seeks"),
    [(10, 0), (11, 0), (3000 - 1000, 0), (10 + limits.SLICE_MESSAGES_MAX, 0), (11 + limits.SLICE_MESSAGES_MAX, 1), (9, 1), (0, 1)],
)
def test_small_steps_forward_are_no_seeks(reader: CountingReader, offset: int, seeks: int) -> None:
    assert reach(reader, offset)
    assert (reader.offset, reader.seeks) == (offset, seeks)


def test_what_lies_on_the_disk_is_waited_for(reader: CountingReader) -> None:
    reader.log.cold = True
    assert not reach(reader, 12)
    reader.log.cold = False
    assert reach(reader, 12)
    assert (reader.offset, reader.seeks) == (12, 0)


def test_a_step_behind_what_is_readable_is_a_seek(reader: CountingReader) -> None:
    reader.seek(reader.log.readable)
    assert reach(reader, reader.log.readable + 1)
    assert (reader.offset, reader.seeks) == (reader.log.readable + 1, 2)
