"""Byte layers: what may lie between a socket and a codec, without I/O: TLS (`tls.py`), snappy, deflate.

A layer turns bytes into bytes, in both directions, for a server and for a client alike. What it makes of one read is
bounded: a layer that has more to give says so (`holding`) and is asked again before it gets new input, so that a few
bytes that unfold to gigabytes cost their sender time and us no memory.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Layer", "LayerFailed", "LayerStack"]


class LayerFailed(Exception):
    """A byte layer cannot go on: a failed handshake, bytes that do not decompress. The text is for people."""


class Layer(Protocol):
    """A two-way transformation of bytes between a socket and whoever speaks the protocol."""

    closing: bool  # the peer has ended the layer in an orderly way: no more input will come
    established: bool  # of use: from here on a failure is a broken connection, before it is a failed upgrade
    holding: bool  # there is more to give from what has been received: call receive(b"") before anything else

    def receive(self, data: bytes) -> bytes:
        """Take bytes from below, return what they mean above; raises LayerFailed."""

    def send(self, data: bytes) -> bytes:
        """Take bytes from above, return what to write below (may be fewer, more or none, until a handshake ends)."""

    def wants_write(self) -> bool:
        """Say whether the layer has output of its own (a handshake, an alert) that `send(b"")` would return."""

    def close(self) -> bytes:
        """Return the bytes that end the layer in an orderly way."""


class LayerStack:
    """All layers of one connection.

    A connection without layers has no stack at all, so that the usual case costs one comparison. Input goes through
    the layers from the first added, the outermost, to the newest; output the other way. A layer joins the input side
    at once and the output side when all earlier output has passed, which is why the two sides are separate lists.
    """

    def __init__(self) -> None:
        self._inputs: list[Layer] = []
        self._outputs: list[Layer] = []

    @property
    def holding(self) -> bool:
        """Whether `receive(b"")` would return more of what has come."""
        for layer in self._inputs:  # noqa: SIM110 - asked at every read, and a generator costs more than the loop
            if layer.holding:
                return True
        return False

    @property
    def closing(self) -> bool:
        """Whether the peer has ended one of the layers, and all that it sent before has been given out."""
        return any(layer.closing for layer in self._inputs) and not self.holding

    @property
    def established(self) -> bool:
        """Whether the newest layer has come to be of use."""
        return all(layer.established for layer in self._inputs)

    def push_input(self, layer: Layer) -> None:
        """Have input pass `layer` last."""
        self._inputs.append(layer)

    def push_output(self, layer: Layer) -> None:
        """Have output pass `layer` first; all earlier output has been handed down."""
        self._outputs.append(layer)

    def pop(self) -> Layer:
        """Take the newest layer away on both sides: it failed before it was of use."""
        layer = self._inputs.pop()
        if layer in self._outputs:
            self._outputs.remove(layer)
        return layer

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the socket, none while a layer is holding, and return those above; raises LayerFailed."""
        for layer in self._inputs:
            data = layer.receive(data)
        return data

    def send(self, data: bytes) -> bytes:
        """Take bytes from above, return the socket's, with what the layers have to say themselves."""
        for layer in reversed(self._outputs):
            data = layer.send(data)
        return data

    def wants_write(self) -> bool:
        """Say whether `send(b"")` would return anything."""
        return any(layer.wants_write() for layer in self._outputs)

    def close(self) -> bytes:
        """Return what ends all layers in an orderly way, innermost first."""
        data = b""
        for layer in reversed(self._outputs):
            data = (layer.send(data) if data else b"") + layer.close()
        return data
