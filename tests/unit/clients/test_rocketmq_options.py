"""What a client is told."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from polymq.clients.rocketmq_options import RocketMQOptions, addresses_of, new_client_id, open_socket, own_address
from polymq.errors import ConnectFailed, LocalProtocolError


@pytest.mark.parametrize(
    "values",
    [
        {"request_seconds": 0},
        {"send_seconds": -1},
        {"deadline_seconds": 0},
        {"heartbeat_seconds": 0},
        {"route_seconds": 0},
        {"reconnect_seconds_first": 0},
        {"reconnect_seconds_first": 2, "reconnect_seconds_max": 1},
        {"send_retries": -1},
        {"compress_above_bytes": -1},
        {"compression_level": 10},
        {"access_key": "a"},
        {"secret_key": "s"},
    ],
)
def test_options_that_would_never_work(values: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        RocketMQOptions(**values)


def test_secrets_are_not_shown() -> None:
    shown = repr(RocketMQOptions(access_key="who", secret_key="what nobody sees", security_token="nor this"))
    assert "who" in shown
    assert "nobody" not in shown
    assert "nor this" not in shown


def test_addresses_of_name_servers() -> None:
    assert addresses_of("a:1;b:2") == ("a:1", "b:2")
    assert addresses_of(["a:1", "[::1]:9876"]) == ("a:1", "[::1]:9876")
    for wrong in ("", "a", "a:0", "a:b", ":1", "a:65536", ["a:1", "b"]):
        with pytest.raises(LocalProtocolError):
            addresses_of(wrong)


def test_client_ids_have_the_form_of_java() -> None:
    ip, _, rest = new_client_id().partition("@")
    assert ip == own_address()
    assert all(part.isdecimal() for part in rest.split("#"))
    assert new_client_id("mine") == f"{ip}@mine"
    assert new_client_id(clock_ns=lambda: 1) != new_client_id(clock_ns=lambda: 2)


def test_sockets_that_cannot_be_connected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for address in (f"127.0.0.1:{port}", "nothing", "a:b"):
        with pytest.raises(ConnectFailed):
            asyncio.run(open_socket(address, asyncio.Protocol, None))
