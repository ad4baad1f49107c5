"""TLS for the policy `require`: the client must show a certificate, and any will do.

The standard library verifies each certificate that it asks for, or asks for none; so this one policy goes through
pyOpenSSL, behind the few methods of `ssl.SSLContext` and `ssl.SSLObject` that the byte layer uses.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final

from cryptography.x509.oid import NameOID
from OpenSSL import SSL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["AnyCertificateContext"]

_CHUNK_SIZE_BYTES: Final = 64 * 1024


def _take_any(_connection: SSL.Connection, _certificate: object, _error: int, _depth: int, _ok: int) -> bool:
    return True


class AnyCertificateContext:
    """What is used of an `ssl.SSLContext`, for servers. Raises OSError and ValueError as that does."""

    def __init__(self, certificate: Path, key: Path, *, only_newest: bool) -> None:
        self._context = SSL.Context(SSL.TLS_SERVER_METHOD)
        self._context.set_min_proto_version(SSL.TLS1_3_VERSION if only_newest else SSL.TLS1_2_VERSION)
        self._context.set_options(SSL.OP_NO_RENEGOTIATION)
        self._context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _take_any)
        # A session that is resumed would not show the certificate again, and needs a name that we do not have.
        self._context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        self._context.set_session_id(b"polymq")
        for path in (certificate, key):
            with path.open("rb"):  # for the error that says which file it is: OpenSSL's does not
                pass
        try:
            self._context.use_certificate_chain_file(str(certificate))
            self._context.use_privatekey_file(str(key))
            self._context.check_privatekey()
        except SSL.Error as error:
            raise ValueError(_words(error)) from error

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, server_side: bool = False, server_hostname: str | None = None
    ) -> _Object:
        """Begin a connection."""
        assert server_side
        assert server_hostname is None
        connection = SSL.Connection(self._context, None)
        connection.set_accept_state()
        return _Object(connection, incoming, outgoing)


class _Object:
    """What is used of an `ssl.SSLObject`: before a call input is handed over, after it output is fetched."""

    def __init__(self, connection: SSL.Connection, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        self._connection = connection
        self._incoming = incoming
        self._outgoing = outgoing

    def do_handshake(self) -> None:
        self._run(self._connection.do_handshake)

    def read(self, size: int, /) -> bytes:
        data: bytes = self._run(lambda: self._connection.recv(size))
        return data

    def write(self, data: bytes, /) -> int:
        count: int = self._run(lambda: self._connection.sendall(data))
        return count

    def unwrap(self) -> object:
        return self._run(self._connection.shutdown)

    def version(self) -> str | None:
        return self._connection.get_protocol_version_name()

    def cipher(self) -> tuple[str, str, int] | None:
        name = self._connection.get_cipher_name()
        return None if name is None else (name, self._connection.get_cipher_version() or "", self._connection.get_cipher_bits() or 0)

    def getpeercert(self) -> Mapping[str, Any] | None:
        certificate = self._connection.get_peer_certificate(as_cryptography=True)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME) if certificate is not None else []
        return {"subject": tuple((("commonName", name.value),) for name in names)}

    def _run(self, function: Callable[[], Any]) -> Any:
        while data := self._incoming.read(_CHUNK_SIZE_BYTES):
            self._connection.bio_write(data)
        try:
            return function()
        except SSL.WantReadError as error:
            raise ssl.SSLWantReadError from error
        except SSL.ZeroReturnError as error:
            raise ssl.SSLZeroReturnError from error
        except SSL.Error as error:
            failure = ssl.SSLError(1, str(error))
            failure.reason = _words(error)
            raise failure from error
        finally:
            self._fetch()

    def _fetch(self) -> None:
        while True:
            try:
                self._outgoing.write(self._connection.bio_read(_CHUNK_SIZE_BYTES))
            except SSL.WantReadError:
                return


def _words(error: SSL.Error) -> str:
    """Say what OpenSSL says, in the words of the standard library's `reason`."""
    if error.args and isinstance(error.args[0], list) and error.args[0]:
        return str(error.args[0][-1][-1]).upper().replace(" ", "_")
    return str(error) or "failed"
