from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.cursor_group import NOT_COMMITTED
from polymq.core.patterns import EVERYTHING
from polymq.errors import Refusal, RefusalCode

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
