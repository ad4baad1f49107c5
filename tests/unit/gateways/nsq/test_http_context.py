"""What nsqd's HTTP endpoints know."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from polymq.gateways.nsq.http_context import default_node_id
from tests.unit.gateways.nsq.http_world import NsqWorld


@pytest.mark.parametrize(("host_name", "node_id"), [("vm", 617)])
def test_node_ids_are_nsqds(host_name: str, node_id: int) -> None:
    assert default_node_id(host_name) == node_id


def test_health_is_that_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    world = NsqWorld()
    assert world.context.health_text() == "OK"
    monkeypatch.setattr(world.store, "health", lambda: ["a", "b"])
    assert world.context.health_text() == "NOK - a; b"


def test_where_the_log_is() -> None:
    world = NsqWorld()
    assert json.loads(world.get("/log").body) == {"node": "", "broadcast_address": "127.0.0.1", "port": 0}
    world.context.node = replace(world.context.node, log_name="n1")
    world.context.log_port = lambda: 4171
    assert json.loads(world.get("/log").body) == {"node": "n1", "broadcast_address": "127.0.0.1", "port": 4171}
