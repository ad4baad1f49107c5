"""How an NSQ connection begins: find the server, introduce the client, put TLS and compression in place, log in.

The server answers IDENTIFY in plain text, then each layer that was agreed on with an OK inside it, TLS before
compression; some servers send the next answer before they know that we have read the last. So until all is in place
answers are read one by one (`NsqConnection.add_layer`). What does not shake hands is not spoken to in plain text.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from polymq.clients.nsq_connection import NsqConnection
from polymq.errors import ConnectFailed, ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal, RefusalCode, RemoteProtocolError
from polymq.protocols.nsq import frames
from polymq.wire.deflate import DEFLATE_LEVEL_MAX, DeflateLayer
from polymq.wire.snappy import SnappyLayer
from polymq.wire.tls import TlsLayer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from polymq.wire.layers import Layer

__all__ = ["NsqOptions", "NsqTls", "check_address", "connect", "open_socket"]

_OK: Final = b"OK"
_PORT_MAX: Final = 65535
_SAMPLE_PERCENT_MAX: Final = 99
# What nsqd uses when a client that wants deflate does not say.
_DEFLATE_LEVEL: Final = 6

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NsqTls:
    """How to be sure of the server, and how to be known to it. Files are PEM.

    Without `root_file` the system's authorities count. `server_name` is the name in the server's certificate, if it is
    not the host in its address. `insecure` takes any server for the right one: for tests, and said in the log.
    """

    root_file: Path | str | None = None
    certificate_file: Path | str | None = None
    key_file: Path | str | None = None
    server_name: str = ""
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """Make what a handshake needs; raises OSError when a file is not what it should be."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.insecure:
            log.warning("TLS without a look at the server's certificate: anybody between here and there can read and write")
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.root_file is not None:
            context.load_verify_locations(self.root_file)
        else:
            context.load_default_certs()
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return context


@dataclass(frozen=True, slots=True)
class NsqOptions:
    """How a client introduces itself, what it asks for, and how patient it is.

    Compression is asked for; a server that does not have it is served without. TLS is insisted on. The secret is sent
    whenever the server wants one, and shown to nsqlookupd.

    Units:   as the names say. `reconnect_seconds_first` doubles with each attempt up to the other, give or take half.
    Raises:  LocalProtocolError when a value makes no sense.
    """

    client_id: str = ""
    user_agent: str = "polymq"
    heartbeat_interval_ms: int = 30_000
    message_timeout_ms: int = 0  # 0: the server's own
    sample_percent: int = 0  # for consumers: about so many of a channel's messages, the others are lost to it; 0: all
    tls: NsqTls | None = None
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = _DEFLATE_LEVEL
    auth_secret: str = field(default="", repr=False)
    deadline_seconds: float = 30.0  # for an answer, and for finding a server
    reconnect_seconds_first: float = 0.1
    reconnect_seconds_max: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what no server would take."""
        if self.snappy and self.deflate:
            raise LocalProtocolError("a connection is compressed by snappy or by deflate, not by both")
        if not 0 <= self.sample_percent <= _SAMPLE_PERCENT_MAX:
            raise LocalProtocolError(f"sample_percent is {self.sample_percent}; it must be 0 (for all) to {_SAMPLE_PERCENT_MAX}")
        if not 1 <= self.deflate_level <= DEFLATE_LEVEL_MAX:
            raise LocalProtocolError(f"deflate_level is {self.deflate_level}; it must be 1 to {DEFLATE_LEVEL_MAX}")
        if not self.deadline_seconds > 0:
            raise LocalProtocolError(f"deadline_seconds is {self.deadline_seconds}; it must be more than 0")
        if not 0 < self.reconnect_seconds_first <= self.reconnect_seconds_max:
            waits = f"{self.reconnect_seconds_first} and {self.reconnect_seconds_max}"
            raise LocalProtocolError(
                f"the first and the longest wait before reconnecting are {waits} s; they must be more than 0, in this order"
            )

    def wishes(self) -> dict[str, object]:
        """What IDENTIFY says."""
        hostname = socket.gethostname()
        return {
            "client_id": self.client_id or hostname.split(".")[0],
            "hostname": hostname,
            "user_agent": self.user_agent,
            "feature_negotiation": True,
            "heartbeat_interval": self.heartbeat_interval_ms,
            "msg_timeout": self.message_timeout_ms,
            "sample_rate": self.sample_percent,
            "tls_v1": self.tls is not None,
            "snappy": self.snappy,
            "deflate": self.deflate,
            "deflate_level": self.deflate_level,
        }


def check_address(address: str) -> None:
    """Refuse what is neither `host:port` nor `unix:path`: trying it again would not help. Raises LocalProtocolError."""
    host, port = _host_and_port(address)
    is_port = port.isascii() and port.isdecimal() and 0 < int(port[: len(str(_PORT_MAX)) + 1]) <= _PORT_MAX
    if not (len(address) > len("unix:") if address.startswith("unix:") else host and is_port):
        raise LocalProtocolError(f"{address!r} is not the address of a server, which is HOST:PORT or unix:PATH")


async def open_socket(address: str, factory: Callable[[], asyncio.Protocol]) -> None:
    """Connect `host:port` or `unix:path`."""
    loop = asyncio.get_running_loop()
    if address.startswith("unix:"):
        await loop.create_unix_connection(factory, address.removeprefix("unix:"))
        return
    host, port = _host_and_port(address)
    await loop.create_connection(factory, host, int(port))


def _host_and_port(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


async def connect(
    address: str,
    options: NsqOptions,
    opener: Callable[[str, Callable[[], asyncio.Protocol]], Awaitable[None]] = open_socket,
) -> NsqConnection:
    """Open a connection, introduce the client and put in place what was agreed on.

    Raises:  ConnectFailed, DeadlineExceeded, or what IDENTIFY or AUTH was refused with.
    """
    connection = NsqConnection(options.heartbeat_interval_ms)
    try:
        async with asyncio.timeout(options.deadline_seconds):
            context = options.tls.context() if options.tls is not None else None
            await opener(address, lambda: connection)
            connection.send(frames.MAGIC)
            connection.agreed = _agreed(await connection.request(frames.identify(options.wishes())))
            await _agree(connection, address, options, context)
    except TimeoutError as error:
        connection.abort(ConnectionLost("the server took too long to answer"))
        raise DeadlineExceeded(f"{address} did not answer within {options.deadline_seconds:g} s") from error
    except (OSError, ValueError) as error:
        connection.abort(ConnectionLost("the connection was given up"))
        raise ConnectFailed(f"{address}: {error}") from error
    except BaseException:
        connection.abort(ConnectionLost("the connection was given up"))
        raise
    connection.begin()
    return connection


async def _agree(connection: NsqConnection, address: str, options: NsqOptions, context: ssl.SSLContext | None) -> None:
    """Put the layers in place, then log in."""
    agreed = connection.agreed
    if context is not None:
        assert options.tls is not None
        if agreed.get("tls_v1") is not True:
            raise Refusal(RefusalCode.UNAUTHENTICATED, f"{address} does not offer TLS, which was asked for")
        name = options.tls.server_name or (_host_and_port(address)[0] if not address.startswith("unix:") else "localhost")
        await _upgrade(connection, TlsLayer(context, name))
    if options.snappy and agreed.get("snappy") is True:
        await _upgrade(connection, SnappyLayer())
    elif options.deflate and agreed.get("deflate") is True:
        level = agreed.get("deflate_level")
        await _upgrade(connection, DeflateLayer(level if isinstance(level, int) and 0 <= level <= DEFLATE_LEVEL_MAX else _DEFLATE_LEVEL))
    if agreed.get("auth_required") is True:
        if not options.auth_secret:
            raise Refusal(RefusalCode.UNAUTHENTICATED, f"{address} wants a secret, and auth_secret is empty")
        connection.identity = _agreed(await connection.request(frames.auth(options.auth_secret)))


async def _upgrade(connection: NsqConnection, layer: Layer) -> None:
    answer = await connection.add_layer(layer)
    if answer != _OK:
        raise RemoteProtocolError(f"an upgrade was answered with {answer[:40]!r}")


def _agreed(reply: bytes) -> Mapping[str, Any]:
    """Read the reply to IDENTIFY; a server that does not negotiate answers with a plain OK, which agrees to nothing."""
    try:
        agreed = json.loads(reply) if reply.startswith(b"{") else {}
    except (ValueError, RecursionError):
        agreed = {}
    assert isinstance(agreed, dict)
    return agreed
