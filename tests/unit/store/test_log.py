"""One partition: how batches are cut, what counts as readable, epochs, times, sizes."""

from __future__ import annotations

import pytest

from polymq.errors import Refusal, StoreFailed
from polymq.limits import BATCH_SIZE_BYTES_MAX
from polymq.store import inspect
from polymq.store.ticket import TicketState
from polymq.wire.batch import ATTRIBUTE_RENEWED
from polymq.wire.records import HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, BatchHeader, Message, encode_message, parse_header
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import NSQ, Harness, bodies, read_all


def headers(harness: Harness, number: int = 1) -> list[BatchHeader]:
    rows = [
        row for segment in inspect.segments(harness.files, number) for row in inspect.batches(harness.files, number, segment.base_offset)
    ]
    assert all(row.header for row in rows)
    return [row.header for row in rows if row.header]


def test_batches_of_one_turn_and_origin_merge_up_to_the_target() -> None:
    harness = Harness(batch_size_bytes_target=1000)
    log = harness.open().create_log(1, sync=False)
    for number in range(20):
        log.append(MessageBatch.of([b"x" * 92]), now_ns=1, origin=1)
        assert log.end == number + 1
    log.append(MessageBatch.of([b"x" * 92]), now_ns=1, origin=5)
    harness.turn()
    log.append(MessageBatch.of([b"x" * 92]), now_ns=1, origin=5)
    harness.turn()
    found = headers(harness)
    assert [(header.origin, header.count) for header in found] == [(1, 9), (1, 9), (1, 2), (5, 1), (5, 1)]
    assert all(header.size <= 1000 for header in found)


def test_an_appended_batch_is_never_split() -> None:
    harness = Harness(batch_size_bytes_target=500)
    log = harness.open().create_log(1, sync=False)
    log.append(MessageBatch.of([b"x" * 100]), now_ns=1, origin=1)
    log.append(MessageBatch.of([b"x" * 100] * 200), now_ns=1, origin=1)
    log.append(MessageBatch.of([b"x" * 100]), now_ns=1, origin=1)
    harness.turn()
    assert [header.count for header in headers(harness)] == [1, 200, 1]
    assert headers(harness)[1].size == HEADER_SIZE_BYTES + 200 * (100 + RECORD_OVERHEAD_BYTES)


def test_everything_of_a_turn_is_one_write() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 1))
    writes: list[str] = []
    harness.files.watch(lambda kind, path: writes.append(path) if kind == "write" else None)
    for origin in (1, 2, 1):
        log.append(MessageBatch.of(bodies(1, 3)), now_ns=1, origin=origin)
    store.commit()
    assert writes == ["partitions/0000001/00000000000000000000.seg"]


def test_readable_waits_for_the_write_or_for_the_sync() -> None:
    harness = Harness()
    store = harness.open()
    usual, durable = store.create_log(1, sync=False), store.create_log(2, sync=True)
    first = usual.append(MessageBatch.of([b"a"]), now_ns=1, origin=NSQ)
    second = durable.append(MessageBatch.of([b"a"]), now_ns=1, origin=NSQ)
    assert first is usual.append(MessageBatch.of([b"b"]), now_ns=1, origin=NSQ)
    assert (usual.end, usual.readable, durable.end, durable.readable) == (2, 0, 1, 0)
    store.commit()
    assert (usual.readable, durable.readable) == (2, 0)
    assert (first.state, second.state) == (TicketState.DONE, TicketState.PENDING)
    assert read_all(harness, durable, 0) in ([], [b"a"])
    assert store.poll() is False or durable.readable == 1
    assert durable.readable == 1
    assert second.state is TicketState.DONE


def test_append_time_never_goes_backwards() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    for now_ns in (100, 50, 200, 10):
        log.append(MessageBatch.of([b"x"]), now_ns=now_ns, origin=1)
        harness.turn()
    assert [header.base_time_ns for header in headers(harness)] == [100, 100, 200, 200]
    log = harness.restart()
    log.append(MessageBatch.of([b"x"]), now_ns=10, origin=1)
    harness.turn()
    assert headers(harness)[-1].base_time_ns == 200


def test_messages_with_fields_and_producers_are_batches_of_their_own() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    log.append(MessageBatch.of([b"a"]), now_ns=1000, origin=1)
    log.append_messages(
        [Message(b"b", key=b"k"), Message(b"c" * 9000, time_ns=900)], now_ns=1000, origin=1, producer_id=7, producer_epoch=2, sequence=40
    )
    log.append_messages([Message(b"d")], now_ns=1000, origin=1)
    log.append(MessageBatch.of([b"e"]), now_ns=1000, origin=1)
    harness.turn()
    found = headers(harness)
    assert [(header.count, header.producer_id, header.producer_epoch, header.sequence) for header in found] == [
        (1, -1, -1, -1),
        (2, 7, 2, 40),
        (2, -1, -1, -1),
    ]
    rows = [row.message for row in inspect.records(harness.files, 1) if row.message is not None]
    assert [row.body for row in rows] == [b"a", b"b", b"c" * 9000, b"d", b"e"]
    assert (rows[1].key, rows[1].time_ns, rows[2].time_ns) == (b"k", 1000, 900)


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_batch_with_attributes_is_one_of_its_own_and_comes_back(power_loss: bool) -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=True)
    record = encode_message(Message(b"b", key=b"k"))
    log.append(MessageBatch.of([b"a"]), now_ns=1000, origin=0)
    log.append_records(record, 1, now_ns=1000, origin=0, attributes=ATTRIBUTE_RENEWED)
    log.append_run(memoryview(record), 1, now_ns=1000, origin=0)
    for _ in range(3):
        harness.turn()
    assert [(header.count, header.attributes) for header in headers(harness)] == [(1, 0), (1, ATTRIBUTE_RENEWED), (1, 0)]
    harness.crash(power_loss=power_loss)
    log = harness.open().open_log(1, sync=True)
    assert (log.end, log.failed, harness.store.health()) == (3, "", [])
    assert read_all(harness, log) == [b"a", b"b", b"b"]


def test_sizes_are_those_of_the_files() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    assert log.size_bytes == 0
    for number in range(100):
        harness.publish(log, bodies(number, 1, 100))
    used = sum(row.used_bytes for row in inspect.segments(harness.files, 1))
    assert log.size_bytes == used
    for power_loss in (False, True):
        harness.settle()
        log = harness.restart(power_loss=power_loss)
        assert log.size_bytes == used
    harness.store.close(clean=True)
    assert harness.restart().size_bytes == used


def test_segments_double_up_to_the_largest_and_full_ones_are_cut() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    for number in range(600):
        harness.publish(log, bodies(number, 1, 100))
    created = [row.size_bytes for row in inspect.segments(harness.files, 1)]
    assert created[-1] == 16384
    rows = list(inspect.segments(harness.files, 1))
    assert all(row.size_bytes == row.used_bytes for row in rows[:-1])
    assert [row.size_bytes > limit for row, limit in zip(rows, (3500, 7000, 15000), strict=False)] == [True] * 3


def test_an_epoch_is_told_only_after_another_boot_without_a_clean_stop() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.publish(log, bodies(0, 3))
    harness.settle()
    assert (log.epoch, log.epochs) == (1, [(1, 0)])
    log = harness.restart()
    assert (log.epoch, log.epochs) == (1, [(1, 0)])
    log = harness.restart(power_loss=True)
    assert (log.epoch, log.epochs) == (2, [(1, 0), (2, 3)])
    log = harness.restart(power_loss=True)
    assert (log.epoch, log.epochs) == (3, [(1, 0), (3, 3)])
    harness.publish(log, bodies(3, 1))
    harness.store.close(clean=True)
    log = harness.restart(power_loss=True)
    assert (log.epoch, log.epochs) == (3, [(1, 0), (3, 3)])
    assert [header.epoch for header in headers(harness)] == [1, 3]


def test_an_active_segment_that_was_exchanged_is_not_written() -> None:
    for change in ("header", "short", "gone"):
        harness = Harness()
        store = harness.open()
        log = store.create_log(1, sync=False)
        harness.publish(log, bodies(0, 3))
        store.close(clean=True)
        harness.crash()
        path = log.chain.segments[0].path
        if change == "gone":
            harness.files.remove(path)
        elif change == "short":
            harness.files.open(path).truncate(100)
        else:
            harness.files.open(path).pwrite(b"\xff", 20)
        log = harness.open().open_log(1, sync=False)
        assert not log.failed
        with pytest.raises(StoreFailed):
            log.append(MessageBatch.of([b"x"]), now_ns=1, origin=1)
        assert log.failed


def test_a_batch_without_messages_leaves_nothing() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    log.append(MessageBatch.of([]), now_ns=1, origin=1)
    harness.turn()
    harness.publish(log, [b"a"])
    assert [header.count for header in headers(harness)] == [1]


def test_nothing_of_a_turn_is_written_before_its_commit_however_many_segments_it_fills() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 2))
    log.append(MessageBatch.of(bodies(2, 2)), now_ns=1, origin=1)
    ticket = log.append(MessageBatch.of(bodies(4, 500, 60)), now_ns=1, origin=1)
    log.append(MessageBatch.of(bodies(504, 500, 60)), now_ns=1, origin=1)
    assert len(log.chain.segments) > 2
    assert log.point().end == 2
    harness.crash()
    log = harness.open().open_log(1, sync=False)
    assert (log.end, log.failed, ticket.state) == (2, "", TicketState.PENDING)
    for count in (2, 500, 500):
        log.append(MessageBatch.of(bodies(log.end, count, 60)), now_ns=1, origin=1)
    harness.turn()
    assert log.readable == 1004
    assert read_all(harness, log) == bodies(0, 2) + bodies(2, 1002, 60)
    assert log.size_bytes == sum(row.used_bytes for row in inspect.segments(harness.files, 1))
    reserved = harness.store._volume.reserved_bytes
    assert reserved == sum(
        chain.active.size_bytes - chain.active.used + chain._next_size_bytes
        for chain in (log.chain, harness.store.journal.chain)
        if chain.active
    )


def test_a_sync_while_a_full_segment_waits_to_be_written_makes_no_false_checkpoint() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 2))
    while not store.journal.blocked:
        harness.files.capacity_bytes = 0
        store.journal.append(b"\x40" + bytes(200))
        harness.files.capacity_bytes = 1 << 30
        log.append(MessageBatch.of(bodies(log.end, 60, 60)), now_ns=1, origin=1)
        harness.files.capacity_bytes = 0
        harness.turn()
    assert log.readable < log.end
    for _ in range(4):
        harness.turn()
    harness.crash(power_loss=True)
    harness.boot += 1
    harness.files.capacity_bytes = 1 << 30
    log = harness.open().open_log(1, sync=False)
    assert not log.failed
    assert read_all(harness, log) == (bodies(0, 2) + [body for first in range(2, 6000, 60) for body in bodies(first, 60, 60)])[: log.end]


def test_runs_of_records_join_the_batch_of_the_turn_and_are_never_split() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    sent: list[bytes] = []
    for first, count in ((0, 1), (1, 3), (4, 1), (5, 40), (45, 2)):
        some = bodies(first, count, 40)
        sent += some
        records = b"".join(encode_message(Message(body)) for body in some)
        log.append_run(memoryview(records), count, now_ns=harness.clock.wall_ns(), origin=2)
    assert (log.end, log.readable) == (len(sent), 0)
    harness.store.commit()
    assert log.readable == len(sent)
    assert read_all(harness, log) == sent
    view = log.batches(0, 1 << 20)
    assert view is not None
    counts, at = [], 0
    while at < len(view):
        header = parse_header(view, at)
        counts.append(header.count)
        assert (header.origin, header.base_time_ns) == (2, log.last_time_ns)
        at += header.size
    assert counts == [5, 40, 2]
    harness.crash()
    assert read_all(harness, harness.open().open_log(1, sync=False)) == sent


def test_a_run_that_is_too_large_or_for_a_log_that_failed_leaves_nothing() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    records = memoryview(bytes(BATCH_SIZE_BYTES_MAX))
    with pytest.raises(Refusal):
        log.append_run(records, 1, now_ns=1, origin=2)
    log.fence("broken")
    with pytest.raises(StoreFailed, match="broken"):
        log.append_run(records[:100], 1, now_ns=1, origin=2)
    assert log.end == 0
