"""How this server shakes hands: a TLS context from nsqd's settings, with what nsqd makes of them.

Nothing below TLS 1.2 is spoken, whatever the setting. A client's certificate is asked for only by a policy: `require`
takes any, `require-verify` one that the root certificates (or those of the system) vouch for.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError

if TYPE_CHECKING:
    from polymq.config_sections import NsqSettings
    from polymq.wire.tls import TlsContext

__all__ = ["client_context", "http_requires_tls", "no_password", "server_context", "tcp_requires_tls", "tls_reason"]

_NO_POLICY: Final = "none"
_ANY_CERTIFICATE: Final = "require"


def tcp_requires_tls(section: NsqSettings) -> bool:
    """Say whether nothing but IDENTIFY may come before TLS. A policy for certificates would be idle without."""
    return section.tls_required != "false" or section.tls_client_auth_policy != _NO_POLICY


def http_requires_tls(section: NsqSettings) -> bool:
    """Say whether plain HTTP is refused."""
    return section.tls_required == "true" or (section.tls_required == "false" and section.tls_client_auth_policy != _NO_POLICY)


def server_context(section: NsqSettings) -> TlsContext | None:
    """Read certificate, key and roots; None without a certificate. Raises ConfigError."""
    if not section.tls_cert and not section.tls_key:
        if tcp_requires_tls(section):
            raise ConfigError(["nsq.tls_required: TLS cannot be required without nsq.tls_cert and nsq.tls_key"])
        return None
    certificate, key = Path(section.tls_cert).expanduser(), Path(section.tls_key).expanduser()
    try:
        if section.tls_client_auth_policy == _ANY_CERTIFICATE:
            # Imported here, because it takes as long as the rest of the server, and few want it.
            from polymq.server.tls_any import AnyCertificateContext

            return AnyCertificateContext(certificate, key, only_newest=section.tls_min_version == "tls1.3")
        return _context(section, certificate, key)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError([f"nsq.tls_cert, nsq.tls_key, nsq.tls_root_ca_file: {tls_reason(error)}"]) from error


def client_context(section: NsqSettings) -> ssl.SSLContext:
    """Say who vouches for the servers that we ask, as nsqd does: those who vouch for clients, or the system's. Raises ConfigError."""
    try:
        roots = Path(section.tls_root_ca_file).expanduser() if section.tls_root_ca_file else None
        return ssl.create_default_context(cafile=roots)
    except (OSError, ValueError) as error:
        raise ConfigError([f"nsq.tls_root_ca_file: {tls_reason(error, section.tls_root_ca_file)}"]) from error


def _context(section: NsqSettings, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if section.tls_min_version == "tls1.3" else ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.load_cert_chain(certificate, key, password=no_password)
    if section.tls_root_ca_file:
        context.load_verify_locations(Path(section.tls_root_ca_file).expanduser())
    if section.tls_client_auth_policy != _NO_POLICY:
        context.verify_mode = ssl.CERT_REQUIRED
        if not section.tls_root_ca_file:
            context.set_default_verify_paths()
    return context


def no_password() -> str:
    """Stand in for the prompt that OpenSSL would open on the terminal of a daemon."""
    raise ValueError("the key is encrypted, and there is nobody to ask for its password")


def tls_reason(error: Exception, file: str = "a file") -> str:
    """Say what is wrong with a certificate, a key or roots."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or file}: {error.strerror}"
    return str(error)
