from __future__ import annotations

import pytest

from polymq.core.group import GroupKind
from polymq.errors import Refusal, RefusalCode

from .conftest import World, inbox


def test_cursor_groups_commit_and_keep_their_place(world: World) -> None:
    world.publish("t", b"a", b"b")
    world.turn()
    partition = next(p.partition for p in world.view().partitions if p.end)
    world.session.commit_offset("t", "reader", partition, 1)
    assert world.session.committed("t", "reader")[partition] == 1
    world.turn()
    for snapshot in (False, True):
        if snapshot:
            world.broker.snapshot()
        world.restart()
        assert world.session.committed("t", "reader")[partition] == 1
    with pytest.raises(Refusal) as refused:
        world.session.commit_offset("t", "reader", partition, 3)
    assert refused.value.code is RefusalCode.OFFSET_OUT_OF_RANGE
    world.session.create_group("t", "work")
    with pytest.raises(Refusal):
        world.session.commit_offset("t", "work", partition, 0)


def test_nothing_is_handed_out_and_consumers_hear_of_the_end(world: World) -> None:
    reader = world.consume("t", "reader", 5, kind=GroupKind.CURSOR)
    world.publish("t", b"x")
    world.turn()
    assert inbox(reader).bodies == []
    world.session.empty_group("t", "reader")
    assert sum(world.session.committed("t", "reader")) == 1
    world.session.delete_topic("t")
    assert inbox(reader).reason == "topic deleted"
