"""Where a command finds the broker: the same settings that `polymq serve` reads say where it listens."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from polymq import config
from polymq.config_values import Address, TcpAddress
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["address_of", "secret", "tcp_address_of"]

# A listener on every interface is reached through the loopback interface from this machine.
REACHED_AT: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}  # noqa: S104 - nothing is bound here


def address_of(name: str, given: str | None, *, environment: Mapping[str, str] = os.environ) -> Address:
    """Return where to reach the listener `name` ("nsq.tcp"): the address given, else the configured one.

    Raises ConfigError if there is none.
    """
    settings = config.load(environment=environment, flags={} if given is None else {name: given})
    setting = config.all_settings()[name]
    address = getattr(getattr(settings, setting.section), setting.field)
    if address is None:
        raise ConfigError([f"{name} is off: name the broker with {setting.flag} HOST:PORT"])
    assert isinstance(address, Address)
    if isinstance(address, TcpAddress):
        return replace(address, host=REACHED_AT.get(address.host, address.host))
    return address


def tcp_address_of(name: str, given: str | None, *, environment: Mapping[str, str] = os.environ) -> TcpAddress:
    """Return the same where only TCP will do. Raises ConfigError for a Unix socket."""
    address = address_of(name, given, environment=environment)
    if not isinstance(address, TcpAddress):
        raise ConfigError([f"{name} is a Unix socket; this command needs HOST:PORT: {config.all_settings()[name].flag} HOST:PORT"])
    return address


def secret(environment: Mapping[str, str] = os.environ) -> str:
    """Return what to show a broker that wants a secret: not a flag, because everybody on the machine can read those."""
    return environment.get("POLYMQ_SECRET", "")
