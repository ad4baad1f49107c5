"""Tests of what is stored again on purpose: at least as often as confirmed, at most as often as asked, never before its time."""

import pytest

from polymq.testing.clock import FakeClock
from polymq.testing.copies import Copies
from polymq.testing.ledger import Ledger
from polymq.testing.promises import PromiseBrokenError

SECOND = 1_000_000_000
RETRY = "%RETRY%group"


def body(serial: int) -> bytes:
    return b"%08d" % serial


class Stage:
    """Two messages in the queue `q`, one in another topic, and what is asked to be stored again."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ledger = Ledger(self.clock)
        self.ledger.started()
        self.clock.advance(10 * SECOND)
        self.copies = Copies(self.ledger)
        for topic in ("q", RETRY):
            self.copies.add_topic(topic)
        self.publish("q", 1, 2)
        self.publish("t", 3)

    def publish(self, topic: str, *serials: int) -> None:
        for publication in self.ledger.announces("producer", topic, [(serial, body(serial)) for serial in serials]):
            self.ledger.acknowledged(publication)

    def ask(self, serial: int, topic: str, *, delay_ns: int = 0, confirmed: bool = True) -> None:
        copy = self.copies.asks(serial, topic, delay_ns=delay_ns)
        if confirmed:
            self.copies.confirmed(copy)

    def check(self, queue: list[int], retry: list[int] | None = None) -> None:
        found = [("q", 0, list(enumerate(map(body, queue)))), (RETRY, 1, list(enumerate(map(body, retry or []))))]
        self.copies.check_all(found)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_was_published_there_is_there_once(stage: Stage) -> None:
    stage.check([1, 2])
    with pytest.raises(PromiseBrokenError, match="message 1 is in q 2 times, where 1 can be"):
        stage.check([1, 2, 1])


def test_a_message_that_is_lost_is_noticed(stage: Stage) -> None:
    with pytest.raises(PromiseBrokenError, match="message 2 should be in q 1 times, and is 0 times"):
        stage.check([1])


def test_the_topic_is_judged_nowhere_else(stage: Stage) -> None:
    stage.ledger.check_log([(2, [(0, body(3))])], asked_ns=stage.clock.monotonic_ns() + 1)


@pytest.mark.parametrize("queue", [[1, 2], [1, 2, 1]])
def test_a_copy_without_an_answer_may_be_there(stage: Stage, queue: list[int]) -> None:
    stage.ask(1, "q", confirmed=False)
    stage.check(queue)


def test_a_copy_that_was_confirmed_must_be_there(stage: Stage) -> None:
    stage.ask(3, RETRY)
    assert [each.serial for each in stage.copies.owed()] == [3]
    with pytest.raises(PromiseBrokenError, match="message 3 should be in %RETRY%group 1 times"):
        stage.check([1, 2])
    stage.check([1, 2], [3])
    assert not stage.copies.owed()


def test_a_copy_too_many_is_noticed(stage: Stage) -> None:
    stage.ask(3, RETRY)
    with pytest.raises(PromiseBrokenError, match="2 times, where 1 can be"):
        stage.check([1, 2], [3, 3])


def test_a_copy_that_nobody_asked_for_is_noticed(stage: Stage) -> None:
    with pytest.raises(PromiseBrokenError, match="belongs to topic t"):
        stage.copies.saw(RETRY, 1, 0, body(3))


def test_a_copy_before_its_time_is_noticed(stage: Stage) -> None:
    stage.ask(3, RETRY, delay_ns=SECOND)
    stage.clock.advance(SECOND - 1)
    with pytest.raises(PromiseBrokenError, match="1 times, where 0 can be by now"):
        stage.copies.saw(RETRY, 1, 0, body(3))
    stage.clock.advance(1)
    stage.copies.saw(RETRY, 1, 0, body(3))


def test_bytes_that_nobody_published_are_noticed(stage: Stage) -> None:
    with pytest.raises(PromiseBrokenError, match="nobody published"):
        stage.copies.saw("q", 0, 0, b"00000001 and more")


def test_an_offset_that_changes_is_noticed(stage: Stage) -> None:
    stage.copies.saw("q", 0, 0, body(1))
    with pytest.raises(PromiseBrokenError, match="was message 1, and is 2"):
        stage.copies.saw("q", 0, 0, body(2))


def test_what_was_shown_must_stay_where_it_was(stage: Stage) -> None:
    stage.ask(1, "q", confirmed=False)
    stage.copies.saw("q", 0, 2, body(1))
    with pytest.raises(PromiseBrokenError, match="was shown at 0000000000000002"):
        stage.check([1, 2])


def test_a_gap_is_noticed(stage: Stage) -> None:
    with pytest.raises(PromiseBrokenError, match="offset 2 is where 1 should be"):
        stage.copies.check_log("q", 0, [(0, body(1)), (2, body(2))])


def test_a_loss_of_power_takes_only_what_was_not_synced(stage: Stage) -> None:
    stage.ask(3, RETRY)
    stage.clock.advance(3 * SECOND)
    stage.ask(2, RETRY)
    stage.ledger.stopped()
    stage.copies.power_lost(stage.ledger.power_lost())
    assert [each.serial for each in stage.copies.owed()] == [3]


@pytest.mark.parametrize(
    ("shown", "most", "wrong"),
    [
        ([(0, 1), (1, 2)], 1, ""),
        ([(0, 1), (1, 2), (2, 1)], 1, "shown message 1 2 times, 1 at most"),
        ([(0, 1), (1, 2), (2, 1)], 2, ""),
        ([(1, 2)], 1, "message 1 is in q, and its readers"),
    ],
    ids=["once", "twice", "longer", "never"],
)
def test_readers_of_a_queue_are_shown_each_message_so_often(stage: Stage, shown: list[tuple[int, int]], most: int, wrong: str) -> None:
    stage.ask(1, "q")
    records = [(offset, body(serial)) for offset, serial in enumerate([1, 2, 1])]
    seen = [(offset, body(serial)) for offset, serial in shown]
    if not wrong:
        stage.copies.check_shown("q", 0, records, seen, lambda _serial: most)
        return
    with pytest.raises(PromiseBrokenError, match=wrong):
        stage.copies.check_shown("q", 0, records, seen, lambda _serial: most)
