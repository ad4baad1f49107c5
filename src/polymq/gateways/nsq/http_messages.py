"""Messages as JSON, for whoever looks at them over HTTP: one by one, and pages of them.

A page is made while it is sent, message by message, so that the largest holds neither a turn nor much memory twice.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import orjson

from polymq import limits
from polymq.gateways.nsq.http_answers import json_headers
from polymq.wire.exchange import Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polymq.wire.batch import Message

__all__ = ["described", "hex_id", "page_of"]

# Small messages go out together.
_PIECE_SIZE_BYTES: Final = 32 * 1024


def hex_id(number: int) -> str:
    """Write a message's id as NSQ's clients see it."""
    return f"{number:016x}"


def described(message: Message, number: int, attempts: int) -> dict[str, Any]:
    """Describe a message; bytes that are not text are `…_base64`."""
    fields: dict[str, Any] = {"id": hex_id(number), "timestamp": message.time_ns, "attempts": attempts}
    if message.key is not None:
        fields.update(_text("key", message.key))
    if message.headers:
        fields["headers"] = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in message.headers]
    fields.update(_text("body", message.body))
    return fields


def _text(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def page_of(rows: Iterable[dict[str, Any]], next_place: str | int | None) -> Response:
    """Answer with a page, `{"messages":[…],"next":…}`; what comes next is null behind the last one."""
    return Response(headers=json_headers(), body=_pieces(rows, next_place))


def _pieces(rows: Iterable[dict[str, Any]], next_place: str | int | None) -> Iterator[bytes]:
    gathered = bytearray(b'{"messages":[')
    separator = b""
    for row in rows:
        gathered += separator
        gathered += orjson.dumps(row)
        separator = b","
        if len(gathered) >= _PIECE_SIZE_BYTES:
            for at in range(0, len(gathered), limits.HTTP_CHUNK_SIZE_BYTES_MAX):
                yield bytes(gathered[at : at + limits.HTTP_CHUNK_SIZE_BYTES_MAX])
            gathered.clear()
    yield bytes(gathered + b'],"next":' + orjson.dumps(next_place) + b"}")
