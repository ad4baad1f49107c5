"""The client of the log's door fetches the broker's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.clients.log import Family, LogClient
from polymq.errors import RemoteProtocolError
from tests.unit.clients.fake_log import FakeLog

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def log() -> Iterator[FakeLog]:
    fake = FakeLog()
    yield fake
    fake.close()


@pytest.fixture
def client(log: FakeLog) -> Iterator[LogClient]:
    client = LogClient(log.address, timeout_seconds=5)
    yield client
    client.close()


def test_statistics_are_read_by_family(log: FakeLog, client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"families":[{"name":"n","kind":"gauge","help":"h","samples":[{"labels":{"topic":"t"},"value":3}]}]}'
    monkeypatch.setattr(log, "answer", lambda path: (200, {}, body))
    assert client.statistics() == (Family("n", "gauge", "h", (({"topic": "t"}, 3),)),)
    monkeypatch.setattr(log, "answer", lambda path: (200, {}, b'{"families":[{}]}'))
    with pytest.raises(RemoteProtocolError, match="is not what it should be"):
        client.statistics()
