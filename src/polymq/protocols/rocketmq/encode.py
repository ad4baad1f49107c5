"""Answers and requests as bytes; those to a run of sends straight from its rows. Hot; compiled if possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.protocols.rocketmq.events import Sends
    from polymq.protocols.rocketmq.places import Place

__all__ = [
    "PULL_HEAD_SIZE_BYTES",
    "SEND_REPLY_SIZE_BYTES_MAX",
    "by_queue",
    "encode_frame",
    "encode_pull_head",
    "encode_request",
    "encode_response",
    "encode_send_replies",
]

# Both kinds of the head of a pull's answer take as much.
PULL_HEAD_SIZE_BYTES: Final = 320
SEND_REPLY_SIZE_BYTES_MAX: Final = 512


def encode_frame(header: bytes, body: bytes = b"", *, binary: bool = False) -> bytes:
    """Put an encoded header and a body into a frame."""
    raise NotImplementedError


def encode_response(
    code: int, opaque: int, *, remark: str | None = None, ext: Mapping[str, str] | None = None, body: bytes = b"", binary: bool = False
) -> bytes:
    """Answer a request: in the way, `binary` or not, in which it came. Of a oneway request none may be sent."""
    raise NotImplementedError


def encode_request(
    code: int, opaque: int, *, ext: Mapping[str, str] | None = None, body: bytes = b"", oneway: bool = False, binary: bool = False
) -> bytes:
    """Ask a peer, or tell it something (`oneway`)."""
    raise NotImplementedError


def by_queue(sends: Sends) -> tuple[memoryview, list[tuple[int, int, int, int]]]:
    """Sort a run by topic and queue, stably: the rows (int32) in their order, and (topic index, queue id, first, count) for each queue."""
    raise NotImplementedError


def encode_send_replies(
    target: bytearray, at: int, sends: Sends, order: memoryview, first: int, count: int, *, place: Place, first_offset: int
) -> int:
    """Answer the sends `order[first : first + count]`, whose messages are at `first_offset` and behind it, into `target` from `at` on."""
    raise NotImplementedError


def encode_pull_head(
    target: bytearray, at: int, *, opaque: int, binary: bool, body_size: int, next_offset: int, min_offset: int, max_offset: int
) -> None:
    """Write the head of the answer FOUND to a pull, PULL_HEAD_SIZE_BYTES in any case: so it can be written when the messages behind it are there."""
    raise NotImplementedError
