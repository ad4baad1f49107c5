"""Whole batches over HTTP: from where, up to where, how much, how long to wait, and what can go wrong."""

from __future__ import annotations

import itertools
import json

import pytest

from polymq import limits
from tests.unit.gateways.nsq.http_world import parse

from .door_world import DoorWorld, offsets_and_bodies

MS = 1_000_000


@pytest.fixture
def world() -> DoorWorld:
    """Topic t: offsets 0 … 9 in batches of 3, 3, 3 and 1."""
    world = DoorWorld()
    for first in (0, 3, 6):
        world.publish("t", *(b"%d" % offset for offset in range(first, first + 3)))
    world.publish("t", b"9")
    world.turn()
    return world


def records(world: DoorWorld, query: str) -> list[tuple[int, bytes]]:
    answer = world.get(f"/v1/topics/t/0/records?{query}")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/vnd.polymq.batches")
    return offsets_and_bodies(answer.body)


def offsets(world: DoorWorld, query: str) -> list[int]:
    return [offset for offset, _ in records(world, query)]


def test_an_answer_says_whose_it_is(world: DoorWorld) -> None:
    assert world.get("/v1/topics/t/0/records?offset=0").headers["Polymq-Node"] == "n1"


def test_everything(world: DoorWorld) -> None:
    assert records(world, "offset=0") == [(offset, b"%d" % offset) for offset in range(10)]


def test_batches_are_whole(world: DoorWorld) -> None:
    assert offsets(world, "offset=4") == list(range(3, 10))
    assert offsets(world, "offset=3&end=4") == [3, 4, 5]
    assert offsets(world, "offset=3&end=6") == [3, 4, 5]
    assert offsets(world, "offset=3&end=7") == list(range(3, 9))


def test_size_is_kept_but_for_the_first_batch(world: DoorWorld) -> None:
    (_, _, one), (_, _, two), *_ = world.log().index[1:]
    size_bytes = two - one
    assert offsets(world, "offset=0&max_bytes=1") == [0, 1, 2]
    assert offsets(world, "offset=0&max_bytes=0") == [0, 1, 2]
    assert offsets(world, f"offset=0&max_bytes={2 * size_bytes}") == list(range(6))
    assert offsets(world, f"offset=0&max_bytes={2 * size_bytes - 1}") == [0, 1, 2]


def test_headers(world: DoorWorld) -> None:
    headers = world.get("/v1/topics/t/0/records?offset=0").headers
    assert [headers[f"Polymq-{name}"] for name in ("Epoch", "Start", "Readable", "Number")] == ["1", "0", "10", str(world.log().number)]


def test_end_of_the_log_is_empty(world: DoorWorld) -> None:
    assert records(world, "offset=10") == []
    assert records(world, "offset=5&end=5") == []


def test_unreadable_records_are_not_shown(world: DoorWorld) -> None:
    world.publish("t", b"staged")
    assert offsets(world, "offset=9") == [9]


@pytest.mark.parametrize("offset", [1, 11])
def test_out_of_range(world: DoorWorld, offset: int) -> None:
    world.log().start = 3
    answer = world.json(f"/v1/topics/t/0/records?offset={offset}", 416)
    assert (answer["error"], answer["start"], answer["readable"]) == ("OFFSET_OUT_OF_RANGE", 3, 10)


@pytest.mark.parametrize("query", ["", "offset=-1", "offset=x", "offset=0&max_bytes=1e6", "offset=%zz", "offset=9999999999999999999"])
def test_wrong_arguments(world: DoorWorld, query: str) -> None:
    assert world.json(f"/v1/topics/t/0/records?{query}", 400)["error"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("path", ["/v1/topics/nope/0/records?offset=0", "/v1/topics/t/1/records?offset=0"])
def test_unknown_topic_or_partition(world: DoorWorld, path: str) -> None:
    assert world.json(path, 404)["error"] == "TOPIC_NOT_FOUND"


def test_waiting_ends_with_a_record(world: DoorWorld) -> None:
    wire = world.wire("/v1/topics/t/0/records?offset=10&wait_ms=1000")
    wire.wait(500 * MS)
    assert wire.output == b""
    world.publish("t", b"new")
    world.turn()
    wire.wait(limits.HTTP_POLL_INTERVAL_NS)
    assert wire.output.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Polymq-Readable: 11\r\n" in wire.output
    body = wire.output.partition(b"\r\n\r\n")[2]
    assert offsets_and_bodies(body) == [(10, b"new")]


def test_waiting_ends_with_the_time(world: DoorWorld) -> None:
    wire = world.wire("/v1/topics/t/0/records?offset=10&wait_ms=1000")
    wire.wait(999 * MS)
    assert wire.output == b""
    wire.wait(1 * MS)
    assert b"Content-Length: 0\r\n" in wire.output


def test_nobody_waits_longer_than_the_limit(world: DoorWorld) -> None:
    wire = world.wire(f"/v1/topics/t/0/records?offset=10&wait_ms={10**9}")
    wire.wait(limits.HTTP_WAIT_NS_MAX)
    assert wire.output != b""


def test_nobody_waits_for_what_is_not_wanted(world: DoorWorld) -> None:
    wire = world.wire("/v1/topics/t/0/records?offset=10&end=10&wait_ms=1000")
    assert wire.output != b""


def test_nobody_waits_at_damage(world: DoorWorld) -> None:
    world.log().failed = "damaged"
    assert world.wire("/v1/topics/t/0/records?offset=10&wait_ms=1000").output != b""


def test_topic_that_goes_while_somebody_waits(world: DoorWorld) -> None:
    wire = world.wire("/v1/topics/t/0/records?offset=10&wait_ms=1000")
    world.session.delete_topic("t")
    wire.wait(limits.HTTP_POLL_INTERVAL_NS)
    assert wire.output.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert json.loads(wire.output.partition(b"\r\n\r\n")[2])["error"] == "TOPIC_NOT_FOUND"


def test_data_from_the_disk_is_waited_for(world: DoorWorld) -> None:
    world.log().reads_from_disk = 3
    wire = world.wire("/v1/topics/t/0/records?offset=0")
    for _ in range(3):
        assert wire.paused
        wire.wait(limits.HTTP_POLL_INTERVAL_NS)
        wire.drain()
    assert wire.output.endswith(b"\r\n0\r\n\r\n")
    assert world.log().asked == 4


@pytest.fixture
def large() -> DoorWorld:
    """Topic t: 20 batches of 100 kB."""
    world = DoorWorld()
    for index in range(20):
        world.publish("t", bytes([index]) * 100_000)
    world.turn()
    return world


def test_large_answers_come_in_chunks_as_the_output_drains(large: DoorWorld) -> None:
    wire = large.wire("/v1/topics/t/0/records?offset=0")
    sizes = [len(wire.output)]
    while wire.wants_writable:
        wire.step()
        sizes.append(len(wire.output))
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) <= limits.HTTP_CHUNK_SIZE_BYTES_MAX + 16
    assert len(steps) >= 9
    assert not wire.paused


def test_batches_larger_than_a_chunk_are_sent_in_several() -> None:
    world = DoorWorld()
    world.publish("t", b"a" * 1_000_000, b"b" * 1_000_000)
    world.turn()
    wire = world.wire("/v1/topics/t/0/records?offset=0&max_bytes=1")
    assert len(wire.output) < limits.HTTP_CHUNK_SIZE_BYTES_MAX + 1000
    wire.drain()
    assert wire.log.count("WantWritable") == 8
    assert world.log().asked == 1
    assert [offset for offset, _ in offsets_and_bodies(parse(wire.output).body)] == [0, 1]


def test_published_while_being_read_is_left_for_the_next_request(large: DoorWorld) -> None:
    wire = large.wire("/v1/topics/t/0/records?offset=18")
    large.publish("t", b"new")
    large.turn()
    wire.drain()
    assert b"new" not in wire.output


def test_answer_that_cannot_be_completed_lacks_its_end(large: DoorWorld) -> None:
    wire = large.wire("/v1/topics/t/0/records?offset=0")
    large.log().start = 10
    wire.drain()
    assert not wire.output.endswith(b"\r\n0\r\n\r\n")
    assert "dropped" in (wire.closed or "")


def test_topic_that_goes_while_it_is_being_read(large: DoorWorld) -> None:
    wire = large.wire("/v1/topics/t/0/records?offset=0")
    large.session.delete_topic("t")
    large.publish("t", b"another topic of that name")
    wire.drain()
    assert not wire.output.endswith(b"\r\n0\r\n\r\n")
    assert wire.closed is not None


def test_damage_ends_the_answer(large: DoorWorld) -> None:
    wire = large.wire("/v1/topics/t/0/records?offset=0")
    log = large.log()
    log.readable = log.index[5][0]
    wire.drain()
    assert wire.output.endswith(b"\r\n0\r\n\r\n")


def test_all_partitions() -> None:
    world = DoorWorld(partitions=2)
    for index in range(4):
        world.publish("t", b"%d" % index)
    world.turn()
    bodies = [body for partition in (0, 1) for _, body in offsets_and_bodies(world.get(f"/v1/topics/t/{partition}/records?offset=0").body)]
    assert sorted(bodies) == [b"0", b"1", b"2", b"3"]
