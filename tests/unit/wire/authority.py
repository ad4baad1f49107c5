"""Certificates made for one test run: an authority, and who it vouches for."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

_LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
_NO_ENCRYPTION = serialization.NoEncryption()


class Authority:
    """Issues certificates into a folder. One that is nobody's word but its own (`self_signed`) is an authority's own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = folder / f"{name}.pem"
        self.key = folder / f"{name}.key"
        self._write(self.certificate, self.key, self._sign(self._name, self._key, is_authority=True, days=10), self._key)

    def issue(self, name: str, *, days: int = 10) -> Path:
        """Make a certificate, its key in the same file; one of less than 0 days has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        path = self._folder / f"{name}.pem"
        self._write(path, path, self._sign(subject, key, is_authority=False, days=days), key)
        return path

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool, days: int) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        name = subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=20))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(str(name)), _LOOPBACK]), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _write(self, certificate_path: Path, key_path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        pem = serialization.Encoding.PEM
        text = certificate.public_bytes(pem)
        key_text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, _NO_ENCRYPTION)
        if certificate_path == key_path:
            certificate_path.write_bytes(text + key_text)
        else:
            certificate_path.write_bytes(text)
            key_path.write_bytes(key_text)
