"""Frames of RocketMQ's remoting protocol, written and read without any of polymq's own code, and a connection that says them.

length u32 | serialize type u8, header length u24 | header | body        length does not count itself
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BINARY",
    "JSON",
    "LANGUAGES",
    "Connection",
    "Frame",
    "batch_body",
    "frame_bytes",
    "properties",
    "raw_frame",
    "read_frame",
    "stored_messages",
]

JSON: Final = 0
BINARY: Final = 1
# By code.
LANGUAGES: Final = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS")
TIMEOUT_S: Final = 10.0
VERSION: Final = 409
ONEWAY: Final = 2


@dataclass(slots=True)
class Frame:
    """One request or answer."""

    code: int
    ext: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    language: str = "JAVA"
    version: int = VERSION
    remark: str | None = None
    serialize: int = JSON

    @property
    def is_answer(self) -> bool:
        return bool(self.flag & 1)


def text_of(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">i", len(data)) + data


def binary_header(frame: Frame) -> bytes:
    fields = b""
    for key, value in frame.ext.items():
        name = key.encode()
        fields += struct.pack(">h", len(name)) + name + text_of(str(value))
    language = LANGUAGES.index(frame.language)
    fixed = struct.pack(">hBhii", frame.code, language, frame.version, frame.opaque, frame.flag)
    return fixed + text_of(frame.remark or "") + struct.pack(">i", len(fields)) + fields


def json_header(frame: Frame) -> bytes:
    header: dict[str, Any] = {"code": frame.code, "flag": frame.flag, "language": frame.language, "opaque": frame.opaque}
    header |= {"version": frame.version, "extFields": frame.ext, "serializeTypeCurrentRPC": "JSON"}
    if frame.remark is not None:
        header["remark"] = frame.remark
    return json.dumps(header, separators=(",", ":")).encode()


def frame_bytes(frame: Frame) -> bytes:
    """What goes over the wire."""
    header = binary_header(frame) if frame.serialize == BINARY else json_header(frame)
    return raw_frame(header, frame.body, serialize=frame.serialize)


def raw_frame(header: bytes, body: bytes = b"", *, serialize: int = JSON) -> bytes:
    """A frame of any header."""
    return struct.pack(">II", 4 + len(header) + len(body), serialize << 24 | len(header)) + header + body


def read_frame(data: bytes) -> tuple[Frame | None, int]:
    """The first frame, and how many bytes it took; None while it is not complete."""
    if len(data) < 4:
        return None, 0
    (length,) = struct.unpack_from(">I", data)
    if len(data) < 4 + length:
        return None, 0
    (word,) = struct.unpack_from(">I", data, 4)
    serialize, size = word >> 24, word & 0xFFFFFF
    header, body = data[8 : 8 + size], data[8 + size : 4 + length]
    frame = read_binary(header) if serialize == BINARY else read_json(header)
    frame.body = body
    frame.serialize = serialize
    return frame, 4 + length


def read_json(header: bytes) -> Frame:
    found = json.loads(header)
    return Frame(
        code=found["code"],
        ext=found.get("extFields") or {},
        opaque=found["opaque"],
        flag=found["flag"],
        language=found.get("language", ""),
        version=found.get("version", 0),
        remark=found.get("remark"),
    )


def read_binary(header: bytes) -> Frame:
    code, language, version, opaque, flag = struct.unpack_from(">hBhii", header)
    at = 13
    (size,) = struct.unpack_from(">i", header, at)
    at += 4
    remark = header[at : at + size].decode() or None
    at += size
    (size,) = struct.unpack_from(">i", header, at)
    at += 4
    end = at + size
    ext = {}
    while at < end:
        (size,) = struct.unpack_from(">h", header, at)
        key = header[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (size,) = struct.unpack_from(">i", header, at)
        ext[key] = header[at + 4 : at + 4 + size].decode()
        at += 4 + size
    return Frame(code=code, ext=ext, opaque=opaque, flag=flag, language=LANGUAGES[language], version=version, remark=remark)


def properties(**named: str) -> str:
    """The text of a message's properties."""
    return "".join(f"{name}\x01{value}\x02" for name, value in named.items())


def batch_body(messages: list[tuple[bytes, str]]) -> bytes:
    """The body of a 320: (body, properties) each."""
    found = b""
    for body, text in messages:
        extra = text.encode()
        rest = struct.pack(">IIII", 0, 0, 0, len(body)) + body + struct.pack(">H", len(extra)) + extra
        found += struct.pack(">I", 4 + len(rest)) + rest
    return found


def stored_messages(body: bytes) -> list[dict[str, Any]]:
    """The messages of a pull's body."""
    found = []
    at = 0
    names = ("size", "magic", "crc", "queue", "flag", "offset", "physical", "sysflag", "born")
    while at < len(body):
        message: dict[str, Any] = dict(zip(names, struct.unpack_from(">IIIiiqqiq", body, at), strict=True))
        here = at + 48
        here += 20 if message["sysflag"] & 0x10 else 8
        (message["stored"],) = struct.unpack_from(">q", body, here)
        here += 8
        message["store_host"] = body[here : here + 8].hex()
        here += 20 if message["sysflag"] & 0x20 else 8
        message["reconsumed"], message["prepared"], size = struct.unpack_from(">iqi", body, here)
        here += 16
        message["body"] = body[here : here + size]
        here += size
        size = body[here]
        message["topic"] = body[here + 1 : here + 1 + size].decode()
        here += 1 + size
        (size,) = struct.unpack_from(">h", body, here)
        text = body[here + 2 : here + 2 + size].decode()
        message["properties"] = dict(each.split("\x01", 1) for each in text.split("\x02") if "\x01" in each)
        assert here + 2 + size == at + message["size"], "a message's size is not that of its parts"
        at += message["size"]
        found.append(message)
    return found


class Connection:
    """One connection; its answers are told apart by their numbers."""

    def __init__(self, port: int, *, timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout_s = timeout_s
        self.closed = False
        # What came and was not asked for: requests of the server.
        self.pushed: list[Frame] = []
        self._answers: dict[int, Frame] = {}
        self._data = b""
        self._opaque = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Any bytes; that the server has closed is heard, not felt."""
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def begin(self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"", **more: Any) -> int:
        """Send a request, and say which number it has."""
        self._opaque += 1
        self.send(frame_bytes(Frame(code, dict(ext or {}), body, self._opaque, **more)))
        return self._opaque

    def oneway(self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"", **more: Any) -> None:
        """Send a request that is not answered."""
        self.begin(code, ext, body, flag=ONEWAY, **more)

    def answer(self, opaque: int, *, timeout_s: float | None = None) -> Frame:
        """Wait for the answer to a request. Raises EOFError when the server closes, TimeoutError when it is silent."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while opaque not in self._answers:
            self._read(deadline)
        return self._answers.pop(opaque)

    def ask(self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"", **more: Any) -> Frame:
        """Send a request and wait for its answer."""
        return self.answer(self.begin(code, ext, body, **more))

    def hear(self, seconds: float) -> list[Frame]:
        """All that comes within a time, or until the server closes: answers and requests, in order of arrival."""
        self._answers.clear()
        self.pushed.clear()
        heard: list[Frame] = []
        deadline = time.monotonic() + seconds
        with contextlib.suppress(EOFError, TimeoutError):
            while True:
                heard += self._read(deadline)
        return heard

    def close(self) -> None:
        self.socket.close()

    def _read(self, deadline: float) -> list[Frame]:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self.closed = True
            raise EOFError
        self._data += data
        heard: list[Frame] = []
        while True:
            frame, size = read_frame(self._data)
            if frame is None:
                return heard
            self._data = self._data[size:]
            heard.append(frame)
            if frame.is_answer:
                self._answers[frame.opaque] = frame
            else:
                self.pushed.append(frame)
