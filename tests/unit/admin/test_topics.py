"""The catalogue over HTTP."""

from __future__ import annotations

import pytest

from polymq import limits

from .door_world import DoorWorld

SECOND_NS = 1_000_000_000


@pytest.fixture
def world() -> DoorWorld:
    return DoorWorld()


def test_topics(world: DoorWorld) -> None:
    assert world.json("/v1/topics") == {"topics": []}
    world.publish("b", b"x", b"y")
    world.publish("a", b"x")
    topics = world.json("/v1/topics")["topics"]
    assert [topic["name"] for topic in topics] == ["a", "b"]
    assert topics[1] == {
        "node": "n1",
        "namespace": "",
        "name": "b",
        "partitions": [
            {"partition": 0, "number": world.view("b").partitions[0].number, "epoch": 1, "epochs": [[1, 0]], "start": 0, "end": 2, "readable": 0,
             "size_bytes": world.view("b").partitions[0].size_bytes}
        ],
    }  # fmt: skip
    assert world.json("/v1/topics/b") == topics[1]
    assert world.json("/v1/node") == {"node": "n1"}


def test_namespace(world: DoorWorld) -> None:
    world.publish("a", b"x")
    assert len(world.json("/v1/topics?namespace=")["topics"]) == 1
    assert world.json("/v1/topics?namespace=other") == {"topics": []}
    assert world.json("/v1/topics?%zz", 400)["error"] == "INVALID_ARGUMENT"


def test_many_topics_are_made_in_pieces(world: DoorWorld) -> None:
    for index in range(1000):
        world.session.create_topic(f"t{index:04d}")
    wire = world.wire("/v1/topics")
    wire.drain()
    assert wire.log.count("WantWritable") > 2
    assert len(world.json("/v1/topics")["topics"]) == 1000


def test_unknown_topic(world: DoorWorld) -> None:
    assert world.json("/v1/topics/nope", 404) == {"error": "TOPIC_NOT_FOUND", "message": "topic not found"}


def test_offset_by_time(world: DoorWorld) -> None:
    world.publish("t", b"a")
    world.clock.now_ns += SECOND_NS
    middle_ns = world.clock.wall_ns()
    world.publish("t", b"b")
    assert world.json("/v1/topics/t/0/offset?time_ns=0") == {"offset": 0}
    assert world.json(f"/v1/topics/t/0/offset?time_ns={middle_ns}") == {"offset": 1}
    assert world.json(f"/v1/topics/t/0/offset?time_ns={middle_ns + SECOND_NS}") == {"offset": 2}


def test_offset_by_time_from_the_disk_is_asked_for_again(world: DoorWorld) -> None:
    world.publish("t", b"a")
    world.log().reads_from_disk = 2
    wire = world.wire("/v1/topics/t/0/offset?time_ns=0")
    for _ in range(2):
        assert wire.paused
        assert wire.output == b""
        wire.wait(limits.HTTP_POLL_INTERVAL_NS)
    assert wire.output.endswith(b'{"offset":0}\n')


@pytest.mark.parametrize("query", ["", "time_ns=", "time_ns=now", "time_ns=-1", f"time_ns={1 << 63}"])
def test_wrong_times(world: DoorWorld, query: str) -> None:
    world.publish("t", b"a")
    assert world.json(f"/v1/topics/t/0/offset?{query}", 400)["error"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("path", ["/v1/topics/t/1/offset?time_ns=0", "/v1/topics/nope/0/offset?time_ns=0"])
def test_unknown_partition(world: DoorWorld, path: str) -> None:
    world.publish("t", b"a")
    assert world.json(path, 404)["error"] == "TOPIC_NOT_FOUND"


def test_partition_that_is_no_number(world: DoorWorld) -> None:
    world.publish("t", b"a")
    assert world.json("/v1/topics/t/x/offset?time_ns=0", 400)["error"] == "INVALID_ARGUMENT"


def test_names_are_decoded(world: DoorWorld) -> None:
    world.publish("t#x é", b"a")
    assert world.json("/v1/topics/t%23x%20%C3%A9")["name"] == "t#x é"
