"""Messages as JSON, and pages of them in pieces that hold nobody up."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.gateways.nsq.http_messages import described, hex_id, page_of
from polymq.wire.batch import Message


def pieces(rows: list[dict[str, Any]], next_place: str | int | None = None) -> list[bytes]:
    body = page_of(rows, next_place).body
    assert not isinstance(body, bytes)
    return list(body)


def test_a_message_with_everything() -> None:
    message = Message(b"<body>", key=b"k\xff", headers=((b"n", b"v\xff"),), time_ns=7)
    assert described(message, 255, 2) == {
        "id": "00000000000000ff",
        "timestamp": 7,
        "attempts": 2,
        "key_base64": "a/8=",
        "headers": [["n", "vÿ"]],
        "body": "<body>",
    }


def test_a_message_with_nothing() -> None:
    assert described(Message(b""), 0, 0) == {"id": hex_id(0), "timestamp": 0, "attempts": 0, "body": ""}


def test_pages_are_json() -> None:
    assert pieces([]) == [b'{"messages":[],"next":null}']
    assert pieces([{"id": "a"}, {"id": "b"}], "b") == [b'{"messages":[{"id":"a"},{"id":"b"}],"next":"b"}']
    assert dict(page_of([], 1).headers)["Content-Type"] == "application/json; charset=utf-8"


def test_large_pages_come_in_pieces() -> None:
    rows: list[dict[str, Any]] = [{"body": "x" * 30_000} for _ in range(10)] + [{"body": "y" * 1_000_000}]
    found = pieces(rows, 11)
    assert json.loads(b"".join(found)) == {"messages": rows, "next": 11}
    assert max(map(len, found)) == limits.HTTP_CHUNK_SIZE_BYTES_MAX
    assert len(found) == 10


@given(st.binary(max_size=100), st.none() | st.binary(max_size=20), st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9))))
def test_any_message_can_be_described(body: bytes, key: bytes | None, headers: list[tuple[bytes, bytes]]) -> None:
    message = Message(body, key=key, headers=tuple(headers))
    (found,) = json.loads(b"".join(pieces([described(message, 1, 1)])))["messages"]
    assert [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found.get("headers", [])] == headers
