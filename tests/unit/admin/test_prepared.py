from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from polymq import limits
from polymq.wire.batch import BatchHeader, Message, encode_message, seal
from tests.unit.gateways.http.harness import Wire
from tests.unit.gateways.nsq.http_world import Answer, parse

from .door_world import DoorWorld

if TYPE_CHECKING:
    from collections.abc import Sequence


def batch_of(bodies: Sequence[bytes], **header: Any) -> bytes:
    extras = header.pop("extras", ())
    batch = bytearray(80) + b"".join(encode_message(Message(body, extras=extras)) for body in bodies)
    seal(batch, 0, len(batch), BatchHeader(count=len(bodies), **header))
    return bytes(batch)


def framed(frames: object, *batches: bytes) -> bytes:
    head = json.dumps({"frames": frames}).encode()
    return struct.pack("<I", len(head)) + head + b"".join(batches)


class Durable(DoorWorld):
    """What is written is durable."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        write = self.store.commit

        def commit() -> None:
            write()
            for log in self.store.logs.values():
                log.durable = log.end

        self.store.commit = commit  # type: ignore[method-assign]


def post(world: DoorWorld, path: str, body: object) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    wire = Wire(world.router, world.door, world.clock)
    wire.send(f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    for _ in range(20):
        world.turn()
        wire.settle()
        if wire.output:
            break
        wire.wait(2_000_000)
    return parse(wire.output)


def test_what_is_prepared_is_seen_once_it_is_committed() -> None:
    world = Durable()
    answer = post(world, "/v1/prepared/q/parts/p?request=0", framed([["t", -1, 0], ["u", 0, 0]], batch_of([b"a", b"b"]), batch_of([b"c"])))
    assert (answer.status, answer.text) == (200, "{}\n")
    assert world.json("/v1/topics/t")["partitions"][0]["end"] == 0
    for _ in range(2):
        answer = post(world, "/v1/prepared/q/commit", {"batch": 0, "parts": [["p", 1, 3]]})
        assert (answer.status, json.loads(answer.text)) == (200, {"state": "committed"})
        assert [world.json(f"/v1/topics/{topic}")["partitions"][0]["end"] for topic in "tu"] == [2, 1]


def test_topics_are_made_and_parts_dropped() -> None:
    world = Durable(partitions=3)
    answer = post(world, "/v1/prepared/topics", {"topics": ["t", "ü"]})
    assert json.loads(answer.text) == {"topics": {"t": 3, "ü": 3}}
    post(world, "/v1/prepared/q/parts/p?request=0", framed([["t", -1, 0]], batch_of([b"a"])))
    assert post(world, "/v1/prepared/q/abort", {"parts": ["p"]}).status == 200
    answer = post(world, "/v1/prepared/q/commit", {"batch": 0, "parts": [["p", 1, 1]]})
    assert (answer.status, json.loads(answer.text)["error"]) == (404, "MESSAGE_NOT_FOUND")


def test_a_commit_that_takes_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_WAIT_NS_MAX", 1)
    world = Durable()
    post(world, "/v1/prepared/q/parts/p?request=0", framed([["t", -1, 0]], batch_of([b"a"])))
    answer = post(world, "/v1/prepared/q/commit", {"batch": 0, "parts": [["p", 1, 1]]})
    assert answer.status in {200, 202}


broken = bytearray(batch_of([b"a"]))
broken[-1] ^= 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"abc",
        struct.pack("<I", 1 << 31),
        struct.pack("<I", 2) + b"{}",
        struct.pack("<I", 2) + b"[]",
        struct.pack("<I", 2) + b"xx",
        framed("x"),
        framed([["t", -1, 0]]),
        framed([["t", -1, 0]], bytes(broken)),
        framed([["t", -1, 0]], batch_of([b"a"]), b"more"),
        framed([["t", -2, 0]], batch_of([b"a"])),
        framed([["t", 256, 0]], batch_of([b"a"])),
        framed([["t", True, 0]], batch_of([b"a"])),
        framed([["t", 0, 4]], batch_of([b"a"])),
        framed([[1, 0, 0]], batch_of([b"a"])),
        framed([["t", 0]], batch_of([b"a"])),
        framed([["t", -1, 0]], batch_of([b"a"], base_time_ns=5)),
        framed([["t", -1, 0]], batch_of([b"a"], attributes=1)),
        framed([["t", -1, 0]], batch_of([b"a"], extras=((2, b"x"),))),
    ],
)
def test_what_makes_no_sense_is_refused(body: bytes) -> None:
    world = Durable()
    answer = post(world, "/v1/prepared/q/parts/p?request=0", body)
    assert (answer.status, json.loads(answer.text)["error"]) == (400, "INVALID_ARGUMENT")
    assert not world.store.logs


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        [],
        {},
        {"batch": -1, "parts": []},
        {"batch": True, "parts": []},
        {"batch": 1},
        {"batch": 1, "parts": [["p"]]},
        {"batch": 1, "parts": [[1, 1, 1]]},
        {"batch": 1, "parts": [["p", "1", 1]]},
    ],
)
def test_a_commit_that_makes_no_sense_is_refused(body: object) -> None:
    assert post(Durable(), "/v1/prepared/q/commit", body).status == 400


def test_there_are_limits_to_requests() -> None:
    world = Durable()
    most = limits.PREPARED_PARTS_PER_SINK_MAX
    assert post(world, "/v1/prepared/q/abort", {"parts": ["p"] * (most + 1)}).status == 413
    most = limits.PREPARED_FRAMES_PER_REQUEST_MAX
    assert post(world, "/v1/prepared/q/parts/p?request=0", framed([["t", -1, 0]] * (most + 1))).status == 413
    head = b" " * limits.PREPARED_HEAD_SIZE_BYTES_MAX
    assert post(world, "/v1/prepared/q/parts/p?request=0", struct.pack("<I", len(head)) + head).status == 400
    assert post(world, "/v1/prepared/q/parts/p?request=0", bytes(limits.PREPARED_REQUEST_SIZE_BYTES_MAX + 1)).status == 413
    assert post(world, "/v1/prepared/q/commit", bytes(limits.PREPARED_COMMIT_SIZE_BYTES_MAX + 1)).status == 413
