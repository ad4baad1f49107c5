"""Tests of where messages are known to lie, and of when that is not known any more."""

import pytest
from tests.unit.testing.test_ledger import LOG, SECOND, Stage

from polymq.testing.durability import JOURNAL
from polymq.testing.promises import PromiseBrokenError


def test_an_id_that_was_in_doubt_may_be_given_again_however_late_it_was_seen() -> None:
    for serial, again in ((1, True), (0, False)):
        stage = Stage()
        stage.publish(0)
        stage.clock.advance(2 * SECOND)
        stage.publish(1)
        stage.ledger.failed(LOG)
        stage.clock.advance(SECOND)
        consumer = stage.consumer()
        stage.deliver(consumer, 0)
        stage.deliver(consumer, 1)
        stage.clock.advance(5 * SECOND)
        stage.lose_power()
        stage.publish(2)
        consumer = stage.consumer()
        if again:
            stage.deliver(consumer, 2, offset=serial)
        else:
            with pytest.raises(PromiseBrokenError, match="have one id"):
                stage.deliver(consumer, 2, offset=serial)


def test_ids_may_be_given_again_where_the_journal_lost_the_topic() -> None:
    stage = Stage()
    stage.publish(0)
    stage.deliver(stage.consumer(), 0)
    stage.ledger.failed(JOURNAL)
    stage.clock.advance(5 * SECOND)
    stage.lose_power()
    stage.publish(1)
    stage.deliver(stage.consumer(), 1, offset=0)
