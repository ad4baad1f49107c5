"""TLS and the dialect of a bridge's ends reach the clients of every protocol."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest

from polymq.cli import bridge_reach
from polymq.cli.bridge_reach import SYSTEM, Reach, broker_of
from polymq.clients.bridge_address import parse_end
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

PROTOCOLS = ("nsq", "nats", "rocketmq", "phpmq")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options that brokers are made with."""
    found: list[Any] = []
    monkeypatch.setattr(bridge_reach, "Broker", lambda _url, options: found.append(options))
    return found


def reach(protocol: str, how: Reach) -> None:
    broker_of(parse_end(f"{protocol}://h/t", is_source=True), how)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_tls_there_is_none(given: list[Any], protocol: str) -> None:
    reach(protocol, Reach())
    assert given[0].tls is None
    assert given[0].deadline_seconds == 10.0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls_is_asked_for_with_the_systems_authorities_or_a_file(given: list[Any], tmp_path: Path, protocol: str) -> None:
    reach(protocol, Reach(SYSTEM))
    tls = given[0].tls
    assert isinstance(tls, ssl.SSLContext) if protocol in ("nats", "phpmq") else tls.root_file is None
    wrong = tmp_path / "none.pem"
    for text in (None, "no certificate"):
        if text is not None:
            wrong.write_text(text)
        with pytest.raises(ConfigError, match=r"none\.pem has no certificates"):
            reach(protocol, Reach(str(wrong)))


def test_bodies_are_not_packed_for_rocketmq_and_phpmq_may_speak_its_older_dialect(given: list[Any]) -> None:
    reach("rocketmq", Reach())
    assert given[0].compress_above_bytes > 1 << 30
    reach("phpmq", Reach(is_legacy=True))
    reach("phpmq", Reach())
    assert [each.legacy for each in given[1:]] == [True, False]
