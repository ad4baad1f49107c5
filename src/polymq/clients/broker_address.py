"""What the address of a broker says: which protocol, which servers, which group, who we are.

nsq://127.0.0.1:4150      nats://user:secret@nats1      rocketmq://ns1:9876,ns2:9876/board      phpmq://127.0.0.1
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from polymq.errors import LocalProtocolError

__all__ = ["BrokerAddress", "parse_address"]

# With the ports that stand for themselves.
_PORTS: Final = {"nsq": 4150, "nats": 4222, "rocketmq": 9876, "phpmq": 9100}
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker: `servers` are HOST:PORT; only RocketMQ has several, which are its name servers."""

    protocol: str
    servers: tuple[str, ...]
    group: str = ""
    user: str = ""
    secret: str = field(default="", repr=False)

    @property
    def server(self) -> str:
        """The only server."""
        (server,) = self.servers
        return server


def parse_address(url: str) -> BrokerAddress:
    """Read PROTOCOL://[USER[:SECRET]@]HOST[:PORT][,…][/GROUP]; raises LocalProtocolError, which does not repeat secrets."""
    protocol, separator, rest = url.partition("://")
    if not separator or protocol not in _PORTS:
        raise LocalProtocolError(f"the address of a broker begins with {', '.join(f'{each}://' for each in _PORTS)}")
    if any(each in rest for each in "?#") or not rest.isprintable() or " " in rest:
        raise LocalProtocolError(
            "the address of a broker has neither ?, # nor blanks: options are given as `options`, other characters as %XX"
        )
    place, _, group = rest.partition("/")
    login, _, hosts = place.rpartition("@")
    user, _, secret = login.partition(":")
    servers = tuple(_server(each, _PORTS[protocol]) for each in hosts.split(","))
    if len(servers) > 1 and protocol != "rocketmq":
        raise LocalProtocolError(f"{protocol}:// has one server: several are for rocketmq://, which has name servers")
    if "/" in group:
        raise LocalProtocolError("behind the servers stands a group and nothing else; a / in its name is written %2F")
    return BrokerAddress(protocol, servers, unquote(group), unquote(user), unquote(secret))


def _server(text: str, port: int) -> str:
    host, colon, digits = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, digits = text, str(port)
    is_port = digits.isascii() and digits.isdecimal() and 0 < int(digits[:6]) <= _PORT_MAX
    if not (host and is_port) or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise LocalProtocolError(f"{text!r} is not the address of a server, which is HOST:PORT or [IPV6]:PORT")
    return f"{host}:{int(digits)}"
