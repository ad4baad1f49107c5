"""The other end of every test: a client of a few lines over a blocking socket, so that no library judges itself."""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import dataclass

__all__ = ["Message", "Raw", "parse_message"]

TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Message:
    """A message frame."""

    body: bytes
    id: bytes
    attempts: int
    timestamp_ns: int
    received_at: float


def parse_message(data: bytes) -> Message:
    timestamp_ns, attempts = struct.unpack_from(">qH", data)
    return Message(data[26:], data[10:26], attempts, timestamp_ns, time.monotonic())


class Raw:
    """One connection."""

    def __init__(self, address: str, **identify: object) -> None:
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.input = b""
        body = json.dumps({"feature_negotiation": True, "client_id": "raw", **identify}).encode()
        self.send(b"  V2IDENTIFY\n" + struct.pack(">i", len(body)) + body)
        kind, self.settings = self.frame()
        assert kind == 0, self.settings

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> tuple[int, bytes]:
        """Read one frame; heartbeats are answered and left out."""
        while True:
            size, kind = struct.unpack(">ii", self._read(8))
            data = self._read(size - 4)
            if (kind, data) != (0, b"_heartbeat_"):
                return kind, data
            self.send(b"NOP\n")

    def _read(self, size: int) -> bytes:
        while len(self.input) < size:
            more = self.socket.recv(1 << 20)
            assert more, "the server closed the connection"
            self.input += more
        data, self.input = self.input[:size], self.input[size:]
        return data

    def ok(self, command: bytes) -> None:
        """Send a command and want OK."""
        self.send(command)
        assert self.frame() == (0, b"OK")

    def publish(self, topic: str, bodies: list[bytes]) -> None:
        """MPUB."""
        messages = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
        content = struct.pack(">i", len(bodies)) + messages
        self.ok(f"MPUB {topic}\n".encode() + struct.pack(">i", len(content)) + content)

    def subscribe(self, topic: str, channel: str, *, ready: int = 0) -> None:
        self.ok(f"SUB {topic} {channel}\n".encode())
        if ready:
            self.send(b"RDY %d\n" % ready)

    def message(self) -> Message:
        """Wait for a message."""
        kind, data = self.frame()
        assert kind == 2, data
        return parse_message(data)

    def finish(self, message: Message) -> None:
        self.send(b"FIN " + message.id + b"\n")

    def take(self, count: int) -> list[Message]:
        """Receive and finish messages."""
        messages = []
        for _ in range(count):
            messages.append(self.message())
            self.finish(messages[-1])
        return messages

    def close_cleanly(self) -> list[Message]:
        """CLS: everything before it has been handled when it is answered. Finishes and returns what was still on its way."""
        self.send(b"CLS\n")
        messages = []
        while True:
            kind, data = self.frame()
            if kind != 2:
                break
            messages.append(parse_message(data))
            self.finish(messages[-1])
        assert (kind, data) == (0, b"CLOSE_WAIT"), data
        return messages
