"""Views are values: they do not follow what they describe."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from polymq.core import views
from polymq.core.views import LatencyView

if TYPE_CHECKING:
    from .conftest import World


SECOND_NS = 1_000_000_000


def test_every_view_is_frozen() -> None:
    for name in views.__all__:
        view = getattr(views, name)
        assert dataclasses.is_dataclass(view)
        assert vars(view)["__dataclass_params__"].frozen
        assert "__slots__" in vars(view)


def test_a_view_does_not_follow_its_topic(single: World) -> None:
    single.publish("t", b"x")
    before = single.view()
    single.publish("t", b"y")
    assert (before.message_count, single.view().message_count) == (1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.paused = True  # type: ignore[misc]


def test_no_latency_is_no_quantiles() -> None:
    assert LatencyView() == LatencyView(0, ())


def test_counts_of_messages_never_go_back(single: World) -> None:
    single.publish("t", b"a", delay_ns=60 * SECOND_NS)
    single.publish("t", b"b")
    single.turn()
    single.session.empty_topic("t")
    assert (single.view().scheduled, single.view().message_count) == (0, 2)
    single.session.create_group("t", "g")
    single.publish("t", b"c", delay_ns=60 * SECOND_NS)
    single.turn()
    single.session.empty_group("t", "g")
    (group,) = single.view().groups
    assert (group.scheduled, group.message_count) == (0, 1)
    single.wait(61)
    (group,) = single.view().groups
    assert (group.depth, group.message_count, single.view().message_count) == (0, 1, 3)


def test_what_a_paused_topic_drops_never_was_a_groups(world: World) -> None:
    world.session.create_topic("t")
    world.session.create_group("t", "g")
    world.session.pause_topic("t", paused=True)
    for body in (b"a", b"b", b"c", b"d", b"e"):
        world.publish("t", body)
        world.turn()
    world.session.empty_topic("t")
    world.session.pause_topic("t", paused=False)
    world.publish("t", b"f")
    world.turn()
    (group,) = world.view().groups
    assert (group.depth, group.message_count, world.view().message_count) == (1, 1, 6)
