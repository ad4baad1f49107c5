"""A certificate, and a client's end of TLS over memory."""

from __future__ import annotations

import ssl
from pathlib import Path

# Made for these tests with: openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500
# -subj /CN=test.invalid -addext subjectAltName=DNS:test.invalid
IDENTITY = Path(__file__).with_name("self_signed.pem")


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(IDENTITY)
    return context


class TlsClient:
    """A client's end of TLS over memory."""

    def __init__(self, *, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(IDENTITY)
        context.minimum_version = context.maximum_version = version
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_hostname="test.invalid")
        self.established = False
        self.received = b""

    def take(self, data: bytes) -> bytes:
        """Handle what the server sent, return what to send back."""
        self.incoming.write(data)
        try:
            if not self.established:
                self.object.do_handshake()
                self.established = True
            while chunk := self.object.read(65536):
                self.received += chunk
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return self.outgoing.read()

    def say(self, data: bytes) -> bytes:
        self.object.write(data)
        return self.outgoing.read()
