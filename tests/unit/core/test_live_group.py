from __future__ import annotations

import pytest

from polymq.core.group import GroupKind
from polymq.errors import Refusal

from .conftest import World, inbox


def test_live_groups_fan_out_what_is_new_and_leave_nothing(world: World) -> None:
    world.publish("t", b"old")
    world.turn()
    one = world.consume("t", "watch", 0, kind=GroupKind.LIVE)
    two = world.consume("t", "watch", 0, kind=GroupKind.LIVE)
    world.session.hold(two, held=True)
    for body in (b"a", b"b"):
        world.publish("t", body)
    world.turn()
    assert sorted(inbox(one).bodies) == [b"a", b"b"]
    assert inbox(two).bodies == []
    world.session.hold(two, held=False)
    world.turn()
    assert sorted(inbox(two).bodies) == [b"a", b"b"]
    with pytest.raises(Refusal):
        world.settle(one, inbox(one).ids[0])
    world.session.unsubscribe(one)
    world.session.unsubscribe(two)
    assert world.view().groups == ()


def test_emptying_goes_to_the_end_and_pausing_holds(single: World) -> None:
    watcher = single.consume("t", "watch", 0, kind=GroupKind.LIVE)
    single.session.pause_group("t", "watch", paused=True)
    single.publish("t", b"a")
    single.turn()
    assert inbox(watcher).bodies == []
    single.session.empty_group("t", "watch")
    single.session.pause_group("t", "watch", paused=False)
    single.publish("t", b"b")
    single.turn()
    assert inbox(watcher).bodies == [b"b"]


def test_a_watcher_that_fell_behind_the_log_goes_on_at_its_start(single: World) -> None:
    watcher = single.consume("t", "watch", 0, kind=GroupKind.LIVE)
    single.session.hold(watcher, held=True)
    single.publish("t", b"gone")
    single.publish("t", b"kept")
    single.turn()
    single.store.logs[0].start = 1
    single.session.hold(watcher, held=False)
    single.turn()
    assert inbox(watcher).bodies == [b"kept"]


def test_cold_data_is_waited_for(single: World) -> None:
    watcher = single.consume("t", "watch", 0, kind=GroupKind.LIVE)
    single.publish("t", b"a")
    single.store.logs[0].cold = True
    single.broker.tick()
    single.store.commit()
    assert single.broker.dispatch() == []
    single.store.logs[0].cold = False
    single.turn()
    assert inbox(watcher).bodies == [b"a"]
