"""Messages of the reference classes, both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from polymq.protocols.phpmq import frames
from polymq.protocols.phpmq.encode import dispatch_head, dispatches_size_bytes, encode_dispatches
from polymq.protocols.phpmq.frames import FrameReader, WireMessage
from polymq.wire.batch import Message
from tests.unit.protocols.nsq.test_encode import slice_of
from tests.unit.protocols.phpmq.streams import run

MESSAGES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))["messages"]
NOW_NS = 1_700_000_000_000_000_000


def of(*types: int) -> list[Any]:
    return [pytest.param(each, id=each["name"]) for each in MESSAGES if each["type"] in types]


@pytest.mark.parametrize("golden", of(1, 2, 4, 5, 6))
def test_what_a_client_sends_is_read(golden: dict[str, Any]) -> None:
    fields = golden["fields"]
    queue = fields["queue"].encode()
    expected = {
        1: ("send", queue, fields.get("content", "").encode(), fields.get("ttl", 0), "ttl" not in fields),
        2: ("consume", queue, fields.get("count")),
        4: ("foreign", queue),
        5: ("foreign", queue),
        6: ("foreign", queue),
    }[golden["type"]]
    stream = golden["text"].encode()
    assert run(stream) == [expected]
    assert run(stream, range(len(stream))) == [expected]
    assert run(stream + b"H01", [3]) == [expected]


@pytest.mark.parametrize("golden", of(1, 2, 4, 5, 6))
def test_what_our_client_sends_is_the_same(golden: dict[str, Any]) -> None:
    fields = golden["fields"]
    queue, message_id = fields["queue"], fields.get("id", "").encode()
    written = {
        1: lambda: frames.send(queue, fields["content"].encode(), ttl_s=fields.get("ttl")),
        2: lambda: frames.consume(queue, fields["count"]),
        4: lambda: frames.acknowledge(queue, [message_id]),
        5: lambda: frames.requeue(queue, message_id, ttl_s=fields["ttl"]),
        6: lambda: frames.dead_letter(queue, message_id),
    }[golden["type"]]()
    assert written == golden["text"].encode()


@pytest.mark.parametrize("golden", of(3))
def test_what_we_dispatch_is_the_same_but_for_the_id(golden: dict[str, Any]) -> None:
    fields = golden["fields"]
    legacy = "ttl" not in fields
    expiry_ns = None if legacy else NOW_NS + fields["ttl"] * 10**9
    piece = slice_of([[Message(fields["content"].encode(), expiry_ns=expiry_ns)]], 0, 1)
    head = dispatch_head(fields["queue"].encode(), legacy=legacy)
    target = bytearray(dispatches_size_bytes(piece, head))
    end = encode_dispatches(target, 0, piece, head, legacy=legacy, now_ns=NOW_NS, salt=1)
    text = golden["text"].encode()
    at = text.index(fields["id"].encode())
    assert bytes(target[:at]) == text[:at]
    assert bytes(target[at + 32 : end]) == text[at + 32 :]


@pytest.mark.parametrize("golden", of(3))
def test_what_a_server_sends_is_read(golden: dict[str, Any]) -> None:
    fields = golden["fields"]
    expected = WireMessage(fields["queue"].encode(), fields["content"].encode(), fields["id"].encode(), fields.get("ttl"))
    stream = golden["text"].encode()
    assert FrameReader().feed(stream) == [expected]
    reader = FrameReader()
    assert [found for byte in stream for found in reader.feed(bytes([byte]))] == [expected]
    reader = FrameReader()
    assert reader.feed(stream + stream[:50]) == [expected]
    assert reader.feed(stream[50:]) == [expected]
