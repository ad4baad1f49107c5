"""The NATS client before anything is sent; with servers it is run by tests/interop/test_connect.py."""

from __future__ import annotations

import asyncio

import pytest

from polymq.clients.nats import NatsOptions, NatsPublisher, NatsSubscriber
from polymq.errors import LocalProtocolError


def test_names_that_no_server_takes_are_refused_before_there_is_one() -> None:
    async def go() -> None:
        with pytest.raises(LocalProtocolError):
            NatsSubscriber("h:1", "a b")
        with pytest.raises(LocalProtocolError):
            NatsSubscriber("h:1", "a", waiting_max=0)
        with pytest.raises(LocalProtocolError):
            await NatsPublisher("h:1").publish("a.*", b"x")

    asyncio.run(go())


def test_secrets_are_not_shown() -> None:
    assert "geheim" not in repr(NatsOptions(user="ann", secret="geheim", token="geheim"))
