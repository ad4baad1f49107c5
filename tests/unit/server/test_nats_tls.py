"""A block `tls` of nats-server's, as TLS for clients."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from polymq.errors import ConfigError
from polymq.server.nats_settings import ClusterSettings, NatsServerSettings, TlsSettings
from polymq.server.nats_tls import accepting_context, check_files, make_client_tls
from polymq.wire.tls import TlsLayer
from tests.unit.wire.authority import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.gateways.nats.house import ClientTls

SECOND_NS = 1_000_000_000


@pytest.fixture
def block(tmp_path: Path) -> TlsSettings:
    authority = Authority(tmp_path)
    certificate = str(authority.issue("localhost"))
    return TlsSettings(certificate, certificate, str(authority.certificate))


def made(block: TlsSettings, *, allow_non_tls: bool = False) -> ClientTls:
    tls = make_client_tls(NatsServerSettings(tls=block, allow_non_tls=allow_non_tls))
    assert tls is not None
    return tls


def test_without_a_block_there_is_none() -> None:
    assert make_client_tls(NatsServerSettings()) is None


def test_what_a_block_says(block: TlsSettings) -> None:
    tls = made(replace(block, timeout_ns=7 * SECOND_NS))
    assert isinstance(tls.make(), TlsLayer)
    assert tls.make() is not tls.make()
    assert (tls.required, tls.optional, tls.verified, tls.first, tls.fallback_ns, tls.timeout_ns) == (
        True,
        False,
        False,
        False,
        0,
        7 * SECOND_NS,
    )
    tls = made(replace(block, verify=True), allow_non_tls=True)
    assert (tls.required, tls.optional, tls.verified) == (False, True, True)
    tls = made(replace(block, handshake_first=True, fallback_delay_ns=5), allow_non_tls=True)
    assert (tls.required, tls.optional, tls.first, tls.fallback_ns) == (True, True, True, 5)


def test_how_strict_it_is(block: TlsSettings) -> None:
    context = accepting_context(block, verify=False, name="tls")
    assert (context.verify_mode, context.minimum_version) == (ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2)
    context = accepting_context(replace(block, min_version="1.3"), verify=True, name="tls")
    assert (context.verify_mode, context.minimum_version) == (ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_3)
    assert len(context.get_ca_certs()) == 1
    assert accepting_context(replace(block, ca_file=""), verify=True, name="tls").verify_mode is ssl.CERT_REQUIRED


def test_files_that_cannot_be_used_are_told(block: TlsSettings, tmp_path: Path) -> None:
    nothing, broken = tmp_path / "nothing.pem", tmp_path / "broken.pem"
    nothing.write_text("nothing")
    broken.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    for field, file, reason in (
        ("cert_file", "/nowhere/x", "/nowhere/x cannot be read: No such file or directory; name a file that this process may read"),
        ("cert_file", str(nothing), f"there is no certificate in {nothing}; it must be in PEM form"),
        ("key_file", str(nothing), f"there is no private key in {nothing}; it must be in PEM form"),
        ("key_file", str(tmp_path / "authority.key"), f"is not the key of the certificate in {block.cert_file}"),
        ("ca_file", str(nothing), f"there is no certificate in {nothing}"),
        ("ca_file", str(broken), f"{broken} cannot be used: "),
        ("ca_file", str(tmp_path), f"{tmp_path} cannot be read: Is a directory"),
    ):
        wrong = replace(block, **{field: file}, places=((field, "server.conf:7"),))  # type: ignore[arg-type]
        with pytest.raises(ConfigError) as caught:
            made(wrong)
        (problem,) = caught.value.problems
        assert problem.startswith(f"server.conf:7: tls.{field}: ")
        assert reason in problem


def test_all_files_of_both_blocks_are_looked_at(block: TlsSettings) -> None:
    check_files(NatsServerSettings())
    check_files(NatsServerSettings(tls=block, cluster=ClusterSettings(tls=block)))
    wrong = replace(block, cert_file="/nowhere/c", ca_file="/nowhere/a")
    with pytest.raises(ConfigError) as caught:
        check_files(NatsServerSettings(tls=wrong, cluster=ClusterSettings(tls=wrong)))
    names = [problem.partition(": ")[0] for problem in caught.value.problems]
    assert names == ["tls.cert_file", "tls.ca_file", "cluster.tls.cert_file", "cluster.tls.ca_file"]
