"""RocketMQ's frames for simulated clients, written without the broker's own encoder and decoder.

length u32 | serialize type u8, header length u24 | header (JSON) | body          length does not count itself
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Code", "Frame", "FrameReader", "Pulled", "batch_body", "place_of", "properties", "pulled_messages", "request"]

_ONEWAY: Final = 2
_VERSION: Final = 409
_SIZE: Final = struct.Struct(">I")
# size, magic, CRC, queue, flag, offset in the queue, physical offset, system flag, when it was born
_FIXED: Final = struct.Struct(">IIIiiqqiq")
# reconsume times, offset of the prepared transaction, size of the body
_MIDDLE: Final = struct.Struct(">iqi")
_BORN_IN_V6: Final = 0x10
_STORED_IN_V6: Final = 0x20
_LOW_BITS: Final = 31


class Code:
    """The numbers of what simulated clients ask and are answered."""

    PULL: Final = 11
    POSITION: Final = 14
    COMMIT: Final = 15
    CHANGE_TOPIC: Final = 17
    GIVE_BACK: Final = 36
    ROUTE: Final = 105
    SEND: Final = 310
    SEND_BATCH: Final = 320

    DONE: Final = 0
    NO_TOPIC: Final = 17
    NOTHING_THERE: Final = 19
    ASK_AGAIN: Final = 20
    MOVED: Final = 21
    NO_POSITION: Final = 22


@dataclass(frozen=True, slots=True)
class Frame:
    """One answer, or a request of the server."""

    code: int
    opaque: int
    flag: int
    ext: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    remark: str | None = None

    @property
    def is_answer(self) -> bool:
        """Whether it is no request."""
        return bool(self.flag & 1)


@dataclass(frozen=True, slots=True)
class Pulled:
    """One message of a pull's answer: `number` is its partition's, `offset` its place in it."""

    queue: int
    offset: int
    number: int
    physical: int
    attempts: int
    topic: str
    body: bytes = field(repr=False)


def request(code: int, opaque: int, ext: Mapping[str, object], body: bytes = b"", *, oneway: bool = False) -> bytes:
    """Write a request with a header in JSON."""
    header: dict[str, object] = {"code": code, "flag": _ONEWAY if oneway else 0, "language": "JAVA", "opaque": opaque}
    header |= {"version": _VERSION, "extFields": {name: str(value) for name, value in ext.items()}, "serializeTypeCurrentRPC": "JSON"}
    text = json.dumps(header, separators=(",", ":")).encode()
    return _SIZE.pack(4 + len(text) + len(body)) + _SIZE.pack(len(text)) + text + body


def properties(named: Mapping[str, object]) -> str:
    """Write a message's properties."""
    return "".join(f"{name}\x01{value}\x02" for name, value in named.items())


def batch_body(bodies: Sequence[bytes]) -> bytes:
    """Write the messages of a 320, without properties of their own."""
    parts = [struct.pack(">IIIII", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0" for body in bodies]
    return b"".join(parts)


def place_of(message_id: str) -> tuple[int, int]:
    """Read the partition's number and the offset from the id that an answer to a send gives."""
    physical = int(message_id[-16:], 16)
    return physical >> _LOW_BITS, physical & (1 << _LOW_BITS) - 1


def pulled_messages(data: bytes) -> list[Pulled]:
    """Read the body of a pull's answer; raises ValueError, struct.error if it is none."""
    found = []
    at = 0
    while at < len(data):
        size, _, _, queue, _, offset, physical, flags, _ = _FIXED.unpack_from(data, at)
        here = at + _FIXED.size + (20 if flags & _BORN_IN_V6 else 8) + 8 + (20 if flags & _STORED_IN_V6 else 8)
        attempts, _, body_size = _MIDDLE.unpack_from(data, here)
        here += _MIDDLE.size
        body = data[here : here + body_size]
        here += body_size
        topic = data[here + 1 : here + 1 + data[here]].decode()
        here += 1 + data[here]
        here += 2 + int.from_bytes(data[here : here + 2], "big")
        if here != at + size:
            raise ValueError(f"a message of {size} bytes has parts of {here - at}")
        found.append(Pulled(queue, offset, physical >> _LOW_BITS, physical, attempts, topic, body))
        at += size
    return found


class FrameReader:
    """Cuts what comes into frames, whole ones only."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add bytes, and give the frames that are whole now."""
        self._data += data
        found = []
        at = 0
        while len(self._data) - at >= 8:
            end = at + 4 + _SIZE.unpack_from(self._data, at)[0]
            if end > len(self._data):
                break
            found.append(_read_frame(bytes(self._data[at + 4 : end])))
            at = end
        del self._data[:at]
        return found


def _read_frame(data: bytes) -> Frame:
    size = _SIZE.unpack_from(data)[0]
    header = json.loads(data[4 : 4 + size])
    return Frame(header["code"], header["opaque"], header["flag"], header.get("extFields") or {}, data[4 + size :], header.get("remark"))
