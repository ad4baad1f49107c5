"""The plain port of a node that requires TLS, as nsqd 1.3.0 answers there."""

from __future__ import annotations

import pytest

from polymq.gateways.nsq.http import TlsRequired
from tests.unit.gateways.nsq.http_world import NsqWorld


@pytest.mark.parametrize(("method", "path"), [("GET", "/ping"), ("POST", "/pub?topic=t"), ("GET", "/nope"), ("DELETE", "/stats")])
def test_everything_is_refused(method: str, path: str) -> None:
    world = NsqWorld()
    world.router = TlsRequired(4152)
    answer = world.ask(method, path, b"abc")
    assert answer.status == 403
    assert answer.body == b'{"message": "TLS_REQUIRED", "https_port": 4152}'
    assert answer.headers["X-Nsq-Content-Type"] == "nsq; version=1.0"
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert world.session.topic_names() == []
