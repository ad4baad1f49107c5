from __future__ import annotations

import pytest

from polymq import limits
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


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_commit_ahead_is_kept_until_a_restart_finds_the_log_shorter(world: World, *, snapshot: bool) -> None:
    world.publish("t", b"a", b"b")
    world.turn()
    partition = next(p.partition for p in world.view().partitions if p.end)
    for offset in (9, limits.OFFSET_MAX):
        world.session.commit_offset("t", "reader", partition, offset, ahead=True)
        assert world.session.committed("t", "reader")[partition] == offset
    with pytest.raises(Refusal):
        world.session.commit_offset("t", "reader", partition, limits.OFFSET_MAX + 1, ahead=True)
    world.turn()
    if snapshot:
        world.broker.snapshot()
    world.restart()
    end = next(p.end for p in world.view().partitions if p.partition == partition)
    assert world.session.committed("t", "reader")[partition] == end


def test_nothing_is_handed_out_and_consumers_hear_of_the_end(world: World) -> None:
    reader = world.consume("t", "reader", 5, kind=GroupKind.CURSOR)
    world.publish("t", b"x")
    world.turn()
    assert inbox(reader).bodies == []
    world.session.empty_group("t", "reader")
    assert sum(world.session.committed("t", "reader")) == 1
    world.session.delete_topic("t")
    assert inbox(reader).reason == "topic deleted"
