"""Tests of what follows from managing topics and channels: each rule can be broken and is then noticed."""

import pytest
from tests.unit.testing.test_ledger import SECOND, Stage

from polymq.testing.durability import Place
from polymq.testing.management import Order, OrderKind
from polymq.testing.promises import Connection, PromiseBrokenError, Verb

EPHEMERAL = "passing#ephemeral"


class Managed(Stage):
    """A stage with an operator; time goes on between what happens."""

    def order(self, kind: OrderKind, channel: str = "", *, status: int = 200) -> None:
        self.answer(self.ask(kind, channel), status=status)

    def ask(self, kind: OrderKind, channel: str = "") -> Order:
        self.clock.advance(1)
        return self.ledger.management.ordered(kind, "t", channel)

    def answer(self, order: Order, *, status: int = 200) -> None:
        self.clock.advance(1)
        self.ledger.management.answered(order, status)
        self.clock.advance(1)

    def add(self, *serials: int, delay_ns: int = 0) -> None:
        self.clock.advance(1)
        self.publish(*serials, delay_ns=delay_ns)
        self.clock.advance(1)

    def refuses(self, consumer: Connection, serial: int, complaint: str) -> None:
        with pytest.raises(PromiseBrokenError, match=complaint):
            self.deliver(consumer, serial)


def test_a_paused_channel_gives_nothing_until_it_is_resumed() -> None:
    stage = Managed()
    stage.add(0, 1)
    consumer = stage.consumer()
    pause = stage.ask(OrderKind.PAUSE_CHANNEL, "c")
    stage.deliver(consumer, 0)
    stage.answer(pause)
    stage.refuses(consumer, 1, "the channel is paused")
    stage.kill()
    consumer = stage.consumer()
    stage.refuses(consumer, 1, "the channel is paused")
    stage.ask(OrderKind.UNPAUSE_CHANNEL, "c")
    stage.deliver(consumer, 1)


def test_a_pause_that_was_not_synced_may_be_undone() -> None:
    stage = Managed()
    stage.add(0)
    consumer = stage.consumer()
    stage.clock.advance(5 * SECOND)
    stage.order(OrderKind.PAUSE_CHANNEL, "c")
    stage.lose_power()
    consumer = stage.consumer()
    stage.deliver(consumer, 0)


def test_a_paused_topic_keeps_what_comes_after_that() -> None:
    stage = Managed()
    stage.add(0)
    consumer = stage.consumer()
    stage.order(OrderKind.PAUSE_TOPIC)
    stage.add(1)
    stage.deliver(consumer, 0)
    stage.refuses(consumer, 1, "the topic was paused")
    stage.ask(OrderKind.UNPAUSE_TOPIC)
    stage.deliver(consumer, 1)


def test_what_a_channel_was_emptied_of_neither_comes_nor_is_owed() -> None:
    stage = Managed()
    consumer = stage.consumer()
    stage.add(0)
    stage.add(1, delay_ns=SECOND)
    order = stage.ask(OrderKind.EMPTY_CHANNEL, "c")
    stage.add(2)
    stage.answer(order)
    stage.add(3)
    assert stage.owed() == [3]
    stage.clock.advance(2 * SECOND)
    stage.refuses(consumer, 0, "emptied or deleted")
    stage.refuses(consumer, 1, "emptied or deleted")
    stage.kill()
    consumer = stage.consumer()
    stage.refuses(consumer, 0, "emptied or deleted")
    stage.deliver(consumer, 2)
    assert stage.owed() == [2, 3]


def test_a_failed_order_leaves_nothing_certain_but_what_comes_later() -> None:
    stage = Managed()
    consumer = stage.consumer()
    stage.add(0)
    stage.order(OrderKind.EMPTY_CHANNEL, "c", status=503)
    stage.add(1)
    assert stage.owed() == [1]
    stage.deliver(consumer, 0)
    assert stage.owed() == [0, 1]


def test_an_order_that_was_never_answered_may_have_been_carried_out_until_its_process_ended() -> None:
    stage = Managed()
    stage.consumer()
    stage.ask(OrderKind.EMPTY_CHANNEL, "c")
    stage.add(0)
    stage.kill()
    stage.consumer()
    assert stage.owed() == []
    stage.add(1)
    assert stage.owed() == [1]


def test_a_deleted_channel_does_not_come_back() -> None:
    stage = Managed()
    consumer = stage.consumer()
    stage.add(0)
    stage.deliver(consumer, 0)
    stage.add(1, delay_ns=SECOND)
    stage.order(OrderKind.DELETE_CHANNEL, "c")
    stage.ledger.ended(consumer)
    consumer = stage.consumer()
    assert stage.owed() == [1]
    stage.refuses(consumer, 0, "emptied or deleted")
    stage.clock.advance(2 * SECOND)
    stage.deliver(consumer, 1)


def test_what_a_paused_topic_was_appended_since_a_channel_was_emptied_may_come_to_the_next_of_its_name() -> None:
    for paused in (True, False):
        stage = Managed()
        consumer = stage.consumer()
        stage.add(0)
        stage.add(1, delay_ns=SECOND)
        stage.order(OrderKind.EMPTY_CHANNEL, "c")
        if paused:
            stage.order(OrderKind.PAUSE_TOPIC)
        stage.clock.advance(2 * SECOND)
        stage.ledger.saw(stage.ledger.publications[1], 1, made_ns=stage.clock.monotonic_ns())
        stage.ledger.book.locate(stage.ledger.publications[1], 1)
        stage.order(OrderKind.DELETE_CHANNEL, "c")
        stage.ledger.ended(consumer)
        if paused:
            stage.order(OrderKind.UNPAUSE_TOPIC)
        consumer = stage.consumer()
        stage.clock.advance(1)
        stage.refuses(consumer, 0, "emptied or deleted")
        if paused:
            stage.deliver(consumer, 1)
        else:
            stage.refuses(consumer, 1, "emptied or deleted")


def test_a_deleted_topic_does_not_come_back() -> None:
    stage = Managed()
    consumer = stage.consumer()
    stage.add(0)
    stage.order(OrderKind.DELETE_TOPIC)
    stage.ledger.ended(consumer)
    consumer = stage.consumer()
    assert stage.owed() == []
    stage.refuses(consumer, 0, "topic t was deleted")
    stage.check_log()
    with pytest.raises(PromiseBrokenError, match="its topic was deleted"):
        stage.check_log(0)
    stage.add(1)
    assert stage.owed() == [1]


def test_a_deletion_that_was_not_synced_may_be_undone() -> None:
    stage = Managed()
    consumer = stage.consumer()
    stage.add(0)
    stage.clock.advance(5 * SECOND)
    stage.order(OrderKind.DELETE_TOPIC)
    stage.lose_power()
    consumer = stage.consumer()
    assert stage.owed() == []
    stage.clock.advance(1)
    stage.deliver(consumer, 0)
    assert stage.owed() == [0]


def test_emptying_a_topic_drops_what_it_kept_and_takes_nothing_from_its_channels() -> None:
    stage = Managed()
    consumer = stage.consumer()
    stage.add(0)
    stage.order(OrderKind.EMPTY_TOPIC)
    assert stage.owed() == [0]
    stage.order(OrderKind.PAUSE_TOPIC)
    stage.add(1)
    stage.order(OrderKind.EMPTY_TOPIC)
    stage.order(OrderKind.UNPAUSE_TOPIC)
    stage.add(2)
    assert stage.owed() == [0, 2]
    stage.refuses(consumer, 1, "its topic was emptied")


def test_an_ephemeral_channel_ends_with_its_process() -> None:
    stage = Managed()
    stage.consumer("lasting")
    consumer = stage.consumer("passing", channel=EPHEMERAL)
    stage.add(0)
    assert stage.owed() == [0, 0]
    stage.kill()
    stage.consumer("lasting")
    consumer = stage.consumer("passing", channel=EPHEMERAL)
    assert stage.owed() == [0]
    stage.clock.advance(1)
    stage.refuses(consumer, 0, "emptied or deleted")


def test_an_ephemeral_channel_may_end_with_its_last_consumer() -> None:
    stage = Managed()
    stage.consumer("lasting")
    consumer = stage.consumer("passing", channel=EPHEMERAL)
    stage.add(0)
    stage.deliver(consumer, 0)
    stage.settle(consumer, Verb.FINISH, 0)
    stage.ledger.ended(consumer)
    stage.clock.advance(1)
    consumer = stage.consumer("passing", channel=EPHEMERAL)
    assert stage.owed() == [0]
    stage.add(1)
    assert stage.owed() == [0, 1, 1]


def test_an_ephemeral_topic_is_made_anew_after_its_last_consumer_and_not_before() -> None:
    for fatal in (True, False):
        stage = Managed()
        consumer = stage.connect("consumer")
        stage.ledger.subscribes(consumer, EPHEMERAL, EPHEMERAL)
        stage.ledger.responded(consumer)
        stage.ledger.failed(Place(0, EPHEMERAL), alone=True)
        stage.clock.advance(1)
        if fatal:
            stage.ledger.refused(consumer, None, 0)
        stage.clock.advance(1)
        stage.ledger.publishes(stage.publisher, EPHEMERAL, [(0, b"00000000")])
        if fatal:
            stage.ledger.responded(stage.publisher)
        else:
            with pytest.raises(PromiseBrokenError, match="cannot be written or synced"):
                stage.ledger.responded(stage.publisher)


def test_messages_of_an_ephemeral_topic_end_with_their_process() -> None:
    stage = Managed()
    consumer = stage.connect("consumer")
    stage.ledger.subscribes(consumer, EPHEMERAL, EPHEMERAL)
    stage.ledger.responded(consumer)
    stage.ledger.readies(consumer, 10)
    stage.ledger.publishes(stage.publisher, EPHEMERAL, [(0, b"00000000")])
    stage.ledger.responded(stage.publisher)
    assert stage.owed() == []
    stage.kill()
    consumer = stage.connect("consumer")
    stage.ledger.subscribes(consumer, EPHEMERAL, EPHEMERAL)
    stage.clock.advance(1)
    stage.refuses(consumer, 0, "was deleted before")
