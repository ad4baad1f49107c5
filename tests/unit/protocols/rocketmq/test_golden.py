"""Frames of real peers are read, and written again as they came: see SOURCES.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from polymq.protocols.rocketmq import bodies, relaxed_json
from polymq.protocols.rocketmq.batches import join_batch, split_batch
from polymq.protocols.rocketmq.codes import RequestCode
from polymq.protocols.rocketmq.header import Header, decode_binary, decode_json, encode_binary, encode_json
from polymq.protocols.rocketmq.names import tag_hash
from polymq.protocols.rocketmq.properties import parse
from polymq.protocols.rocketmq.stored import decode_stored
from tests.unit.protocols.rocketmq.frames import one, raw_frame, run

LINES = [line.split("\t") for line in Path(__file__).with_name("golden_frames.txt").read_text(encoding="utf-8").splitlines()]
FRAMES = [(peer, direction, kind == "1", text, bytes.fromhex(body)) for peer, direction, kind, text, body in LINES]
Frame = tuple[str, str, bool, str, bytes]
STANDARD = re.compile(r',"serializeTypeCurrentRPC":"JSON"')


def header_of(text: str) -> Header:
    """Make a header of the proxy's words for a binary one."""
    found: dict[str, Any] = json.loads(text)
    return Header(
        found["code"],
        found["opaque"],
        found["flag"],
        {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.get("extFields", {}).items()},
        found.get("remark") or None,
        found["language"] if isinstance(found["language"], int) else 0,
        found["version"],
    )


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: f"{frame[0]}{frame[1]}{frame[3][:20]}")
def test_every_frame_is_read(frame: Frame) -> None:
    _, direction, binary, text, body = frame
    expected = header_of(text)
    raw = encode_binary(expected) if binary else text.encode()
    said = one(raw_frame(raw, body, int(binary)), every_request=True)
    request = (expected.code, expected.opaque, expected.flag, expected.ext, body, binary, expected.remark, 0, expected.version)
    assert said == request
    assert one(raw_frame(raw, body, int(binary)), scanning=False, every_request=True) == request
    kind = run(raw_frame(raw, body, int(binary)))[0][0]
    is_transaction = expected.ext.get("f") == "4"
    assert (kind == "SEND") == (direction == ">>" and expected.code == 310 and not is_transaction and "DELAY\x01" not in expected.ext["i"])


@pytest.mark.parametrize(
    "frame", [frame for frame in FRAMES if frame[0] != "ali-ons-3.12.0" or frame[1] == "<<"], ids=lambda frame: frame[0]
)
def test_headers_are_written_as_they_came(frame: Frame) -> None:
    _, _, binary, text, _ = frame
    expected = header_of(text)
    if binary:
        assert decode_binary(encode_binary(expected)) == expected
        return
    known = STANDARD.sub("", text)
    if '"extFields"' not in known:
        # Ours are always there: Java's client does not look whether they are.
        known = known.replace(',"flag"', ',"extFields":{},"flag"', 1)
    assert encode_json(decode_json(text.encode())).decode() == known


def bodies_of(code: int, direction: str = ">>") -> list[bytes]:
    found = [body for _, way, _, text, body in FRAMES if way == direction and json.loads(text)["code"] == code and body]
    assert found
    return found


def test_heartbeats() -> None:
    for body in bodies_of(RequestCode.HEART_BEAT):
        beat = bodies.parse_heartbeat(body)
        assert "@" in beat.client_id
        for consumer in beat.consumers:
            for subscription in consumer.subscriptions:
                assert subscription.codes == tuple(map(tag_hash, subscription.tags))
                again = bodies.subscription_of(subscription.topic, subscription.expression, subscription.version)
                assert (set(again.tags), set(again.codes)) == (set(subscription.tags), set(subscription.codes))
        assert bodies.parse_heartbeat(bodies.encode_heartbeat(beat)) == beat
    groups = {consumer.group for body in bodies_of(RequestCode.HEART_BEAT) for consumer in bodies.parse_heartbeat(body).consumers}
    assert "CG1" in groups


def test_locks() -> None:
    for body in bodies_of(RequestCode.LOCK_BATCH_MQ):
        lock = bodies.parse_lock_body(body)
        assert lock.group
        assert lock.queues
        assert bodies.parse_lock_body(bodies.encode_lock_body(lock)) == lock


def test_routes_and_lists() -> None:
    routes = [body for body in bodies_of(0, "<<") if b"brokerDatas" in body]
    assert any(b"{0:" in body for body in routes)
    for body in routes:
        route = bodies.parse_route(body)
        assert route.brokers[0].addresses == {0: "127.0.0.1:20911"}
        assert bodies.encode_route(route) == body.replace(b"{0:", b'{"0":')
    listed = [body for body in bodies_of(0, "<<") if b"consumerIdList" in body]
    assert listed
    for body in listed:
        assert bodies.encode_consumer_list(bodies.parse_consumer_list(body)) == body
    locked = [body for body in bodies_of(0, "<<") if b"lockOKMQSet" in body]
    assert locked
    for body in locked:
        assert bodies.encode_lock_reply(bodies.parse_lock_reply(body)) == body


def test_other_json() -> None:
    for body in bodies_of(0, "<<"):
        if body[:1] == b"{":
            assert isinstance(relaxed_json.loads(body), dict)


def test_batches() -> None:
    for body in bodies_of(RequestCode.SEND_BATCH_MESSAGE):
        parts = split_batch(body)
        assert len(parts) > 1
        assert all(parse(part.properties)["WAIT"] == "true" for part in parts)
        assert join_batch(parts) == body


def test_stored_messages() -> None:
    count = 0
    for body in bodies_of(0, "<<"):
        if body[4:8] != b"\xda\xa3 \xa7":
            continue
        for message in decode_stored(body):
            count += 1
            assert message.store_port == 20911
            assert message.topic
            assert message.properties
    assert count > 5
