"""Single messages out of runs of whole batches."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from polymq import limits
from polymq.core.browsing import messages_at
from polymq.wire.records import Message

from .fakes import FakeLog


def log_of(sizes: list[int], body_size: int = 1) -> FakeLog:
    log = FakeLog(0, sync=False)
    for size in sizes:
        log.append_messages([Message(b"%d" % (log.end + index) * body_size) for index in range(size)], now_ns=log.end + 1, origin=1)
    log.readable = log.end
    return log


@settings(max_examples=50)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_what_is_asked_for_is_given_with_its_offset_and_time(sizes: list[int], data: st.DataObject) -> None:
    log = log_of(sizes)
    log.start = data.draw(st.integers(0, log.end - 1))
    offsets = sorted(data.draw(st.sets(st.integers(0, log.end + 2), min_size=1)))
    found = messages_at(log, offsets)
    assert found is not None
    assert [offset for offset, _message in found] == [offset for offset in offsets if log.start <= offset < log.end]
    firsts = [base for base, _count, _at in log.index]
    for offset, message in found:
        assert message.body == b"%d" % offset
        assert message.time_ns == max(base for base in firsts if base <= offset) + 1


def test_it_stops_after_enough_bytes_and_where_the_disk_would_have_to_be_waited_for() -> None:
    log = log_of([1] * 8, limits.PEEK_READ_SIZE_BYTES)
    found = messages_at(log, range(8))
    assert found is not None
    assert len(found) == limits.PEEK_SIZE_BYTES_MAX // limits.PEEK_READ_SIZE_BYTES
    real, calls = log.batches, iter([True, False])
    log.batches = lambda offset, size_bytes_max: real(offset, size_bytes_max) if next(calls) else None  # type: ignore[method-assign]
    found = messages_at(log, range(8))
    assert found is not None
    assert len(found) == 1
    log.cold = True
    log.batches = real  # type: ignore[method-assign]
    assert messages_at(log, [0]) is None
    assert messages_at(log, []) == []
