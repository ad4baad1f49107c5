"""Views are values: they do not follow what they describe."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from polymq.core import views
from polymq.core.views import LatencyView

if TYPE_CHECKING:
    from .conftest import World


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
