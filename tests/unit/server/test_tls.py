"""What the settings of TLS mean: for the context, for what is required, and in handshakes."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from polymq.config_sections import NsqSettings
from polymq.errors import ConfigError
from polymq.server.tls import client_context, http_requires_tls, server_context, tcp_requires_tls
from polymq.wire.layers import LayerFailed
from polymq.wire.tls import TlsLayer
from tests.unit.wire.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.wire.tls import TlsContext


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def settings(authority: Authority) -> Mapping[str, str]:
    server = str(authority.issue("test.invalid"))
    return {"tls_cert": server, "tls_key": server}


def made(**settings: str) -> TlsContext:
    context = server_context(NsqSettings(**settings))  # type: ignore[arg-type]  # all of these are text
    assert context is not None
    return context


def shake_hands(context: TlsContext, authority: Authority, certificate: Path | None = None, **limits: ssl.TLSVersion) -> TlsLayer:
    """Shake hands as a client that trusts the authority; raises LayerFailed or ssl.SSLError if one of the ends does not like it."""
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.load_verify_locations(authority.certificate)
    if certificate is not None:
        client_context.load_cert_chain(certificate)
    for name, value in limits.items():
        setattr(client_context, name, value)
    server, client = TlsLayer(context), TlsLayer(client_context, "test.invalid")
    to_server = client.send(b"")
    for _ in range(4):
        server.receive(to_server)
        client.receive(server.send(b""))
        to_server = client.send(b"")
    assert server.established
    assert client.established
    assert server.receive(client.send(b"ping")) == b"ping"
    big = bytes(range(256)) * 800
    assert client.receive(server.send(big)) == big
    client.receive(server.close())
    assert client.closing
    return server


@pytest.mark.parametrize(
    ("required", "policy", "tcp", "http"),
    [
        ("false", "none", False, False),
        ("tcp-https", "none", True, False),
        ("true", "none", True, True),
        ("false", "require", True, True),
        ("false", "require-verify", True, True),
        ("tcp-https", "require-verify", True, False),
    ],
)
def test_what_is_required(required: str, policy: str, *, tcp: bool, http: bool) -> None:
    section = NsqSettings(tls_required=required, tls_client_auth_policy=policy)
    assert (tcp_requires_tls(section), http_requires_tls(section)) == (tcp, http)


def test_who_vouches_for_servers_that_we_ask(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(authority.certificate.parent))
    for name in (str(authority.certificate), f"~/{authority.certificate.name}"):
        context = client_context(NsqSettings(tls_root_ca_file=name))
        assert len(context.get_ca_certs()) == 1
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
    with pytest.raises(ConfigError, match=r"nsq\.tls_root_ca_file: ~/none: No such file or directory"):
        client_context(NsqSettings(tls_root_ca_file="~/none"))


def test_without_a_certificate_there_is_no_tls_and_it_cannot_be_required() -> None:
    assert server_context(NsqSettings()) is None
    with pytest.raises(ConfigError, match="cannot be required without"):
        server_context(NsqSettings(tls_required="tcp-https"))


def test_a_client_without_a_certificate_is_welcome(settings: Mapping[str, str], authority: Authority) -> None:
    layer = shake_hands(made(**settings), authority)
    assert (layer.version, layer.peer_common_name) == ("TLSv1.3", "")
    assert layer.cipher_suite.startswith("TLS_AES")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("policy", ["require", "require-verify"])
def test_a_client_that_is_vouched_for(policy: str, version: ssl.TLSVersion, settings: Mapping[str, str], authority: Authority) -> None:
    context = made(**settings, tls_client_auth_policy=policy, tls_root_ca_file=str(authority.certificate))
    layer = shake_hands(context, authority, authority.issue("somebody"), maximum_version=version)
    assert layer.peer_common_name == "somebody"
    assert layer.version == ("TLSv1.3" if version is ssl.TLSVersion.TLSv1_3 else "TLSv1.2")
    assert layer.cipher_suite


def test_any_certificate_means_any(settings: Mapping[str, str], authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    both = tmp_path / "both.pem"
    both.write_bytes(stranger.certificate.read_bytes() + stranger.key.read_bytes())
    for certificate in (both, stranger.issue("unknown"), authority.issue("old", days=-1)):
        layer = shake_hands(made(**settings, tls_client_auth_policy="require"), authority, certificate)
        assert layer.peer_common_name in {"stranger", "unknown", "old"}


@pytest.mark.parametrize("policy", ["require", "require-verify"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_certificate_is_a_failed_handshake(
    policy: str, version: ssl.TLSVersion, settings: Mapping[str, str], authority: Authority
) -> None:
    context = made(**settings, tls_client_auth_policy=policy, tls_root_ca_file=str(authority.certificate))
    with pytest.raises(LayerFailed, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(context, authority, maximum_version=version)


def test_certificates_that_nobody_vouches_for(settings: Mapping[str, str], authority: Authority, tmp_path: Path) -> None:
    context = made(**settings, tls_client_auth_policy="require-verify", tls_root_ca_file=str(authority.certificate))
    for certificate in (Authority(tmp_path, "stranger").issue("unknown"), authority.issue("old", days=-1)):
        with pytest.raises(LayerFailed, match="CERTIFICATE_VERIFY_FAILED"):
            shake_hands(context, authority, certificate)
    systems = made(**settings, tls_client_auth_policy="require-verify")
    with pytest.raises(LayerFailed, match="CERTIFICATE_VERIFY_FAILED"):
        shake_hands(systems, authority, authority.issue("somebody"))


@pytest.mark.parametrize("policy", ["none", "require"])
def test_garbage_instead_of_a_handshake(policy: str, settings: Mapping[str, str]) -> None:
    with pytest.raises(LayerFailed, match="TLS"):
        TlsLayer(made(**settings, tls_client_auth_policy=policy)).receive(b"SUB topic channel\n" * 5)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize("policy", ["none", "require"])
def test_versions(policy: str, settings: Mapping[str, str], authority: Authority) -> None:
    client = authority.issue("somebody")
    newest = made(**settings, tls_client_auth_policy=policy, tls_min_version="tls1.3")
    shake_hands(newest, authority, client)
    with pytest.raises(LayerFailed, match="UNSUPPORTED_PROTOCOL"):
        shake_hands(newest, authority, client, maximum_version=ssl.TLSVersion.TLSv1_2)
    oldest = made(**settings, tls_client_auth_policy=policy, tls_min_version="ssl3.0")
    shake_hands(oldest, authority, client, maximum_version=ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize("policy", ["none", "require"])
def test_files_that_are_no_use(policy: str, authority: Authority, tmp_path: Path) -> None:
    good = str(authority.issue("good"))
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    for certificate, key, reason in (
        (str(tmp_path / "none.pem"), good, "No such file"),
        (good, str(authority.key), "mismatch"),
        (str(empty), good, ""),
        (good, "", ""),
    ):
        with pytest.raises(ConfigError, match=rf"(?i)nsq\.tls_cert.*{reason}"):
            server_context(NsqSettings(tls_cert=certificate, tls_key=key, tls_client_auth_policy=policy))


def test_roots_that_are_no_use_and_keys_with_a_password(settings: Mapping[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        made(**settings, tls_root_ca_file=str(tmp_path / "none.pem"))
    certificate = Path(settings["tls_cert"]).read_text(encoding="ascii")
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_text(certificate.split("-----BEGIN PRIVATE KEY")[0] + _ENCRYPTED, encoding="ascii")
    with pytest.raises(ConfigError, match="nobody to ask for its password"):
        server_context(NsqSettings(tls_cert=str(encrypted), tls_key=str(encrypted)))


# openssl genpkey -algorithm ED25519 -aes256 -pass pass:secret
_ENCRYPTED = """-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAhix0HS+ImOsQICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEBjMaqWQDylTLeOqqyUbI8oEQJry
YLgH3VuWoGCI6eCa8yMJy5do5e/dMXlUNC2SRHYQ28AnswT+a/uFLjW46SOyQj9q
6q3TpDI0kyVCBD5Q41U=
-----END ENCRYPTED PRIVATE KEY-----
"""
