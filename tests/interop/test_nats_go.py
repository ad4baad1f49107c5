"""nats.go: what its README shows, by our program over it; and its example programs, as users type them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_jobs import CLUSTER_CHECKS, SINGLE_CHECKS, go_results
from tests.interop.nats_programs import Listener, output_of
from tests.interop.nats_secrets import nkey_of, tls_block
from tests.interop.nats_servers import SERVING_KINDS, NatsOptions, NatsServer, mixtures, nats_cluster, nats_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.wire.authority import Authority

pytestmark = pytest.mark.parametrize("kind", SERVING_KINDS, scope="module")


@pytest.fixture(scope="module")
def single(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(kind, tmp_path_factory.mktemp(kind)) as server:
        yield server


@pytest.mark.parametrize("check", SINGLE_CHECKS)
def test_what_the_readme_shows(single: NatsServer, kind: str, check: str) -> None:
    assert go_results([single], [check]) == {}


@pytest.mark.parametrize("mixture", [0, 1], ids=["alike", "mixed"])
def test_a_cluster(kind: str, mixture: int, tmp_path: Path) -> None:
    with nats_cluster(mixtures(kind)[mixture], tmp_path) as members:
        assert go_results(members, CLUSTER_CHECKS) == {}


def test_a_check_that_fails_says_so(single: NatsServer, kind: str) -> None:
    """`discovered` is about two servers, of which this one knows nothing."""
    found = go_results([single, single], ["sync", "discovered"])
    assert list(found) == ["discovered"]
    assert "only" in found["discovered"]


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        ('token: "s3cret"', {"token": "s3cret"}, {"token": "other"}),
        ('user: "me", password: "pass"', {"user": "me", "password": "pass"}, {"user": "me", "password": "word"}),
        ("users: [{nkey: NKEY}]", {"nkey_seed_file": "SEED"}, {}),
    ],
    ids=["token", "password", "nkey"],
)
def test_secrets(kind: str, tmp_path: Path, rule: str, right: dict[str, str], wrong: dict[str, str]) -> None:
    public, seed = nkey_of(tmp_path)
    right = {name: value.replace("SEED", str(seed)) for name, value in right.items()}
    with nats_server(kind, tmp_path, NatsOptions(authorization=rule.replace("NKEY", public))) as server:
        assert go_results([server], ["sync", "reconnect"], **right) == {}
        assert "Authorization Violation" in go_results([server], ["sync"], **wrong)["sync"]


def test_tls(kind: str, tmp_path: Path, authority: Authority) -> None:
    files = {"tls_root_file": str(authority.certificate), "tls_cert_file": str(authority.issue("go-client"))}
    with nats_server(kind, tmp_path, NatsOptions(tls=tls_block(authority, "localhost", verify=True))) as server:
        assert go_results([server], ["sync", "request_reply", "headers"], **files) == {}
        assert "certificate" in go_results([server], ["sync"])["sync"]


# -- the example programs -------------------------------------------------------------------------------------------------


def test_publish_and_subscribe(single: NatsServer, kind: str) -> None:
    with Listener("nats-sub", single, "tools.>") as plain, Listener("nats-qsub", single, "tools.*", "group") as queued:
        assert "Published [tools.one]" in output_of("nats-pub", single, "tools.one", "hello you")
        assert "Received on [tools.one]: 'hello you'" in plain.says("Received")
        assert "Received on [tools.one] Queue[group]" in queued.says("'hello you'")


def test_request_and_reply(single: NatsServer, kind: str) -> None:
    with Listener("nats-rply", single, "tools.help", "here it is"):
        assert "'here it is'" in output_of("nats-req", single, "tools.help", "help")
    with Listener("nats-echo", single, "tools.echo"):
        assert "say it again" in output_of("nats-req", single, "tools.echo", "say it again").partition("Received")[2]


def test_the_benchmark(single: NatsServer, kind: str) -> None:
    said = output_of("nats-bench", single, "-np", "2", "-ns", "3", "-n", "2000", "-ms", "64", "tools.bench")
    assert re.search(r"NATS Pub/Sub stats: [\d,]+ msgs/sec", said), said
