"""How messages are written for their brokers."""

from __future__ import annotations

import random
import zlib

import pytest

from polymq.clients.rocketmq_messages import OutgoingMessage
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.clients.rocketmq_sending import by_key, check_topic, java_hash, joined, new_key, packed, raw_properties, send_fields
from polymq.errors import LocalProtocolError
from polymq.protocols.rocketmq.batches import split_batch

QUEUES = [MessageQueue("t", "b", number) for number in range(4)]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("polygenelubricants", -(2**31)),
        (7, 7),
        (-1, 0),
        (-2, 1),
        (2**32, 1),
        (2**40 + 5, 261),
        (-(2**63), -(2**31)),
    ],
)
def test_keys_are_hashed_as_java_does(key: str | int, expected: int) -> None:
    assert java_hash(key) == expected


def test_a_key_chooses_the_queue_that_java_would() -> None:
    assert by_key(QUEUES, "TagA").queue_id == 2598919 % 4
    assert by_key(QUEUES[:3], "polygenelubricants").queue_id == 2**31 % 3  # Java's remainder is negative, and then made positive
    assert by_key(QUEUES, 6).queue_id == 2


def test_names_differ() -> None:
    keys = {new_key() for _ in range(1000)}
    assert len(keys) == 1000
    assert {len(each) for each in keys} == {32}


def test_topics_that_take_no_messages() -> None:
    check_topic("t")
    for topic in ("", "a b", "SCHEDULE_TOPIC_" + 4 * "X", "x" * 128):
        with pytest.raises(LocalProtocolError):
            check_topic(topic)


def test_large_bodies_are_packed_if_that_helps() -> None:
    body = b"a" * 5000
    small, sys_flag = packed(body, above_bytes=4096, level=5)
    assert sys_flag == 0x301
    assert zlib.decompress(small) == body
    assert packed(body[:4096], above_bytes=4096, level=5) == (body[:4096], 0)
    noise = random.Random(1).randbytes(5000)
    assert packed(noise, above_bytes=4096, level=5) == (noise, 0)


def test_what_has_no_room_in_a_frame_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="no frame has room"):
        packed(bytes(16 * 1024 * 1024), above_bytes=2**30, level=5)
    with pytest.raises(LocalProtocolError, match="bytes of properties"):
        raw_properties(OutgoingMessage("t", b"", properties={"a": "x" * 32767}), "K")


def test_the_fields_of_a_send() -> None:
    fields = send_fields("g", QUEUES[2], born_ms=5, raw_properties="p", sys_flag=1, flag=2)
    assert fields == {
        "a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "2", "f": "1", "g": "5", "h": "2", "i": "p", "j": "0", "k": "false", "m": "false", "n": "b",
    }  # fmt: skip


def test_batches() -> None:
    parts = split_batch(joined([OutgoingMessage("t", b"1", flag=3), OutgoingMessage("t", b"2", tags="x")], ["A", "B"]))
    assert [(part.body, part.flag) for part in parts] == [(b"1", 3), (b"2", 0)]
    assert b"UNIQ_KEY\x01A" in parts[0].properties
    assert b"TAGS\x01x" in parts[1].properties


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [OutgoingMessage("t", b""), OutgoingMessage("u", b"")],
        [OutgoingMessage("t", b"", delay_level=1)],
        [OutgoingMessage("t", b"", sharding_key=1), OutgoingMessage("t", b"")],
        [OutgoingMessage("t", b"")] * 65537,
    ],
)
def test_batches_that_cannot_be_sent(messages: list[OutgoingMessage]) -> None:
    with pytest.raises(LocalProtocolError):
        joined(messages, ["K"] * len(messages))
