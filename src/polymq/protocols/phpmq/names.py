"""A queue's name on the wire is bytes, a topic's name in the core is text: how the one becomes the other, and back.

A name in UTF-8 without control characters is the same on both sides. Bytes that are no UTF-8, and control characters, are written
`%XX` with upper-case digits; so is a percent sign that would otherwise be read as the start of that. What is longer than a topic's
name may be, or empty, is no queue.
"""

from __future__ import annotations

import re
from typing import Final

from polymq.limits import NAME_SIZE_BYTES_MAX

__all__ = ["queue_of", "topic_of"]

# What an escape stands for: control characters, single bytes that are no character, and the percent sign itself.
_ESCAPE: Final = "%(?:[01][0-9A-F]|7F|25|[89A-F][0-9A-F])"
_ESCAPE_BYTES: Final = re.compile(_ESCAPE.encode())
_TO_ESCAPE: Final = re.compile(rf"[\x00-\x1f\x7f\udc80-\udcff]|%(?={_ESCAPE[1:]})")
_SURROGATES_AT: Final = 0xDC00


def topic_of(queue: bytes) -> str | None:
    """Give the name of the topic that is a queue; None if there can be none."""
    text = queue.decode("utf-8", "surrogateescape")
    if _TO_ESCAPE.search(text) is not None:
        text = _TO_ESCAPE.sub(_escape, text)
    return text if 0 < len(text.encode()) <= NAME_SIZE_BYTES_MAX else None


def queue_of(topic: str) -> bytes | None:
    """Give the name of the queue that a topic is; None if no queue is that topic."""
    queue = _ESCAPE_BYTES.sub(lambda match: bytes([int(match[0][1:], 16)]), topic.encode())
    return queue if topic_of(queue) == topic else None


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"%{code - _SURROGATES_AT if code >= _SURROGATES_AT else code:02X}"
