"""The byte layers under a gateway: TLS and whatever an upgrade brings, without I/O.

A connection without layers has no stack at all, so that the usual case costs one comparison. Input goes through the
layers from the newest added last (the outermost is the first added); output the other way. A layer joins the input
side at once and the output side when all earlier output has passed, which is why the two sides are separate lists.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Final

from polymq.gateways.contract import LayerFailed

if TYPE_CHECKING:
    from polymq.gateways.contract import Layer

__all__ = ["LayerStack", "TlsLayer"]

# Output that a gateway has sent before the handshake is over. It is a greeting or an error, not a stream.
_TLS_EARLY_OUTPUT_SIZE_BYTES_MAX: Final = 64 * 1024
# One read of decrypted bytes: TLS records are 16 KiB at most.
_TLS_READ_SIZE_BYTES: Final = 64 * 1024


class LayerStack:
    """All layers of one connection."""

    def __init__(self) -> None:
        self._inputs: list[Layer] = []
        self._outputs: list[Layer] = []

    @property
    def closing(self) -> bool:
        """Whether the peer has ended one of the layers."""
        return any(layer.closing for layer in self._inputs)

    def push_input(self, layer: Layer) -> None:
        """Have input pass `layer` last."""
        self._inputs.append(layer)

    def push_output(self, layer: Layer) -> None:
        """Have output pass `layer` first; all earlier output has been handed down."""
        self._outputs.append(layer)

    @property
    def established(self) -> bool:
        """Whether the newest layer has come to be of use."""
        return all(layer.established for layer in self._inputs)

    def pop(self) -> Layer:
        """Take the newest layer away on both sides: it failed before it was of use."""
        layer = self._inputs.pop()
        if layer in self._outputs:
            self._outputs.remove(layer)
        return layer

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the socket, return the gateway's; raises LayerFailed."""
        for layer in self._inputs:
            data = layer.receive(data)
        return data

    def send(self, data: bytes) -> bytes:
        """Take the gateway's bytes, return the socket's, with what the layers have to say themselves."""
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


class TlsLayer:
    """TLS over memory. The handshake runs inside `receive`; its output waits for `send`.

    It is the client's side, and begins by itself, if it is given the name that the server must have.
    """

    def __init__(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name)
        self._early = bytearray()
        self.established = False
        self.closing = False
        if server_name is not None:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._object.do_handshake()

    def receive(self, data: bytes) -> bytes:
        """Decrypt; raises LayerFailed when the handshake fails or a record is not what it should be."""
        self._incoming.write(data)
        try:
            if not self.established:
                self._object.do_handshake()
                self.established = True
            return self._read()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:
            raise LayerFailed(f"TLS: {error.reason or error}") from error

    def send(self, data: bytes) -> bytes:
        """Encrypt, or keep until the handshake is over; raises LayerFailed when too much is kept."""
        if not self.established:
            if len(self._early) + len(data) > _TLS_EARLY_OUTPUT_SIZE_BYTES_MAX:
                raise LayerFailed("TLS: too much output before the end of the handshake")
            self._early += data
        else:
            if self._early:
                data = bytes(self._early) + data
                self._early.clear()
            if data:
                self._object.write(data)
        return self._outgoing.read()

    def wants_write(self) -> bool:
        """Say whether handshake messages, alerts or early output can go out."""
        return bool(self._outgoing.pending) or (self.established and bool(self._early))

    def close(self) -> bytes:
        """Return the close alert; the peer's own is not waited for."""
        if self.established:
            with contextlib.suppress(ssl.SSLError):  # the usual case: our alert is written, the peer's has not come
                self._object.unwrap()
        return self._outgoing.read()

    def _read(self) -> bytes:
        chunks: list[bytes] = []
        while True:
            try:
                chunk = self._object.read(_TLS_READ_SIZE_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                chunk = b""
            if not chunk:
                self.closing = True
                break
            chunks.append(chunk)
        return b"".join(chunks)
