"""Tests of what readers of the log must be shown."""

import pytest
from tests.unit.testing.test_ledger import SECOND, Stage, body

from polymq.testing.log_book import LogBook, ReadBatch
from polymq.testing.promises import Book, PromiseBrokenError


def read(stage: Stage, *batches: tuple[int, int, tuple[int, ...]], epoch: int = 1) -> list[int]:
    """Show batches, each (epoch, base offset, serials), of partition 0."""
    shown = [ReadBatch(each, base, [body(serial) for serial in serials]) for each, base, serials in batches]
    found = stage.ledger.log_book.read("t", 0, shown, epoch=epoch, asked_ns=stage.clock.monotonic_ns())
    return [publication.serial for publication, _ in found]


def test_batches_follow_one_another() -> None:
    stage = Stage()
    stage.publish(0)
    stage.publish(1)
    assert read(stage, (1, 5, (0,)), (1, 6, (1,))) == [0, 1]
    for base in (5, 7):
        with pytest.raises(PromiseBrokenError, match="where 6 should be"):
            read(stage, (1, 5, (0,)), (1, base, (1,)))


def test_epochs_do_not_go_back_nor_beyond_what_is_said() -> None:
    stage = Stage()
    stage.publish(0)
    stage.publish(1)
    assert read(stage, (1, 0, (0,)), (2, 1, (1,)), epoch=2) == [0, 1]
    with pytest.raises(PromiseBrokenError, match="epoch 1 after 2"):
        read(stage, (2, 0, (0,)), (1, 1, (1,)), epoch=2)
    with pytest.raises(PromiseBrokenError, match="epoch 2 after 0, of 1"):
        read(stage, (2, 0, (0,)), epoch=1)


def test_an_offset_is_given_again_in_a_later_epoch_only() -> None:
    for epoch in (1, 2):
        stage = Stage()
        stage.publish(0)
        read(stage, (1, 0, (0,)))
        stage.lose_power()
        stage.publish(1)
        if epoch == 1:
            with pytest.raises(PromiseBrokenError, match="was message 0 in epoch 1, and is 1 in 1"):
                read(stage, (1, 0, (1,)), epoch=2)
        else:
            assert read(stage, (2, 0, (1,)), epoch=2) == [1]


def test_what_is_shown_is_what_was_published_when_it_is_due_and_whole() -> None:
    stage = Stage()
    stage.publish(0, 1)
    stage.publish(2, delay_ns=SECOND)
    stage.ledger.publishes(stage.publisher, "other", [(3, body(3))])
    assert read(stage, (1, 0, (0, 1))) == [0, 1]
    for serials, complaint in (
        ((0,), "torn"),
        ((1,), "torn"),
        ((2,), "before its time"),
        ((3,), "belongs to topic other"),
        ((9,), "nobody"),
    ):
        with pytest.raises(PromiseBrokenError, match=complaint):
            read(Stage() if serials == (9,) else stage, (1, 0 if serials == (0,) else sum(serials), serials))


def test_the_catalogue_agrees_with_the_batches() -> None:
    book = LogBook(Book(Stage().clock), Stage().ledger.management)
    book.check_epoch(0, [(1, 0), (3, 10)], [ReadBatch(1, 9, []), ReadBatch(3, 10, []), ReadBatch(4, 12, [])])
    with pytest.raises(PromiseBrokenError, match="the catalogue says 3"):
        book.check_epoch(0, [(1, 0), (3, 10)], [ReadBatch(2, 10, [])])


@pytest.mark.parametrize(("retention_ns", "complaint"), [(None, "is gone"), (2 * SECOND, "too early"), (SECOND, "")])
def test_a_log_loses_its_beginning_only_to_retention(retention_ns: int | None, complaint: str) -> None:
    stage = Stage()
    stage.ledger.log_book.retention_ns = retention_ns
    stage.publish(0)
    read(stage, (1, 0, (0,)))
    stage.clock.advance(SECOND)
    stage.ledger.log_book.check_start(0, 0)
    if complaint:
        with pytest.raises(PromiseBrokenError, match=complaint):
            stage.ledger.log_book.check_start(0, 1)
    else:
        stage.ledger.log_book.check_start(0, 1)


def test_retention_takes_only_what_its_channels_have_had() -> None:
    stage = Stage()
    stage.ledger.log_book.retention_ns = 0
    stage.publish(0)
    stage.publish(1)
    with pytest.raises(PromiseBrokenError, match="message 0 of t was acknowledged"):
        stage.ledger.check_log([(0, [(1, body(1))])])
    stage.deliver(stage.consumer(), 0)
    stage.ledger.check_log([(0, [(1, body(1))])])
