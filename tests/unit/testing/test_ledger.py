"""Tests of the ledger: each promise can be kept, and each can be broken and is then noticed."""

import pytest

from polymq.limits import OFFSET_BITS
from polymq.testing.clock import FakeClock
from polymq.testing.durability import JOURNAL, Place
from polymq.testing.ledger import Ledger
from polymq.testing.promises import Connection, PromiseBrokenError, Verb

MS = 1_000_000
LOG = Place(0, "t")
SECOND = 1_000_000_000


def body(serial: int) -> bytes:
    return b"%08d" % serial


def message_id(offset: int, partition: int = 0) -> int:
    return partition << OFFSET_BITS | offset


class Stage:
    """A ledger, a publisher and consumers, with short words for what they do. The first process has run for 10 s."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ledger = Ledger(self.clock)
        self.start()
        self.clock.advance(10 * SECOND)

    def start(self) -> None:
        self.ledger.started()
        self.publisher = self.connect(f"publisher{self.ledger.life}")

    def connect(self, name: str) -> Connection:
        connection = Connection(name)
        self.ledger.connected(connection)
        return connection

    def consumer(self, name: str = "consumer", ready: int = 100, channel: str = "c") -> Connection:
        connection = self.connect(name)
        self.ledger.subscribes(connection, "t", channel)
        self.ledger.responded(connection)
        self.ledger.readies(connection, ready)
        return connection

    def publish(self, *serials: int, delay_ns: int = 0, sync: bool = False, answered: bool = True) -> None:
        self.ledger.publishes(self.publisher, "t", [(n, body(n)) for n in serials], delay_ns=delay_ns, sync=sync)
        if answered:
            self.ledger.responded(self.publisher)

    def deliver(
        self, consumer: Connection, serial: int, *, offset: int | None = None, attempts: int = 1, made_ns: int | None = None
    ) -> None:
        at = message_id(serial if offset is None else offset)
        made_ns = self.clock.monotonic_ns() if made_ns is None else made_ns
        self.ledger.delivered(consumer, at, attempts, body(serial), made_ns=made_ns)

    def settle(self, consumer: Connection, verb: Verb, serial: int, *, delay_ns: int = 0, confirm: bool = True) -> None:
        self.ledger.settles(consumer, verb, serial, message_id(serial), delay_ns=delay_ns)
        if confirm:
            self.confirm(consumer)

    def confirm(self, consumer: Connection) -> None:
        self.ledger.provokes(consumer)
        self.ledger.refused(consumer, Verb.FINISH, -1)

    def kill(self) -> None:
        self.ledger.stopped()
        self.start()

    def lose_power(self) -> None:
        self.ledger.stopped()
        self.ledger.power_lost()
        self.start()

    def owed(self) -> list[int]:
        return [publication.serial for _, publication in self.ledger.owed()]

    def check_log(self, *serials: int) -> None:
        self.ledger.check_log([(0, [(offset, body(serial)) for offset, serial in enumerate(serials)])])


def test_what_is_acknowledged_is_owed_until_it_is_settled() -> None:
    stage = Stage()
    consumer = stage.consumer()
    stage.publish(0)
    assert stage.owed() == [0]
    stage.deliver(consumer, 0)
    assert stage.owed() == [0]
    stage.settle(consumer, Verb.FINISH, 0)
    assert stage.owed() == []


def test_what_is_not_acknowledged_is_not_owed_until_it_was_read() -> None:
    stage = Stage()
    consumer = stage.consumer()
    stage.publish(0, answered=False)
    assert stage.owed() == []
    stage.deliver(consumer, 0)
    assert stage.owed() == [0]


def test_what_is_retired_is_not_owed_any_more() -> None:
    stage = Stage()
    stage.consumer()
    stage.publish(0)
    stage.ledger.retire()
    assert stage.owed() == []
    stage.publish(1)
    assert stage.owed() == [1]


def test_only_the_first_channel_is_owed_what_was_there_before() -> None:
    stage = Stage()
    stage.publish(0)
    stage.consumer("a", channel="first")
    assert stage.owed() == [0]
    stage.consumer("b", channel="second")
    assert stage.owed() == [0]
    stage.clock.advance(1)
    stage.publish(1)
    assert stage.owed() == [0, 1, 1]


def test_what_is_settled_may_not_come_back() -> None:
    stage = Stage()
    stage.publish(0)
    consumer = stage.consumer()
    stage.deliver(consumer, 0)
    stage.settle(consumer, Verb.FINISH, 0)
    stage.kill()
    with pytest.raises(PromiseBrokenError, match="settled and came back"):
        stage.deliver(stage.consumer(), 0)


def test_a_settle_that_was_not_confirmed_may_be_lost_by_a_kill() -> None:
    stage = Stage()
    stage.publish(0)
    consumer = stage.consumer()
    stage.deliver(consumer, 0)
    stage.settle(consumer, Verb.FINISH, 0, confirm=False)
    assert stage.owed() == []
    stage.kill()
    stage.deliver(stage.consumer(), 0)
    assert stage.owed() == [0]


def test_a_settle_that_was_refused_does_not_count() -> None:
    stage = Stage()
    stage.publish(0)
    consumer = stage.consumer()
    stage.deliver(consumer, 0)
    stage.settle(consumer, Verb.FINISH, 0, confirm=False)
    stage.ledger.refused(consumer, Verb.FINISH, message_id(0))
    assert stage.owed() == [0]


def test_a_refused_fin_says_nothing_about_that_of_another() -> None:
    stage = Stage()
    stage.publish(0)
    one, two = stage.consumer("one"), stage.consumer("two")
    stage.deliver(one, 0)
    stage.settle(two, Verb.FINISH, 0, confirm=False)
    stage.settle(one, Verb.FINISH, 0, confirm=False)
    stage.ledger.ended(one)
    stage.ledger.refused(two, Verb.FINISH, message_id(0))
    assert stage.owed() == []
    stage.deliver(two, 0, attempts=2)
    assert stage.owed() == [0]


def test_redelivery_between_a_fin_and_its_confirmation() -> None:
    stage = Stage()
    stage.publish(0)
    one, two = stage.consumer("one"), stage.consumer("two")
    stage.deliver(one, 0)
    stage.settle(one, Verb.FINISH, 0, confirm=False)
    stage.deliver(two, 0, attempts=2)
    with pytest.raises(PromiseBrokenError, match="again after FIN"):
        stage.confirm(one)


def test_a_power_loss_excuses_the_last_second_only() -> None:
    stage = Stage()
    consumer = stage.consumer()
    stage.publish(0)
    stage.clock.advance(600 * MS)
    stage.publish(1)
    stage.clock.advance(600 * MS)
    stage.lose_power()
    assert stage.owed() == [0]
    stage.check_log(0)
    with pytest.raises(PromiseBrokenError, match="not in the log"):
        stage.check_log(1)
    assert consumer.open is False


def test_a_power_loss_excuses_nothing_that_was_synced_first() -> None:
    stage = Stage()
    stage.consumer()
    stage.clock.advance(2 * SECOND)
    stage.publish(0, sync=True)
    stage.lose_power()
    assert stage.owed() == [0]


def test_a_kill_excuses_nothing() -> None:
    stage = Stage()
    stage.consumer()
    stage.publish(0)
    stage.kill()
    assert stage.owed() == [0]


def test_time_without_a_process_does_not_sync() -> None:
    stage = Stage()
    stage.consumer()
    stage.clock.advance(2 * SECOND)
    stage.publish(0)
    stage.ledger.stopped()
    stage.clock.advance(60 * SECOND)
    stage.ledger.power_lost()
    assert stage.owed() == []


def test_a_process_that_found_unsynced_work_has_a_second_for_it() -> None:
    stage = Stage()
    stage.consumer()
    stage.clock.advance(2 * SECOND)
    stage.publish(0)
    stage.kill()
    stage.clock.advance(900 * MS)
    stage.lose_power()
    assert stage.owed() == []


def test_after_a_clean_stop_nothing_is_unsynced() -> None:
    stage = Stage()
    stage.consumer()
    stage.clock.advance(2 * SECOND)
    stage.publish(0)
    stage.ledger.stopped(clean=True)
    stage.ledger.power_lost()
    assert stage.owed() == [0]


def test_a_failed_sync_leaves_in_doubt_what_it_should_have_covered_until_it_is_written_again() -> None:
    for lasts, owed in ((SECOND - 1, [0]), (2 * SECOND, [0, 1])):
        stage = Stage()
        stage.consumer()
        stage.publish(0)
        stage.clock.advance(2 * SECOND)
        stage.publish(1)
        stage.ledger.failed(LOG)
        stage.clock.advance(5 * SECOND)
        stage.kill()
        assert stage.owed() == [0, 1]
        stage.clock.advance(lasts)
        stage.lose_power()
        assert stage.owed() == owed


def test_a_failed_sync_of_the_journal_leaves_settles_in_doubt() -> None:
    stage = Stage()
    consumer = stage.consumer()
    stage.publish(0)
    stage.deliver(consumer, 0)
    stage.settle(consumer, Verb.FINISH, 0)
    stage.ledger.failed(JOURNAL)
    stage.clock.advance(5 * SECOND)
    stage.lose_power()
    stage.deliver(stage.consumer(), 0)


def test_a_failed_sync_of_the_journal_excuses_no_message_that_was_not_deferred() -> None:
    stage = Stage()
    stage.consumer()
    stage.clock.advance(2 * SECOND)
    stage.publish(0)
    stage.publish(1, delay_ns=SECOND)
    stage.ledger.failed(JOURNAL)
    stage.clock.advance(2 * SECOND)
    stage.lose_power()
    assert stage.owed() == [0]


def test_after_a_failed_sync_of_the_journal_nothing_is_acknowledged() -> None:
    stage = Stage()
    stage.publish(0)
    consumer = stage.consumer()
    stage.deliver(consumer, 0)
    stage.ledger.failed(JOURNAL)
    stage.clock.advance(1)
    with pytest.raises(PromiseBrokenError, match="the journal cannot be written"):
        stage.publish(1)
    with pytest.raises(PromiseBrokenError, match="the journal cannot be written"):
        stage.settle(consumer, Verb.FINISH, 0)


def test_a_failed_sync_of_one_partition_excuses_nothing_of_another() -> None:
    stage = Stage()
    stage.publish(0)
    stage.publish(1)
    consumer = stage.consumer()
    stage.deliver(consumer, 0)
    stage.ledger.delivered(consumer, message_id(0, partition=1), 1, body(1), made_ns=stage.clock.monotonic_ns())
    stage.ledger.failed(LOG)
    stage.clock.advance(2 * SECOND)
    stage.lose_power()
    assert stage.owed() == [1]


def test_a_failed_write_excuses_nothing() -> None:
    stage = Stage()
    stage.consumer()
    stage.publish(0)
    stage.ledger.failed(LOG, "write")
    stage.clock.advance(2 * SECOND)
    stage.lose_power()
    assert stage.owed() == [0]


def test_nothing_follows_close_wait() -> None:
    stage = Stage()
    stage.publish(0)
    consumer = stage.consumer()
    stage.ledger.leaves(consumer)
    stage.ledger.responded(consumer)
    with pytest.raises(PromiseBrokenError, match="after CLOSE_WAIT"):
        stage.deliver(consumer, 0)


def test_a_deferred_message_is_not_late_when_nothing_is_in_its_way() -> None:
    for waited, complaint in ((SECOND, False), (4 * SECOND, True)):
        stage = Stage()
        consumer = stage.consumer()
        stage.publish(0, delay_ns=SECOND)
        stage.ledger.deliveries.prompt_since_ns = stage.clock.monotonic_ns()
        stage.clock.advance(waited)
        if complaint:
            with pytest.raises(PromiseBrokenError, match="after its time"):
                stage.deliver(consumer, 0)
        else:
            stage.deliver(consumer, 0)


def test_a_power_loss_excuses_no_second_release() -> None:
    stage = Stage()
    stage.publish(0, delay_ns=SECOND)
    stage.clock.advance(1500 * MS)
    consumer = stage.consumer()
    stage.deliver(consumer, 0)
    stage.clock.advance(100 * MS)
    stage.lose_power()
    consumer = stage.consumer()
    stage.deliver(consumer, 0)
    with pytest.raises(PromiseBrokenError, match="stored twice"):
        stage.deliver(consumer, 0, offset=7)


def test_a_failed_sync_of_one_topic_excuses_nothing_of_another() -> None:
    stage = Stage()
    stage.consumer()
    stage.publish(0)
    stage.clock.advance(2 * SECOND)
    stage.ledger.failed(Place(1, "other"))
    stage.lose_power()
    assert stage.owed() == [0]


def test_a_topic_that_cannot_be_synced_takes_no_publishes() -> None:
    stage = Stage()
    stage.ledger.failed(LOG, alone=True)
    stage.publish(0)
    stage.clock.advance(1)
    stage.publish(1, delay_ns=SECOND)
    with pytest.raises(PromiseBrokenError, match="cannot be written or synced"):
        stage.publish(2)
    stage.kill()
    stage.publish(3)


def test_a_process_does_not_append_behind_a_later_one() -> None:
    stage = Stage()
    stage.publish(0)
    stage.kill()
    stage.publish(1)
    stage.check_log(0, 1)
    with pytest.raises(PromiseBrokenError, match="of a later process"):
        stage.check_log(1, 0)


def test_two_consumers_may_not_hold_one_message() -> None:
    stage = Stage()
    stage.publish(0)
    stage.deliver(stage.consumer("one"), 0)
    stage.clock.advance(59 * SECOND)
    with pytest.raises(PromiseBrokenError, match="while one holds it"):
        stage.deliver(stage.consumer("two"), 0, attempts=2)


@pytest.mark.parametrize("how", ["timeout", "requeue", "disconnect"])
def test_a_lease_ends(how: str) -> None:
    stage = Stage()
    stage.publish(0)
    one = stage.consumer("one")
    stage.deliver(one, 0)
    if how == "timeout":
        stage.clock.advance(60 * SECOND)
    elif how == "requeue":
        stage.settle(one, Verb.REQUEUE, 0, confirm=False)
    else:
        stage.ledger.ended(one)
    stage.deliver(stage.consumer("two"), 0, attempts=2)


def test_a_confirmed_touch_starts_the_lease_again() -> None:
    stage = Stage()
    stage.publish(0)
    one = stage.consumer("one")
    stage.deliver(one, 0)
    stage.clock.advance(30 * SECOND)
    stage.settle(one, Verb.TOUCH, 0)
    stage.clock.advance(40 * SECOND)
    with pytest.raises(PromiseBrokenError, match="while one holds it"):
        stage.deliver(stage.consumer("two"), 0, attempts=2)


def test_a_frame_that_was_held_up_proves_nothing() -> None:
    stage = Stage()
    stage.publish(0)
    one, two = stage.consumer("one"), stage.consumer("two")
    made_ns = stage.clock.monotonic_ns()
    stage.clock.advance(60 * SECOND)
    stage.deliver(two, 0, attempts=2 - 1)
    stage.clock.advance(1)
    stage.deliver(one, 0, made_ns=made_ns)


def test_nobody_is_given_more_than_it_asked_for() -> None:
    stage = Stage()
    consumer = stage.consumer(ready=2)
    stage.publish(0, 1, 2)
    stage.deliver(consumer, 0)
    stage.deliver(consumer, 1)
    with pytest.raises(PromiseBrokenError, match="holds 3 messages and asked for 2"):
        stage.deliver(consumer, 2)


def test_a_smaller_ready_count_holds_once_it_is_confirmed() -> None:
    stage = Stage()
    consumer = stage.consumer(ready=2)
    stage.publish(0, 1, 2)
    stage.ledger.readies(consumer, 1)
    stage.deliver(consumer, 0)
    stage.deliver(consumer, 1)
    stage.settle(consumer, Verb.FINISH, 0)
    with pytest.raises(PromiseBrokenError, match="holds 2 messages and asked for 1"):
        stage.deliver(consumer, 2)


@pytest.mark.parametrize(("attempts", "complaint"), [(1, "went from attempt 1 to 1"), (9, "at attempt 9")])
def test_attempts_count_deliveries(attempts: int, complaint: str) -> None:
    stage = Stage()
    stage.publish(0)
    consumer = stage.consumer()
    stage.deliver(consumer, 0)
    stage.settle(consumer, Verb.REQUEUE, 0)
    with pytest.raises(PromiseBrokenError, match=complaint):
        stage.deliver(consumer, 0, attempts=attempts)


def test_a_deferred_publish_is_not_delivered_early() -> None:
    stage = Stage()
    stage.publish(0, delay_ns=SECOND)
    consumer = stage.consumer()
    stage.clock.advance(SECOND - 1)
    with pytest.raises(PromiseBrokenError, match="before its time"):
        stage.deliver(consumer, 0)
    stage.clock.advance(1)
    stage.deliver(consumer, 0)


def test_what_is_deferred_is_waited_for() -> None:
    stage = Stage()
    stage.publish(0, delay_ns=SECOND)
    assert stage.ledger.falls_due_later(MS)
    stage.clock.advance(SECOND)
    assert stage.ledger.falls_due_later(MS)
    stage.clock.advance(MS)
    assert not stage.ledger.falls_due_later(MS)


def test_a_deferred_requeue_is_not_delivered_early() -> None:
    stage = Stage()
    stage.publish(0)
    consumer = stage.consumer()
    stage.deliver(consumer, 0)
    stage.settle(consumer, Verb.REQUEUE, 0, delay_ns=SECOND)
    stage.kill()
    with pytest.raises(PromiseBrokenError, match="before its time"):
        stage.deliver(stage.consumer(), 0, attempts=2)


def test_first_deliveries_come_in_order() -> None:
    stage = Stage()
    stage.publish(0)
    stage.publish(1)
    consumer = stage.consumer()
    stage.deliver(consumer, 1)
    with pytest.raises(PromiseBrokenError, match="after a later one"):
        stage.deliver(consumer, 0)


def test_settling_for_somebody_else_has_to_be_refused() -> None:
    stage = Stage()
    stage.publish(0)
    one, two = stage.consumer("one"), stage.consumer("two")
    stage.deliver(one, 0)
    with pytest.raises(PromiseBrokenError, match="never had"):
        stage.settle(two, Verb.FINISH, 0)


def test_one_message_has_one_id() -> None:
    stage = Stage()
    stage.publish(0)
    stage.deliver(stage.consumer("a", channel="a"), 0)
    with pytest.raises(PromiseBrokenError, match="stored twice"):
        stage.deliver(stage.consumer("b", channel="b"), 0, offset=5)


def test_one_id_is_one_message() -> None:
    stage = Stage()
    stage.publish(0, 1)
    consumer = stage.consumer()
    stage.deliver(consumer, 0)
    with pytest.raises(PromiseBrokenError, match="have one id"):
        stage.deliver(consumer, 1, offset=0)


def test_an_id_may_be_given_again_after_a_power_loss() -> None:
    stage = Stage()
    stage.publish(0)
    stage.deliver(stage.consumer(), 0)
    stage.lose_power()
    stage.publish(1)
    stage.deliver(stage.consumer(), 1, offset=0)


def test_bytes_must_be_those_that_were_published() -> None:
    stage = Stage()
    consumer = stage.consumer()
    with pytest.raises(PromiseBrokenError, match="nobody published"):
        stage.ledger.delivered(consumer, 0, 1, b"garbage", made_ns=0)


def test_answers_may_not_be_left_out() -> None:
    stage = Stage()
    consumer = stage.consumer()
    stage.ledger.asks(consumer)
    stage.ledger.provokes(consumer)
    with pytest.raises(PromiseBrokenError, match="left out"):
        stage.ledger.refused(consumer, Verb.FINISH, -1)


def test_the_log_has_no_gaps_no_strangers_and_no_repetitions() -> None:
    stage = Stage()
    stage.publish(0)
    stage.publish(1)
    stage.check_log(0, 1)
    with pytest.raises(PromiseBrokenError, match="offset 2 is where 1"):
        stage.ledger.check_log([(0, [(0, body(0)), (2, body(1))])])
    with pytest.raises(PromiseBrokenError, match="twice"):
        stage.check_log(0, 1, 0)
    with pytest.raises(PromiseBrokenError, match="nobody published"):
        stage.check_log(0, 7)
    with pytest.raises(PromiseBrokenError, match="behind a later one"):
        stage.check_log(1, 0)


def test_a_multi_publish_is_whole_or_absent() -> None:
    stage = Stage()
    stage.publish(0, 1, answered=False)
    stage.publish(2, answered=False)
    stage.check_log()
    stage.check_log(0, 1, 2)
    stage.check_log(2)
    for torn in ((0,), (1,), (0, 2)):
        with pytest.raises(PromiseBrokenError, match="torn"):
            stage.check_log(*torn)
