"""TLS as a byte layer, over memory: either side, without I/O.

How to shake hands (certificates, versions) is in the context that the layer is given. Read next: `layers.py`.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol

from polymq.limits import TLS_EARLY_OUTPUT_SIZE_BYTES_MAX
from polymq.wire.layers import LayerFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TlsContext", "TlsLayer", "TlsObject"]

# One read of decrypted bytes: TLS records are 16 KiB at most.
_READ_SIZE_BYTES: Final = 64 * 1024


class TlsObject(Protocol):
    """What is used of an `ssl.SSLObject`. Raises what that raises."""

    def do_handshake(self) -> None:
        """Go on with the handshake."""

    def read(self, size: int, /) -> bytes:
        """Decrypt what has come."""

    def write(self, data: bytes, /) -> int:
        """Encrypt."""

    def unwrap(self) -> object:
        """Write the close alert."""

    def version(self) -> str | None:
        """Name the version."""

    def cipher(self) -> tuple[str, str, int] | None:
        """Name the cipher suite, first of three."""

    def getpeercert(self) -> Mapping[str, Any] | None:
        """Describe the peer's certificate."""


class TlsContext(Protocol):
    """What is used of an `ssl.SSLContext`."""

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, server_side: bool = False, server_hostname: str | None = None
    ) -> TlsObject:
        """Begin a connection."""


class TlsLayer:
    """One connection's TLS. The handshake runs inside `receive`; its output waits for `send`.

    It is the client's side, and begins by itself, if it is given the name that the server must have.
    Limits:  nothing unfolds here, so a piece of input makes no larger piece of output; TLS_EARLY_OUTPUT_SIZE_BYTES_MAX
             wait for the handshake.
    """

    holding = False

    def __init__(self, context: TlsContext, server_name: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name)
        self._early = bytearray()
        self.established = False
        self.closing = False
        # In a handshake: what came last was not a whole message, so an end here is one in the middle.
        self.halfway = False
        if server_name is not None:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._object.do_handshake()

    @property
    def version(self) -> str:
        """The version that was agreed on, such as TLSv1.3; "" before that."""
        return self._object.version() or ""

    @property
    def cipher_suite(self) -> str:
        """The cipher suite that was agreed on, as OpenSSL calls it; "" before that."""
        cipher = self._object.cipher()
        return cipher[0] if cipher else ""

    @property
    def peer_common_name(self) -> str:
        """The common name in the peer's certificate; "" without one."""
        certificate = self._object.getpeercert() or {}
        names = [value for group in certificate.get("subject", ()) for name, value in group if name == "commonName"]
        return str(names[-1]) if names else ""

    def receive(self, data: bytes) -> bytes:
        """Decrypt; raises LayerFailed when the handshake fails or a record is not what it should be."""
        self._incoming.write(data)
        self.halfway = False
        try:
            if not self.established:
                self._object.do_handshake()
                self.established = True
            return self._read()
        except ssl.SSLWantReadError:
            self.halfway = bool(data) and not self._outgoing.pending
            return b""
        except ssl.SSLError as error:
            raise LayerFailed(f"TLS: {error.reason or error}") from error

    def send(self, data: bytes) -> bytes:
        """Encrypt, or keep until the handshake is over; raises LayerFailed when too much is kept."""
        if not self.established:
            if len(self._early) + len(data) > TLS_EARLY_OUTPUT_SIZE_BYTES_MAX:
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
                chunk = self._object.read(_READ_SIZE_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                chunk = b""
            if not chunk:
                self.closing = True
                break
            chunks.append(chunk)
        return b"".join(chunks)
