from __future__ import annotations

import pytest

from polymq.errors import Refusal, RefusalCode, StoreFull

from .conftest import SECOND_NS, World, inbox


def test_scheduled_messages_are_released_in_the_order_of_their_due_times(single: World) -> None:
    consumer = single.consume("t", "g", 5)
    single.publish("t", b"second", delay_ns=2 * SECOND_NS)
    single.publish("t", b"first", delay_ns=SECOND_NS)
    single.turn()
    assert single.view().scheduled == 2
    single.wait(5)
    assert inbox(consumer).bodies == [b"first", b"second"]
    assert (single.view().scheduled, single.view().message_count) == (0, 2)


def test_many_due_at_once_are_released_over_several_steps(single: World) -> None:
    consumer = single.consume("t", "g", 2500)
    bodies = [str(index).encode() for index in range(1500)]
    single.publish("t", *bodies, delay_ns=SECOND_NS)
    single.turn()
    single.wait(1)
    for _ in range(4):
        single.wait(0.01)
    assert inbox(consumer).bodies == bodies


def test_a_release_waits_for_its_own_log_to_be_readable(single: World) -> None:
    consumer = single.consume("t", "g", 5)
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    log = single.store.logs[1]
    log.cold = True
    single.wait(1)
    assert inbox(consumer).got == []
    log.cold = False
    single.wait(0.01)
    assert inbox(consumer).bodies == [b"x"]


def test_no_room_is_a_refusal_and_leaves_nothing_behind(single: World) -> None:
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()

    def full(*_arguments: object, **_names: object) -> None:
        raise StoreFull("no room")

    single.store.logs[1].append = full  # type: ignore[method-assign, assignment]
    with pytest.raises(Refusal) as refused:
        single.publish("t", b"y", delay_ns=SECOND_NS)
    assert refused.value.code is RefusalCode.STORE_FULL
    assert single.view().scheduled == 1


def test_messages_keep_the_time_at_which_they_were_published(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    published_ns = single.clock.wall_ns()
    single.wait(1)
    (message,) = single.store.logs[0].messages()
    assert message.time_ns == published_ns


def test_a_deleted_topic_takes_its_schedule_along(single: World) -> None:
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    single.session.delete_topic("t")
    single.wait(2)
    assert single.store.logs == {}
