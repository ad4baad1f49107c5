"""Fixtures: a server of each kind for the whole session, fresh topics, a client of each library."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from tests.interop.jobs import CLIENTS, Client
from tests.interop.servers import KINDS, ROOT, Running, running

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS = itertools.count()
# Servers and clients are processes of their own; they run the source beside these tests, installed or not.
os.environ["PYTHONPATH"] = str(ROOT / "src")
# A server is no directory as well unless a test asks for one.
os.environ["POLYMQ_NSQ_LOOKUP_TCP"] = os.environ["POLYMQ_NSQ_LOOKUP_HTTP"] = "off"


def chosen_kinds() -> list[str]:
    """Both servers, unless POLYMQ_INTEROP_SERVERS names some (a tool for development; CI runs both)."""
    named = os.environ.get("POLYMQ_INTEROP_SERVERS", "")
    return [kind for kind in KINDS if not named or kind in named.split(",")]


@pytest.fixture(scope="session", params=chosen_kinds())
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server; tests keep apart by their topics."""
    with running(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(scope="session", params=chosen_kinds())
def impatient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that takes a message back after a second, for what would otherwise last a minute."""
    with running(request.param, tmp_path_factory.mktemp(f"impatient-{request.param}"), message_timeout_ms=1000) as started:
        yield started


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"interop-{os.getpid()}-{next(NUMBERS)}"


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """A client library."""
    found: Client = request.param
    return found
