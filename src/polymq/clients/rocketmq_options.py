"""What a RocketMQ client is told: where to be secure, how patient to be, who it is."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from polymq.clients.nsq_opening import NsqTls
from polymq.errors import ConnectFailed, LocalProtocolError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

__all__ = [
    "Opener",
    "RocketMQOptions",
    "RocketMQTls",
    "addresses_of",
    "new_client_id",
    "open_socket",
]


class Opener(Protocol):
    """Connects to a server, inside TLS if there is a context: raises ConnectFailed, OSError or ValueError."""

    async def __call__(self, address: str, factory: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None, /) -> None:
        """Make a protocol object and connect it."""


_PORT_MAX: Final = 65535
_COMPRESSION_LEVEL_MAX: Final = 9
_SEPARATORS: Final = re.compile(r"[;,\s]+")


@dataclass(frozen=True, slots=True)
class RocketMQTls(NsqTls):
    """How to be sure of the servers, and how to be known to them, with the fields of `NsqTls`: the same for all of them."""


@dataclass(frozen=True, slots=True)
class RocketMQOptions:
    """What is the same for everything that a client does.

    With an access key every request is signed (ACL 1.0). A namespace stands before every topic and group on the wire
    and never appears in messages. `binary` has the compact header sent instead of JSON; servers answer in kind.

    Units:   as the names say. `reconnect_seconds_first` doubles with each attempt up to the other, give or take half.
    Raises:  LocalProtocolError when a value makes no sense.
    """

    tls: RocketMQTls | None = None
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    namespace: str = ""
    binary: bool = False
    instance: str = ""  # stands for the process in the client's id; "" is its number and the time
    request_seconds: float = 3.0  # for an answer, reaching the server included
    send_seconds: float = 3.0  # for a message to be accepted, all attempts included
    send_retries: int = 2  # on another queue
    compress_above_bytes: int = 4096
    compression_level: int = 5
    deadline_seconds: float = 30.0  # for a name server or a broker to be there when a client starts
    heartbeat_seconds: float = 30.0
    route_seconds: float = 30.0  # a route is asked for again when it is as old
    reconnect_seconds_first: float = 0.1
    reconnect_seconds_max: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what would never work."""
        waits = (self.request_seconds, self.send_seconds, self.deadline_seconds, self.heartbeat_seconds, self.route_seconds)
        if not all(each > 0 for each in waits):
            raise LocalProtocolError(f"every time is more than 0 seconds: {self}")
        if not 0 < self.reconnect_seconds_first <= self.reconnect_seconds_max:
            raise LocalProtocolError(f"the first and the longest wait before reconnecting must be more than 0, in this order: {self}")
        if self.send_retries < 0 or self.compress_above_bytes < 0:
            raise LocalProtocolError(f"neither retries nor sizes are negative: {self}")
        if not 0 <= self.compression_level <= _COMPRESSION_LEVEL_MAX:
            raise LocalProtocolError(f"compression_level is {self.compression_level}; it must be 0 to {_COMPRESSION_LEVEL_MAX}")
        if bool(self.access_key) != bool(self.secret_key):
            raise LocalProtocolError("access_key and secret_key are given together")


def addresses_of(text: str | Sequence[str]) -> tuple[str, ...]:
    """Read the addresses of name servers: a list, or one text with `;` between them; raises LocalProtocolError."""
    parts = _SEPARATORS.split(text) if isinstance(text, str) else [part for each in text for part in _SEPARATORS.split(each)]
    found = tuple(part for part in parts if part)
    if not found:
        raise LocalProtocolError("no name server: there is nobody to ask")
    for each in found:
        host, _, port = each.rpartition(":")
        if not (host and port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= _PORT_MAX):
            raise LocalProtocolError(f"{each!r} is not the address of a name server, which is HOST:PORT")
    return found


async def open_socket(address: str, factory: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None) -> None:
    """Connect `host:port`, inside TLS if there is a context; raises ConnectFailed."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not (host and port.isdecimal()):
        raise ConnectFailed(f"{address!r} is not the address of a server")
    try:
        await asyncio.get_running_loop().create_connection(factory, host, int(port), ssl=context)
    except (OSError, ValueError) as error:
        raise ConnectFailed(f"{address}: {error}") from error


def own_address() -> str:
    """Find the address that other machines see; nothing is sent for it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def new_client_id(instance: str = "", clock_ns: Callable[[], int] = time.perf_counter_ns) -> str:
    """Make the name under which the members of a group know this client: `ip@pid#nanoseconds`, or `ip@instance`."""
    return f"{own_address()}@{instance or f'{os.getpid()}#{clock_ns()}'}"
