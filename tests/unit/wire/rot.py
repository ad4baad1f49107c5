"""A byte layer that anybody can check."""

from __future__ import annotations

from polymq.wire.layers import LayerFailed


class Rot:
    """Every byte is shifted; a zero byte breaks it, 255 ends it."""

    def __init__(self, by: int) -> None:
        self.by = by
        self.closing = False
        self.established = False
        self.holding = False

    def receive(self, data: bytes) -> bytes:
        if 0 in data:
            raise LayerFailed("zero byte")
        if 255 in data:
            self.closing = True
            data = data[: data.index(255)]
        self.established = True
        return bytes((value - self.by) % 256 for value in data)

    def send(self, data: bytes) -> bytes:
        return bytes((value + self.by) % 256 for value in data)

    def wants_write(self) -> bool:
        return False

    def close(self) -> bytes:
        return b"<end>"
