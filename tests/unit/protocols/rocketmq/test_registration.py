from __future__ import annotations

import json
import struct
import zlib

import pytest

from polymq import rocketmq_limits as limits
from polymq.protocols.rocketmq.registration import (
    DataVersion,
    Registration,
    RegistrationProblem,
    TopicConfig,
    parse_registration,
    write_registration,
)

VERSION = DataVersion(3, 1795212447778, 0)
TOPICS = (TopicConfig("orders", 4, 4), TopicConfig("TBW102", 8, 8, 7))


def piece(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def deflated(*topics: str, count: int | None = None, version: bytes = b'{"counter":3,"timestamp":1795212447778}') -> bytes:
    """What RegisterBrokerBody.encode writes when it compresses."""
    body = piece(version) + struct.pack(">i", len(topics) if count is None else count)
    return zlib.compress(body + b"".join(piece(topic.encode()) for topic in topics) + piece(b"[]") + struct.pack(">i", 0))


def test_what_is_written_is_read() -> None:
    body = write_registration(TOPICS, VERSION)
    assert b" " not in body
    assert parse_registration(body) == Registration(TOPICS, VERSION)
    assert json.loads(body)["topicConfigSerializeWrapper"]["topicConfigTable"]["orders"] == {
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }


def test_nothing_is_a_broker_without_topics() -> None:
    assert parse_registration(b"") == parse_registration(b"{}") == parse_registration(b"[]") == Registration()
    assert parse_registration(b'{"topicConfigSerializeWrapper":{}}') == Registration()


def test_the_deflated_form_of_real_brokers() -> None:
    body = deflated("orders 4 4 6 SINGLE_TAG", 'TBW102 8 8 7 SINGLE_TAG {"a":"b"}')
    assert parse_registration(body, compressed=True) == Registration(TOPICS, VERSION)


def test_a_topic_that_cannot_be_read_is_passed_over() -> None:
    table = {"good": {"readQueueNums": "2"}, "": {}, "x" * 256: {}, "many": {"writeQueueNums": 1 << 20}, "bad": 5, "odd": {"perm": 77}}
    body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table, "dataVersion": 5}}).encode()
    assert parse_registration(body) == Registration((TopicConfig("good", 2, 16),), DataVersion(), 5)
    body = deflated("good 2 16 6 SINGLE_TAG", "short 1", "bad x y z SINGLE_TAG", "\xff 1 1 6 SINGLE_TAG")
    assert parse_registration(body, compressed=True) == Registration((TopicConfig("good", 2, 16),), VERSION, 3)


def test_no_more_topics_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.protocols.rocketmq.registration.REGISTRATION_TOPICS_MAX", 2)
    body = write_registration([TopicConfig(f"t{number}", 1, 1) for number in range(5)], VERSION)
    assert parse_registration(body) == Registration((TopicConfig("t0", 1, 1), TopicConfig("t1", 1, 1)), VERSION, 3)
    body = deflated(*(f"t{number} 1 1 6 SINGLE_TAG" for number in range(5)))
    found = parse_registration(body, compressed=True)
    assert ([topic.name for topic in found.topics], found.skipped) == (["t0", "t1"], 3)


@pytest.mark.parametrize(
    ("body", "compressed"),
    [
        (b"{", False),
        (b"no deflate", True),
        (zlib.compress(b""), True),
        (zlib.compress(piece(b"{}")), True),
        (zlib.compress(struct.pack(">i", -1)), True),
        (zlib.compress(struct.pack(">i", 1 << 30)), True),
        (deflated("t 1 1 6 SINGLE_TAG", count=9), True),
        (deflated(version=b"{"), True),
        (deflated("t 1 1 6 SINGLE_TAG")[:-6], True),
        (zlib.compress(bytes(limits.REGISTRATION_SIZE_BYTES_MAX + 1)), True),
        (b" " * (limits.REGISTRATION_SIZE_BYTES_MAX + 1), False),
    ],
)
def test_what_cannot_be_read_at_all(body: bytes, compressed: bool) -> None:
    with pytest.raises(RegistrationProblem):
        parse_registration(body, compressed=compressed)


def test_a_version_is_read_whatever_it_is() -> None:
    assert DataVersion.of(None) == DataVersion.of([]) == DataVersion()
    assert DataVersion.of({"counter": "7", "timestamp": -5, "stateVersion": 1 << 70}) == DataVersion(7, 0, 0)
    assert DataVersion.of(VERSION.fields()) == VERSION


@pytest.mark.parametrize("opening", [b"[]", b"{}"])
def test_json_of_nothing_but_objects_is_refused_before_it_is_read(opening: bytes) -> None:
    body = b"[" + b",".join([opening] * limits.REGISTRATION_OBJECTS_MAX) + b"]"
    with pytest.raises(RegistrationProblem, match="lists and objects"):
        parse_registration(body)
    with pytest.raises(RegistrationProblem, match="lists and objects"):
        parse_registration(deflated(version=body), compressed=True)
