from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.cursor_group import NOT_COMMITTED
from polymq.core.patterns import EVERYTHING
from polymq.errors import Refusal, RefusalCode
from polymq.limits import OFFSET_BITS
from polymq.wire.records import Message

if TYPE_CHECKING:
    from .conftest import World


def test_a_consumer_reads_without_the_right_to_read_everything(single: World) -> None:
    single.publish("t", b"a")
    single.turn()
    only = Permission(frozenset({Action.SUBSCRIBE}), EVERYTHING, (EVERYTHING,))
    session = single.broker.session(Principal("x", permissions=(only,)))
    assert session.log_for("t", "g", 0).readable == 1
    assert session.cursor("t", "g", 0) == NOT_COMMITTED
    session.commit_offset("t", "g", 0, 1)
    assert session.cursor("t", "g", 0) == 1
    for ask in (lambda: session.log("t", 0), lambda: session.place_of(0)):
        with pytest.raises(Refusal) as refused:
            ask()
        assert refused.value.code is RefusalCode.FORBIDDEN


@pytest.mark.parametrize("partition", [-1, 1])
def test_partitions_that_are_not_there(single: World, partition: int) -> None:
    single.publish("t", b"a")
    with pytest.raises(Refusal, match="has partitions 0"):
        single.session.log_for("t", "g", partition)
    with pytest.raises(Refusal) as refused:
        single.session.cursor("u", "g", 0)
    assert refused.value.code is RefusalCode.TOPIC_NOT_FOUND


def test_what_waits_is_read_by_the_number_of_its_log_by_who_may_read_its_topic(single: World) -> None:
    single.session.create_topic("t")
    _ticket, message_id = single.session.publish_later("t", 0, [Message(b"x")], origin=2, delay_ns=10**12)
    number = message_id >> OFFSET_BITS
    single.turn()
    assert single.session.schedule_log(number).readable == 1
    single.restart()
    assert single.session.schedule_log(number).readable == 1
    only = Permission(frozenset({Action.SUBSCRIBE}), EVERYTHING, (EVERYTHING,))
    stranger, elsewhere = Principal("x", permissions=(only,)), Principal("x", "elsewhere")
    partition = single.broker.catalogue.topics["", "t"].partitions[0].number
    for session, asked, code in (
        (single.broker.session(stranger), number, RefusalCode.FORBIDDEN),
        (single.broker.session(elsewhere), number, RefusalCode.MESSAGE_NOT_FOUND),
        (single.session, partition, RefusalCode.MESSAGE_NOT_FOUND),
    ):
        with pytest.raises(Refusal) as refused:
            session.schedule_log(asked)
        assert refused.value.code is code
    single.session.delete_topic("t")
    with pytest.raises(Refusal):
        single.session.schedule_log(number)
