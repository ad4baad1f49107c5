"""Keys and certificates for servers that speak NATS, and for their clients."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import nkeys

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.wire.authority import Authority

__all__ = ["nkey_of", "tls_block", "tls_context"]


def nkey_of(folder: Path, seed_bytes: bytes = b"polymq's interop tests, 32 bytes") -> tuple[str, Path]:
    """A user's public key, and the file with its seed."""
    seed = nkeys.encode_seed(seed_bytes, nkeys.PREFIX_BYTE_USER)
    path = folder / f"user-{seed_bytes.hex()[:8]}.nk"
    path.write_bytes(seed)
    return nkeys.from_seed(bytearray(seed)).public_key.decode(), path


def tls_block(authority: Authority, name: str, *, verify: bool = False) -> str:
    certificate = authority.issue(name)
    lines = [f'cert_file: "{certificate}"', f'key_file: "{certificate}"', f'ca_file: "{authority.certificate}"', "timeout: 5"]
    return "\n".join([*lines, *(["verify: true"] if verify else [])])


def tls_context(authority: Authority, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context
