"""The real network: non-blocking TCP and unix sockets behind the ports of `ports.py`."""

from __future__ import annotations

import contextlib
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq.config_values import TcpAddress, UnixAddress, format_address
from polymq.gateways.contract import Peer

if TYPE_CHECKING:
    from polymq.config_values import Address

__all__ = ["SocketListener", "SocketStream", "own_addresses"]

# What IPv4's addresses begin with where they are written as IPv6's.
_MAPPED: Final = "::ffff:"
# No packet goes there: the system only says from which of its addresses one would.
_ELSEWHERE: Final = ("192.0.2.1", 9)


# A peer whose machine has vanished is noticed within two minutes of silence, also where its protocol never asks. Where the system has a name for it.
_KEPT_ALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


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

    def __init__(self, address: Address, *, backlog: int, tells_local: bool = False) -> None:
        """Bind and listen; raises OSError. A unix socket that nobody listens on any more is replaced.

        `tells_local`: peers' `local_host` says which address of ours they have reached.
        """
        self._path = ""
        self._tells_local = tells_local
        self.bound: Address = address  # with the port that was opened
        if isinstance(address, UnixAddress):
            self._path = address.path
            self._socket = _listen_unix(address.path, backlog)
        else:
            self._socket = _listen_tcp(address, backlog)
            host, port = self._socket.getsockname()[:2]
            self.bound = TcpAddress(host, port)
        self.address = format_address(self.bound)
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
        local = _plain(connected.getsockname()[0]) if self._tells_local else ""
        return SocketStream(connected), Peer(host=_plain(peer[0]), port=peer[1], listener=self.address, local_host=local)

    def close(self) -> None:
        """Take no more connections; a unix socket's file goes."""
        self._socket.close()
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                Path(self._path).unlink()


def _plain(host: str) -> str:
    """Write the address of somebody who came by IPv4 to a listener of IPv6 as one of IPv4, as Go does."""
    unmapped = host.removeprefix(_MAPPED)
    return unmapped if "." in unmapped else host


def _listen_tcp(address: TcpAddress, backlog: int) -> socket.socket:
    """Listen on the first address of a host; `::` takes IPv4 in as well, where the system can. Connections have the options of the listener."""
    family, _, _, _, resolved = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    both = address.host == "::" and socket.has_dualstack_ipv6()
    listening = socket.create_server(resolved[:2], family=family, backlog=backlog, dualstack_ipv6=both)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEPT_ALIVE:
        if hasattr(socket, name):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return listening


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


def own_addresses() -> tuple[str, ...]:
    """List this machine's addresses for others, as far as the system tells; if it has none, the one for itself."""
    found: dict[str, None] = {}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_ELSEWHERE)
        found[str(probe.getsockname()[0])] = None
    with contextlib.suppress(OSError):
        for entry in socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET, type=socket.SOCK_STREAM):
            found[str(entry[4][0])] = None
    outside = tuple(host for host in found if not host.startswith("127."))
    return outside or ("127.0.0.1",)
