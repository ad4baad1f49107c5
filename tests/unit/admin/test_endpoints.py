"""The table that the server mounts."""

from __future__ import annotations

from polymq.admin.endpoints import ENDPOINTS, all_statistics
from polymq.core.access import Action
from polymq.wire.exchange import Request

from .door_world import DoorWorld


def test_no_endpoint_is_there_twice() -> None:
    assert len({(method, path) for method, path, _ in ENDPOINTS}) == len(ENDPOINTS)


def test_every_endpoint_is_reached() -> None:
    world = DoorWorld()
    world.publish("t", b"x")
    world.turn()
    queries = {"offset": "?time_ns=0", "records": "?offset=0"}
    for method, pattern, _ in ENDPOINTS:
        assert method == "GET"
        path = pattern.replace("{name}", "t").replace("{partition}", "0")
        assert world.get(path + queries.get(path.rpartition("/")[2], "")).status == 200


def test_what_shows_something_of_every_topic() -> None:
    assert all_statistics(Request("GET", "/v1/stats")) is Action.READ
    assert all_statistics(Request("GET", "/metrics")) is Action.READ
    assert all_statistics(Request("GET", "/v1/topics/a")) is None
