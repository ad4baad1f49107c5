"""What a crash may leave of a release: any part of the journal's end, any part of the partition's."""

from __future__ import annotations

import struct
from typing import cast

import pytest

from polymq.core import journal_entries
from polymq.core.releases import reconcile
from polymq.wire.batch import read_note

from .conftest import SECOND_NS, World, inbox


class Log:
    """As much of a log as `reconcile` looks at."""

    def __init__(
        self,
        *,
        durable: int = 0,
        end: int = 100,
        epochs: tuple[tuple[int, int], ...] = ((1, 0),),
        notes: tuple[tuple[int, int, bytes], ...] = (),
        failed: str = "",
    ) -> None:
        self.failed = failed
        self.durable, self.end, self.epochs, self.notes = durable, end, list(epochs), list(notes)


def run(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def test_behind_the_checkpoint_the_batch_decides_and_before_it_the_journal() -> None:
    log = Log(durable=10, end=20, notes=((12, 1, run(5, 2)),))
    waiting = {5: 500, 30: 900}
    releases = {
        1: (9, 100, True),  # before the checkpoint: it is there
        6: (13, 600, True),  # its batch says so
        7: (14, 700, True),  # no batch says so
        8: (15, 800, False),  # written by a version whose batches say nothing
        9: (20, 900, False),  # behind the end
    }
    found = reconcile(log, Log(), waiting, releases)  # type: ignore[arg-type]
    assert found.undone == {7: 700, 9: 900}
    assert found.done == [(12, run(5, 1))]
    assert waiting == {7: 700, 9: 900, 30: 900}
    assert list(found.entries(3)) == [
        journal_entries.waiting(3, run(700, 7, 900, 9)),
        journal_entries.released_runs(3, 12, run(5, 1)),
    ]


def test_nothing_is_undone_because_a_partition_could_not_be_read() -> None:
    waiting: dict[int, int] = {}
    found = reconcile(Log(failed="damaged", end=3), Log(), waiting, {7: (5, 700, True), 8: (6, 800, False)})  # type: ignore[arg-type]
    assert (found.undone, found.done, waiting) == ({}, [], {})
    assert found.kept == [(5, run(7, 2))]


def test_a_release_into_a_partition_that_cannot_be_read_is_remembered(released: World) -> None:
    log = released.store.logs[0]
    log.cut(0)
    log.failed = "damaged"
    released.restart()
    assert released.view().scheduled == 0
    released.broker.snapshot()
    log.failed = ""
    released.restart()
    assert delivered(released) == [b"x", b"y", b"z"]


def test_a_note_is_not_about_messages_that_got_the_same_offsets_in_a_later_epoch() -> None:
    log = Log(notes=((4, 1, run(2, 4)),))
    waiting = {2: 1, 3: 1, 4: 1, 5: 1}
    found = reconcile(log, Log(epochs=((1, 0), (2, 4))), waiting, {})  # type: ignore[arg-type]
    assert found.done == [(4, run(2, 2))]
    assert waiting == {4: 1, 5: 1}
    assert reconcile(log, Log(epochs=((2, 3),)), {2: 1, 3: 1}, {}).done == []  # type: ignore[arg-type]


def test_runs_of_a_note_that_do_not_follow_one_another_stay_apart() -> None:
    log = Log(notes=((4, 1, run(9, 2, 3, 1)), (7, 1, run(4, 1))))
    found = reconcile(log, Log(), dict.fromkeys((3, 4, 9, 10), 1), {})  # type: ignore[arg-type]
    assert found.done == [(4, run(9, 2)), (6, run(3, 2))]


@pytest.fixture
def released(single: World) -> World:
    """Three deferred messages are in the partition, none of it is known to be durable."""
    single.consume("t", "g", 0)
    single.publish("t", b"x", b"y", delay_ns=SECOND_NS)
    single.publish("t", b"z", delay_ns=SECOND_NS)
    single.turn()
    single.wait(1)
    assert single.store.logs[0].end == 3
    return single


def lose_entries(world: World, kind: int) -> None:
    """The end of the journal did not reach the disk."""
    entries = world.store.journal.entries
    del entries[next(index for index, entry in enumerate(entries) if entry[0] == kind) :]


def delivered(world: World) -> list[bytes]:
    consumer = world.consume("t", "g", 100)
    world.wait(5)
    return sorted(inbox(consumer).bodies)


def test_a_release_that_only_the_partition_remembers_is_not_repeated(released: World) -> None:
    lose_entries(released, journal_entries.RELEASED_RUNS)
    released.restart()
    assert released.view().scheduled == 0
    assert delivered(released) == [b"x", b"y", b"z"]
    # The next crash loses nothing, but the checkpoint is behind the batch by then.
    released.store.logs[0].durable = 3
    released.restart()
    assert released.view().scheduled == 0
    assert released.store.logs[0].end == 3


def test_a_release_that_only_the_journal_remembers_is_repeated(released: World) -> None:
    log = released.store.logs[0]
    log.cut(0)
    # Others are at its offsets by the time of the next crash, which loses what the start had to say about it.
    before = len(released.store.journal.entries)
    released.restart()
    del released.store.journal.entries[before:]
    log.epoch = 2
    released.publish("t", b"a", b"b", b"c")
    released.store.commit()
    released.restart()
    assert delivered(released) == [b"a", b"b", b"c", b"x", b"y", b"z"]
    assert log.end == 6


def test_a_release_of_which_a_part_reached_the_partition_is_completed(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.publish("t", b"y", delay_ns=2 * SECOND_NS)
    single.turn()
    single.wait(1)
    single.wait(1)
    lose_entries(single, journal_entries.RELEASED_RUNS)
    single.store.logs[0].cut(1)
    single.restart()
    assert delivered(single) == [b"x", b"y"]


def test_what_a_group_was_emptied_of_does_not_come_with_a_release_that_the_journal_lost(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"before", delay_ns=SECOND_NS)
    single.turn()
    single.session.empty_group("t", "g")
    single.publish("t", b"after", delay_ns=SECOND_NS)
    single.turn()
    single.wait(1)
    lose_entries(single, journal_entries.RELEASED_RUNS)
    for _ in range(2):
        single.restart()
    assert delivered(single) == [b"after"]


def test_offsets_that_a_power_loss_gave_out_again_are_not_taken_for_released(released: World) -> None:
    partition, schedule = released.store.logs[0], released.store.logs[1]
    lose_entries(released, journal_entries.SCHEDULED)
    schedule.cut(0)
    schedule.epoch, schedule.epochs = 2, [(2, 0)]
    partition.epoch = 2
    released.restart()
    released.publish("t", b"new", delay_ns=SECOND_NS)
    released.turn()
    released.restart(cut=False)
    assert released.view().scheduled == 1
    assert delivered(released) == [b"new", b"x", b"y", b"z"]


def test_seed_469_what_is_scheduled_after_a_power_loss_is_not_left_out_because_of_what_was_there_before(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"x", b"y", delay_ns=60 * SECOND_NS)
    single.turn()
    single.session.empty_group("t", "g")
    single.turn()
    schedule = single.store.logs[1]
    schedule.cut(0)
    schedule.epoch, schedule.epochs = 2, [(2, 0)]
    for _ in range(2):
        single.restart()
        assert single.view().scheduled == 0
    single.publish("t", b"new", delay_ns=SECOND_NS)
    single.turn()
    single.wait(1)
    assert delivered(single) == [b"new"]


def test_what_the_journal_says_of_scheduled_messages_that_are_gone_is_not_said_of_those_that_come_next(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    schedule = single.store.logs[1]
    schedule.cut(0)
    single.restart()
    single.publish("t", b"new", delay_ns=60 * SECOND_NS)
    single.turn()
    lose_entries(single, journal_entries.TRUNCATED)
    assert schedule.end == 1
    del schedule.data[:], schedule.index[:]
    schedule.end = schedule.readable = 0
    single.restart()
    single.publish("t", b"newer", delay_ns=60 * SECOND_NS)
    single.turn()
    # This time the journal loses its end, and the schedule's log does not.
    entries = single.store.journal.entries
    assert entries.pop()[0] == journal_entries.SCHEDULED
    single.restart()
    assert single.view().scheduled == 0
    single.wait(2)
    assert delivered(single) == []


def test_a_message_that_a_group_was_emptied_of_stays_so_when_only_its_release_is_left_of_it(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"before", delay_ns=SECOND_NS)
    single.turn()
    single.session.empty_group("t", "g")
    single.turn()
    single.wait(1)
    lose_entries(single, journal_entries.RELEASED_RUNS)
    schedule = single.store.logs[1]
    schedule.cut(0)
    schedule.epoch, schedule.epochs = 2, [(2, 0)]
    single.restart()
    assert delivered(single) == []


def test_seed_72_a_schedule_that_a_start_could_not_read_is_not_forgotten_by_a_snapshot(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    schedule = single.store.logs[1]
    schedule.failed, schedule.end = "damaged", 0
    single.restart()
    assert single.view().scheduled == 1
    single.wait(2)
    single.broker.snapshot()
    schedule.failed, schedule.end = "", 1
    single.restart(cut=False)
    assert delivered(single) == [b"x"]


def test_a_snapshot_after_a_start_keeps_releases_that_may_be_lost_yet(released: World) -> None:
    released.restart()
    released.broker.snapshot()
    released.store.logs[0].cut(0)
    released.restart()
    assert delivered(released) == [b"x", b"y", b"z"]


def test_the_format_before_notes_is_read_as_it_was_meant(released: World) -> None:
    entries = released.store.journal.entries
    at = next(index for index, entry in enumerate(entries) if entry[0] == journal_entries.RELEASED_RUNS)
    entries[at] = journal_entries.RELEASED_FORM.pack(journal_entries.RELEASED, 0, 0) + run(0, 1, 2)
    log = released.store.logs[0]
    log.durable = 3  # so that nothing has a note
    released.restart()
    assert released.view().scheduled == 0
    log.durable = 0
    log.cut(0)
    released.restart()
    assert delivered(released) == [b"x", b"y", b"z"]


def test_a_release_says_what_it_is_made_of_and_keeps_times(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"late", delay_ns=2 * SECOND_NS)
    single.publish("t", b"soon", delay_ns=SECOND_NS)
    single.turn()
    published_ns = single.clock.wall_ns()
    single.wait(5)
    log = single.store.logs[0]
    assert [message.time_ns for message in log.messages()] == [published_ns, published_ns]
    assert [message.body for message in log.messages()] == [b"soon", b"late"]
    assert read_note(cast("bytes", log.data), 0) == run(1, 1, 0, 1)
