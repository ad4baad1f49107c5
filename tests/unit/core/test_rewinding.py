from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.errors import Refusal, RefusalCode

from .conftest import inbox

if TYPE_CHECKING:
    from .conftest import World


def test_one_partition_of_several_is_set_back_and_the_others_are_not(world: World) -> None:
    consumer = world.consume("t", "g", 100)
    world.publish("t", b"x")
    world.publish("t", b"y")
    world.turn()
    world.settle(consumer, *inbox(consumer).ids)
    before = len(inbox(consumer).got)
    index = len(world.store.logs) - 1
    assert world.session.replay("t", "g", offset=0, partition=index)
    world.turn()
    assert len(inbox(consumer).got) - before == world.store.logs[index].end


def test_nothing_is_changed_where_one_log_has_failed(world: World) -> None:
    consumer = world.consume("t", "g", 100)
    world.publish("t", b"x")
    world.turn()
    list(world.store.logs.values())[-1].failed = "broken"
    with pytest.raises(Refusal) as refused:
        world.session.replay("t", "g", time_ns=0)
    assert refused.value.code is RefusalCode.STORE_FAILED
    world.turn()
    assert len(inbox(consumer).got) == 1


def test_a_partition_that_is_not_there_is_refused(world: World) -> None:
    world.consume("t", "g", 1)
    with pytest.raises(Refusal) as refused:
        world.session.replay("t", "g", offset=0, partition=99)
    assert refused.value.code is RefusalCode.TOPIC_NOT_FOUND
