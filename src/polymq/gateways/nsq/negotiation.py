"""What happens between IDENTIFY's answer and the first command after it: TLS, then compression, an OK inside each.

     client                                   server
       | -- IDENTIFY -----------------------> |
       | <------------ agreement, plain text  |
       | <---- TLS handshake ---------------> |   if agreed; within 5 s, else E_IDENTIFY_FAILED in plain text
       | <----------------- OK, inside of TLS |
       |              (a moment)              |
       | <-------- OK, compressed, inside TLS |   if agreed

The moment is ours. A client (pynsq) that finds the compressed OK in the same read as the answer before it takes it for
plain text, and waits for ever; nsqd leaves that to chance. Observed on 1.3.0: up to 5 of 12 connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.core.views import TlsView
from polymq.gateways.contract import HANDSHAKE_END
from polymq.gateways.effects import Pause, Resume, Send, SetTimer, TimerName, Upgrade
from polymq.protocols.nsq import problems
from polymq.protocols.nsq.encode import OK_FRAME, error_frame
from polymq.wire.deflate import DeflateLayer
from polymq.wire.snappy import SnappyLayer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.gateways.effects import Effect
    from polymq.protocols.nsq.identify import Agreement
    from polymq.wire.layers import Layer
    from polymq.wire.tls import TlsLayer

__all__ = ["Negotiation"]

# Long enough for the client to have read what was sent before, on a busy machine too; it is paid once per connection.
_MOMENT_NS: Final = 10_000_000
# Go's words for the alerts that a client may send, by OpenSSL's names.
_ALERTS: Final[Mapping[str, str]] = {
    "SSLV3_ALERT_UNEXPECTED_MESSAGE": "unexpected message",
    "SSLV3_ALERT_BAD_RECORD_MAC": "bad record MAC",
    "TLSV1_ALERT_RECORD_OVERFLOW": "record overflow",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "handshake failure",
    "SSLV3_ALERT_BAD_CERTIFICATE": "bad certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "unsupported certificate",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "revoked certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "expired certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "unknown certificate",
    "SSLV3_ALERT_ILLEGAL_PARAMETER": "illegal parameter",
    "TLSV1_ALERT_UNKNOWN_CA": "unknown certificate authority",
    "TLSV1_ALERT_ACCESS_DENIED": "access denied",
    "TLSV1_ALERT_DECODE_ERROR": "error decoding message",
    "TLSV1_ALERT_DECRYPT_ERROR": "error decrypting message",
    "TLSV1_ALERT_PROTOCOL_VERSION": "protocol version not supported",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "insufficient security level",
    "TLSV1_ALERT_INTERNAL_ERROR": "internal error",
    "TLSV1_ALERT_INAPPROPRIATE_FALLBACK": "inappropriate fallback",
    "TLSV1_ALERT_USER_CANCELLED": "user canceled",
    "TLSV13_ALERT_MISSING_EXTENSION": "missing extension",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "certificate required",
}
# Go's words for what OpenSSL says, for those that a client's author is likely to meet.
_GO_WORDS: Final[Mapping[str, str]] = {
    "TLS: WRONG_VERSION_NUMBER": "tls: first record does not look like a TLS handshake",
    "TLS: HTTP_REQUEST": "tls: first record does not look like a TLS handshake",
    "TLS: PACKET_LENGTH_TOO_LONG": "tls: first record does not look like a TLS handshake",
    "TLS: RECORD_LAYER_FAILURE": "tls: first record does not look like a TLS handshake",
    "TLS: UNSUPPORTED_PROTOCOL": "tls: client offered only unsupported versions",
    "TLS: NO_SHARED_CIPHER": "tls: no cipher suite supported by both client and server",
    "TLS: PEER_DID_NOT_RETURN_A_CERTIFICATE": "tls: client didn't provide a certificate",
    "TLS: CERTIFICATE_VERIFY_FAILED": "tls: failed to verify certificate: x509: certificate signed by unknown authority",
    **{f"TLS: {name}": f"remote error: tls: {words}" for name, words in _ALERTS.items()},
}
# The cipher suites that nsqd has names for in its statistics, as OpenSSL calls them.
_CIPHER_SUITES: Final[Mapping[str, str]] = {
    "AES128-SHA": "TLS_RSA_WITH_AES_128_CBC_SHA",
    "AES256-SHA": "TLS_RSA_WITH_AES_256_CBC_SHA",
    "ECDHE-ECDSA-AES128-SHA": "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "ECDHE-ECDSA-AES256-SHA": "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "ECDHE-RSA-AES128-SHA": "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "ECDHE-RSA-AES256-SHA": "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "ECDHE-RSA-AES128-GCM-SHA256": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    # nsqd's list is from before TLS 1.3: it gives their numbers.
    "TLS_AES_128_GCM_SHA256": "Unknown 4865",
    "TLS_AES_256_GCM_SHA384": "Unknown 4866",
    "TLS_CHACHA20_POLY1305_SHA256": "Unknown 4867",
}


class Negotiation:
    """The byte layers of one connection, one after the other. They stay for as long as it lasts."""

    def __init__(self, make_tls: Callable[[], TlsLayer] | None, monotonic_ns: Callable[[], int]) -> None:
        self.compression = ""
        self._make_tls = make_tls
        self._monotonic_ns = monotonic_ns
        self._tls: TlsLayer | None = None
        self._compression_ahead: Layer | None = None

    @property
    def has_tls(self) -> bool:
        """Whether the connection is inside TLS."""
        return self._tls is not None and self._tls.established

    @property
    def tls_view(self) -> TlsView | None:
        """What TLS agreed on, in nsqd's words."""
        if self._tls is None or not self.has_tls:
            return None
        cipher_suite = self._tls.cipher_suite
        return TlsView(
            version=self._tls.version.replace("TLSv", "TLS"),
            cipher_suite=_CIPHER_SUITES.get(cipher_suite, cipher_suite),
        )

    @property
    def common_name(self) -> str:
        """The name in the client's certificate; "" without one."""
        return self._tls.peer_common_name if self._tls is not None and self.has_tls else ""

    def contradicts(self, agreement: Agreement) -> bool:
        """Say whether an IDENTIFY that was sent again changes layers that are there: they can only be added to."""
        return bool(self.compression) and ((agreement.tls and self._tls is None) or _compression(agreement) not in {"", self.compression})

    def begin(self, agreement: Agreement, effects: list[Effect]) -> bool:
        """Start what was agreed on; False if there is nothing to start. The answer to IDENTIFY is in `effects` already."""
        wanted = _compression(agreement)
        tls_ahead = agreement.tls and self._tls is None
        if wanted and not self.compression:
            self._compression_ahead = SnappyLayer() if agreement.snappy else DeflateLayer(agreement.deflate_level)
            self.compression = wanted
        if tls_ahead:
            assert self._make_tls is not None
            self._tls = self._make_tls()
            effects.append(Upgrade(self._tls))
        else:
            if agreement.tls:
                effects.append(Send(OK_FRAME))
            if self._compression_ahead is not None:
                self._wait(effects)
            elif wanted:
                effects.append(Send(OK_FRAME))
        return tls_ahead or self._compression_ahead is not None

    def upgraded(self, effects: list[Effect]) -> None:
        """A layer is of use. That of compression is pushed with its OK behind it, so only TLS has something to do."""
        if self._tls is not None and self.has_tls and not self.compression_is_on:
            effects.append(Send(OK_FRAME))
            if self._compression_ahead is not None:
                self._wait(effects)

    @property
    def compression_is_on(self) -> bool:
        """Whether input and output are compressed."""
        return bool(self.compression) and self._compression_ahead is None

    def failure(self, reason: str) -> bytes:
        """Make the frame that tells of a failed handshake, in plain text."""
        if reason == HANDSHAKE_END and self._tls is not None and self._tls.halfway:
            reason = f"unexpected {reason}"
        return error_frame(problems.upgrade_failed(_GO_WORDS.get(reason, reason)))

    def moment_over(self, effects: list[Effect]) -> None:
        """Go on with compression."""
        layer, self._compression_ahead = self._compression_ahead, None
        assert layer is not None
        effects += [Upgrade(layer), Send(OK_FRAME), Resume()]

    def _wait(self, effects: list[Effect]) -> None:
        effects += [Pause(), SetTimer(TimerName.HANDSHAKE, self._monotonic_ns() + _MOMENT_NS)]


def _compression(agreement: Agreement) -> str:
    return "snappy" if agreement.snappy else "deflate" if agreement.deflate else ""
