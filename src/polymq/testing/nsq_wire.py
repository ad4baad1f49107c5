"""Just enough of NSQ for simulated clients and for the tap on the broker's output.

Written independently of `protocols/nsq`, so that a mistake there is not repeated by what should find it.

    frame: u32 size of the rest, big-endian · u32 type (0 response, 1 error, 2 message) · data
    data of a message: i64 time · u16 attempts · 16 hex digits · body
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ERROR", "MAGIC", "MESSAGE", "RESPONSE", "Frame", "FrameReader", "WireMessage", "identify", "multi_publish", "publish"]

MAGIC: Final = b"  V2"
RESPONSE: Final = 0
ERROR: Final = 1
MESSAGE: Final = 2

Frame = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class WireMessage:
    """The data of a message frame."""

    time_ns: int
    attempts: int
    id: bytes
    body: bytes

    @classmethod
    def parse(cls, data: bytes) -> WireMessage:
        """Take a message frame's data apart."""
        return cls(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:10], "big"), data[10:26], data[26:])


class FrameReader:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add bytes and take out the frames that are whole."""
        self._data += data
        frames: list[Frame] = []
        at = 0
        while len(self._data) - at >= 8:
            size = int.from_bytes(self._data[at : at + 4], "big")
            end = at + 4 + size
            if end > len(self._data):
                break
            frames.append((int.from_bytes(self._data[at + 4 : at + 8], "big"), bytes(self._data[at + 8 : end])))
            at = end
        del self._data[:at]
        return frames


def identify(**fields: object) -> bytes:
    """Encode an IDENTIFY."""
    body = json.dumps(fields).encode()
    return b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body


def publish(topic: str, body: bytes, *, delay_ms: int | None = None) -> bytes:
    """Encode a PUB, or a DPUB if there is a delay."""
    line = f"PUB {topic}\n" if delay_ms is None else f"DPUB {topic} {delay_ms}\n"
    return line.encode() + len(body).to_bytes(4, "big") + body


def multi_publish(topic: str, bodies: Sequence[bytes]) -> bytes:
    """Encode an MPUB."""
    inner = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    return f"MPUB {topic}\n".encode() + (len(inner) + 4).to_bytes(4, "big") + len(bodies).to_bytes(4, "big") + inner
