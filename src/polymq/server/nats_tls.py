"""TLS for NATS: contexts made of a block `tls` of nats-server's, and how clients' connections are encrypted."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError
from polymq.gateways.nats.house import ClientTls
from polymq.server.tls import no_password, tls_reason
from polymq.wire.tls import TlsLayer

if TYPE_CHECKING:
    from polymq.server.nats_settings import NatsServerSettings, TlsSettings

__all__ = ["accepting_context", "check_files", "dialling_context", "make_client_tls"]

# What a certificate and a key begin with in PEM form; kinds of keys stand in between.
_CERTIFICATE_MARKS: Final = (b"-----BEGIN CERTIFICATE-----", b"-----BEGIN TRUSTED CERTIFICATE-----", b"-----BEGIN X509 CERTIFICATE-----")
_KEY_MARKS: Final = (b"PRIVATE KEY-----",)
# A file of certificates is smaller; what never ends is not read to its end.
_FILE_SIZE_BYTES_MAX: Final = 16 << 20


def accepting_context(settings: TlsSettings, *, verify: bool, name: str) -> ssl.SSLContext:
    """Read certificate, key and roots, for connections that come in. Raises ConfigError; `name` is the block's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _read_files(context, settings, verify=verify, name=name)
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    return context


def dialling_context(settings: TlsSettings, *, name: str) -> ssl.SSLContext:
    """Read the same for connections that this server makes, as somebody with a certificate. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _read_files(context, settings, verify=True, name=name)
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _read_files(context: ssl.SSLContext, settings: TlsSettings, *, verify: bool, name: str) -> None:
    """Read what a block names. Raises ConfigError with all that is wrong, each with its place."""
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if settings.min_version == "1.3" else ssl.TLSVersion.TLSv1_2
    problems = [
        *_look_at(settings, "cert_file", _CERTIFICATE_MARKS, "certificate", name),
        *_look_at(settings, "key_file", _KEY_MARKS, "private key", name),
    ]
    if not problems:
        try:
            context.load_cert_chain(_path(settings.cert_file), _path(settings.key_file), password=no_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
                what = f"{settings.key_file} is not the key of the certificate in {settings.cert_file}; name the one that it was made with"
            else:
                what = f"{settings.key_file} cannot be used with {settings.cert_file}: {tls_reason(error, settings.key_file)}"
            problems.append(_problem(settings, "key_file", what, name))
    if settings.ca_file:
        wrong = _look_at(settings, "ca_file", _CERTIFICATE_MARKS, "certificate", name)
        try:
            if not wrong:
                context.load_verify_locations(_path(settings.ca_file))
        except (OSError, ValueError) as error:
            wrong = [_problem(settings, "ca_file", f"{settings.ca_file} cannot be used: {tls_reason(error, settings.ca_file)}", name)]
        problems += wrong
    elif verify:
        context.set_default_verify_paths()
    if problems:
        raise ConfigError(problems)


def _look_at(settings: TlsSettings, field: str, marks: tuple[bytes, ...], wanted: str, name: str) -> list[str]:
    """Say what is wrong with a file: that it cannot be read, or has nothing of what it should have."""
    path = getattr(settings, field)
    try:
        with _path(path).open("rb") as file:
            content = file.read(_FILE_SIZE_BYTES_MAX)
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}; name a file that this process may read"
        return [_problem(settings, field, what, name)]
    if any(mark in content for mark in marks):
        return []
    return [_problem(settings, field, f"there is no {wanted} in {path}; it must be in PEM form, with a line -----BEGIN …-----", name)]


def _problem(settings: TlsSettings, field: str, what: str, name: str) -> str:
    place = dict(settings.places).get(field, "")
    return f"{place}: {name}.{field}: {what}" if place else f"{name}.{field}: {what}"


def check_files(settings: NatsServerSettings) -> None:
    """See whether the files that the blocks `tls` name can be used. Raises ConfigError with all that is wrong."""
    problems: list[str] = []
    cluster = settings.cluster.tls if settings.cluster is not None else None
    for tls, name in ((settings.tls, "tls"), (cluster, "cluster.tls")):
        if tls is not None:
            try:
                accepting_context(tls, verify=tls.verify, name=name)
            except ConfigError as error:
                problems += error.problems
    if problems:
        raise ConfigError(problems)


def make_client_tls(settings: NatsServerSettings) -> ClientTls | None:
    """Say how clients' connections are encrypted; None: they are not. Raises ConfigError."""
    tls = settings.tls
    if tls is None:
        return None
    context = accepting_context(tls, verify=tls.verify, name="tls")
    return ClientTls(
        make=lambda: TlsLayer(context),
        required=tls.handshake_first or not settings.allow_non_tls,
        optional=settings.allow_non_tls,
        verified=tls.verify,
        first=tls.handshake_first,
        fallback_ns=tls.fallback_delay_ns,
        timeout_ns=tls.timeout_ns,
    )


def _path(text: str) -> Path:
    return Path(text).expanduser()
