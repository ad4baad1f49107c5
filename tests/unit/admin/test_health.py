"""Health and statistics over HTTP."""

from __future__ import annotations

import pytest

from polymq.core.statistics import Registry

from .door_world import DoorWorld


@pytest.fixture
def world() -> DoorWorld:
    return DoorWorld()


def test_health(world: DoorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.json("/healthz") == {"health": "ok", "problems": []}
    monkeypatch.setattr(world.store, "health", lambda: ["partition 1 is damaged"])
    assert world.json("/healthz", 503) == {"health": "failing", "problems": ["partition 1 is damaged"]}


def test_statistics(world: DoorWorld) -> None:
    world.publish("t", b"abc")
    families = {family["name"]: family for family in world.json("/v1/stats")["families"]}
    published = families["polymq_topic_messages_total"]
    assert (published["kind"], published["samples"]) == ("counter", [{"labels": {"namespace": "", "topic": "t"}, "value": 1}])
    assert len(families) == len(list(world.broker.statistics))


def test_no_statistics_at_all(world: DoorWorld) -> None:
    world.door = type(world.door)(world.session, world.clock, Registry())
    assert world.json("/v1/stats") == {"families": []}
