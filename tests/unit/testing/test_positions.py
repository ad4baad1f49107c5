"""Tests of what cursor groups are promised: each promise can be kept, and each can be broken and is then noticed."""

import pytest

from polymq.limits import OFFSET_BITS
from polymq.testing.clock import FakeClock
from polymq.testing.durability import Place
from polymq.testing.ledger import Ledger
from polymq.testing.positions import Commit, Positions, Spot
from polymq.testing.promises import PromiseBrokenError

SECOND = 1_000_000_000
SPOT = Spot("group", "t", 0)


def body(serial: int) -> bytes:
    return b"%08d" % serial


class Stage:
    """A ledger, and the positions of one group in one queue. The first process has run for 10 s."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ledger = Ledger(self.clock)
        self.positions = Positions(self.ledger)
        self.ledger.started()
        self.clock.advance(10 * SECOND)

    def commit(self, offset: int, *, confirmed: bool = True) -> Commit:
        commit = self.positions.commits_at(SPOT, offset)
        self.clock.advance(1)
        if confirmed:
            self.positions.confirmed(commit)
            self.clock.advance(1)
        return commit

    def told(self, offset: int | None) -> None:
        self.positions.told(SPOT, offset, asked_ns=self.clock.monotonic_ns())

    def kill(self, *, power_loss: bool = False) -> None:
        self.positions.stopped()
        self.ledger.stopped()
        if power_loss:
            self.positions.power_lost(self.ledger.power_lost())
        self.ledger.started()

    def publish(self, *serials: int, delay_ns: int = 0, topic: str = "t") -> None:
        for publication in self.ledger.announces("producer", topic, [(serial, body(serial)) for serial in serials], delay_ns=delay_ns):
            self.ledger.acknowledged(publication)

    def show(self, asked: int, *serials: int, first: int | None = None) -> None:
        at = asked if first is None else first
        self.positions.shown("group", "t", asked, [(0, offset, body(serial)) for offset, serial in enumerate(serials, at)])


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_group_goes_on_where_it_committed(stage: Stage) -> None:
    stage.told(None)
    stage.commit(5)
    stage.told(5)
    stage.kill()
    stage.told(5)
    assert stage.positions.commits == 1


@pytest.mark.parametrize("told", [4, 0, None])
def test_a_position_that_goes_back_after_a_kill_is_noticed(stage: Stage, told: int | None) -> None:
    stage.commit(5)
    stage.kill()
    with pytest.raises(PromiseBrokenError, match="had committed 5"):
        stage.told(told)


def test_a_position_that_nobody_asked_for_is_noticed(stage: Stage) -> None:
    with pytest.raises(PromiseBrokenError, match="never committed"):
        stage.told(1)
    stage.commit(5)
    with pytest.raises(PromiseBrokenError, match="5 at most"):
        stage.told(6)


@pytest.mark.parametrize("told", [5, 7])
def test_a_commit_without_an_answer_may_or_may_not_hold(stage: Stage, told: int) -> None:
    stage.commit(5)
    stage.commit(7, confirmed=False)
    stage.kill()
    stage.told(told)


def test_a_commit_that_is_confirmed_after_the_question_does_not_count_yet(stage: Stage) -> None:
    stage.commit(5)
    asked_ns = stage.clock.monotonic_ns()
    stage.clock.advance(1)
    stage.commit(9)
    stage.positions.told(SPOT, 5, asked_ns=asked_ns)


def test_a_commit_of_a_connection_that_has_ended_may_come_late_but_not_after_a_kill(stage: Stage) -> None:
    late = stage.commit(5, confirmed=False)
    stage.positions.abandoned(late)
    stage.commit(7)
    stage.told(5)
    stage.kill()
    stage.commit(8)
    with pytest.raises(PromiseBrokenError, match="had committed 8"):
        stage.told(5)


def test_a_loss_of_power_takes_only_what_was_not_synced(stage: Stage) -> None:
    stage.commit(5)
    stage.clock.advance(3 * SECOND)
    stage.commit(7)
    stage.kill(power_loss=True)
    stage.told(5)
    with pytest.raises(PromiseBrokenError, match="had committed 5"):
        stage.told(4)


def test_a_position_beyond_what_a_log_has_lost_may_go_back(stage: Stage) -> None:
    stage.commit(5)
    stage.ledger.failed(Place(0, "t"))
    stage.clock.advance(3 * SECOND)
    stage.kill(power_loss=True)
    stage.told(2)


def test_a_group_owes_what_it_was_not_shown(stage: Stage) -> None:
    stage.publish(1, 2, 3)
    stage.show(0, 1, 2)
    assert [each.serial for each in stage.positions.owed("group", "t")] == [3]
    assert len(stage.positions.owed("other", "t")) == 3
    assert stage.ledger.publications[1].ids == {0: stage.clock.monotonic_ns()}


def test_a_gap_is_noticed(stage: Stage) -> None:
    stage.publish(1, 2, 3)
    with pytest.raises(PromiseBrokenError, match="offset 1 is shown where 0 should be"):
        stage.show(0, 2, 3, first=1)


def test_two_partitions_in_one_answer_are_noticed(stage: Stage) -> None:
    with pytest.raises(PromiseBrokenError, match="in one answer"):
        stage.positions.check_run("t", 0, [(0, 0), (1, 1)])


def test_a_message_that_is_stored_twice_is_noticed(stage: Stage) -> None:
    stage.publish(1)
    stage.show(0, 1)
    with pytest.raises(PromiseBrokenError, match="stored twice"):
        stage.show(1, 1)


def test_an_offset_that_changes_is_noticed(stage: Stage) -> None:
    stage.publish(1, 2)
    stage.show(0, 1)
    with pytest.raises(PromiseBrokenError, match="offset 0 was message 1"):
        stage.show(0, 2)


def test_a_message_before_its_time_is_noticed(stage: Stage) -> None:
    stage.publish(1, delay_ns=SECOND)
    with pytest.raises(PromiseBrokenError, match="before its time"):
        stage.show(0, 1)
    stage.clock.advance(SECOND)
    stage.show(0, 1)


def test_a_message_of_another_topic_is_noticed(stage: Stage) -> None:
    stage.publish(1, topic="u")
    with pytest.raises(PromiseBrokenError, match="belongs to topic u"):
        stage.show(0, 1)


def test_an_acknowledged_message_that_is_not_in_the_log_is_noticed(stage: Stage) -> None:
    stage.publish(1, 2)
    with pytest.raises(PromiseBrokenError, match="is not in the log"):
        stage.ledger.check_log([(0, [(0, body(1))])], asked_ns=stage.clock.monotonic_ns() + 1)
    stage.ledger.check_log([(0, [(0, body(1)), (1, body(2))])], asked_ns=stage.clock.monotonic_ns() + 1)


def test_a_log_that_ends_before_what_was_committed_is_noticed(stage: Stage) -> None:
    with pytest.raises(PromiseBrokenError, match="the log is at 3"):
        stage.positions.moved(SPOT, 5, 3)
    stage.kill(power_loss=True)
    stage.positions.moved(SPOT, 5, 3)


def test_what_is_read_stays(stage: Stage) -> None:
    (publication,) = stage.ledger.announces("producer", "t", [(1, body(1))])
    assert publication.promised_ns is None
    assert stage.positions.read("t", 2, 7, body(1)) is publication
    assert publication.promised_ns is not None
    assert list(publication.ids) == [2 << OFFSET_BITS | 7]
