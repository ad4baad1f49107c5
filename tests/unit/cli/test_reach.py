"""Commands find the broker by the settings that the broker reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.cli.reach import address_of, secret, tcp_address_of
from polymq.config_values import TcpAddress, UnixAddress
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_address_given_then_the_environment_then_the_default() -> None:
    environment = {"POLYMQ_NSQ_TCP": "h:2"}
    assert address_of("nsq.tcp", "h:1", environment=environment) == TcpAddress("h", 1)
    assert address_of("nsq.tcp", None, environment=environment) == TcpAddress("h", 2)
    assert address_of("nsq.tcp", None, environment={}) == TcpAddress("127.0.0.1", 4150)


@pytest.mark.parametrize(("listening", "reached"), [("0.0.0.0:1", TcpAddress("127.0.0.1", 1)), ("[::]:1", TcpAddress("::1", 1))])
def test_every_interface_is_reached_through_loopback(listening: str, reached: TcpAddress) -> None:
    assert address_of("nsq.tcp", None, environment={"POLYMQ_NSQ_TCP": listening}) == reached


def test_a_unix_socket_where_it_will_do() -> None:
    assert address_of("nsq.tcp", "unix:/x", environment={}) == UnixAddress("/x")
    with pytest.raises(ConfigError, match="needs HOST:PORT: --nsq HOST:PORT"):
        tcp_address_of("nsq.tcp", "unix:/x", environment={})
    assert tcp_address_of("nsq.tcp", "h:1", environment={}) == TcpAddress("h", 1)


def test_a_listener_that_is_off() -> None:
    with pytest.raises(ConfigError, match=r"nsq\.tcp is off: name the broker with --nsq"):
        address_of("nsq.tcp", None, environment={"POLYMQ_NSQ_TCP": "off"})


def test_a_secret_comes_from_the_environment() -> None:
    assert secret({"POLYMQ_SECRET": "planted"}) == "planted"
    assert secret({}) == ""
