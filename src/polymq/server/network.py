"""The real network: non-blocking sockets behind the ports of `ports.py`.

An address is `HOST:PORT` (`[::1]:4150` for IPv6, an empty host for all interfaces) or `unix:PATH`.
"""

from __future__ import annotations

import contextlib
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from polymq.errors import ConfigError
from polymq.gateways.contract import Peer

__all__ = ["Address", "SocketListener", "SocketStream"]

_PORT_MAX: Final = 65_535
_UNIX_PREFIX: Final = "unix:"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: `host` and `port`, or `path` of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`; raises ConfigError."""
        if text.startswith(_UNIX_PREFIX):
            path = text.removeprefix(_UNIX_PREFIX)
            if not path:
                raise ConfigError([f"{text!r}: a path is missing after {_UNIX_PREFIX}"])
            return cls(path=path)
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
            raise ConfigError([f"{text!r} is not an address: write HOST:PORT or unix:PATH"])
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ConfigError([f"{text!r} is not an address: write IPv6 addresses as [HOST]:PORT"])
        return cls(host=host, port=int(port))

    def __str__(self) -> str:
        if self.path:
            return _UNIX_PREFIX + self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SocketStream:
    """A connected socket as a `Stream`. The two hot calls are the socket's own."""

    __slots__ = ("_socket", "recv_into", "send")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.recv_into = connected.recv_into
        self.send = connected.send

    def fileno(self) -> int:
        """Return the descriptor, for the poller."""
        return self._socket.fileno()

    def end_output(self) -> None:
        """Tell the peer that nothing more will come."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let go of the connection."""
        self._socket.close()


class SocketListener:
    """A listening socket as a `Listener`."""

    def __init__(self, address: Address, *, backlog: int) -> None:
        """Bind and listen; raises OSError. A unix socket that nobody listens on any more is replaced."""
        self._path = address.path
        if address.path:
            self._socket = _listen_unix(address.path, backlog)
            self.address = str(address)
        else:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            dual = address.host == "" and socket.has_dualstack_ipv6()
            self._socket = socket.create_server(
                (address.host, address.port),
                family=socket.AF_INET6 if dual else family,
                backlog=backlog,
                dualstack_ipv6=dual,
            )
            host, port = self._socket.getsockname()[:2]
            self.address = str(Address(host=host, port=port))
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, for the poller."""
        return self._socket.fileno()

    def accept(self) -> tuple[SocketStream, Peer]:
        """Take the next waiting connection; raises BlockingIOError when there is none."""
        connected, peer = self._socket.accept()
        connected.setblocking(False)
        if self._path:
            return SocketStream(connected), Peer(host=self._path, port=0, listener=self.address)
        # Answers are gathered into one write per turn already; waiting for more would only add a delay.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return SocketStream(connected), Peer(host=peer[0], port=peer[1], listener=self.address)

    def close(self) -> None:
        """Take no more connections; a unix socket's file goes."""
        self._socket.close()
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                Path(self._path).unlink()


def _listen_unix(path: str, backlog: int) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_stale(path):
            Path(path).unlink()
        listening.bind(path)
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


def _is_stale(path: str) -> bool:
    """Whether `path` is a socket that a process left behind: nobody answers on it."""
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            return False
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
    return False
