"""A server that is made of bytes: what it says on a route, to polymq or to a real server, and what it hears."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any

from tests.interop.nats_servers import CLUSTER_NAME

if TYPE_CHECKING:
    import ssl

    from tests.interop.nats_servers import NatsServer

__all__ = ["HELLO", "PING", "TIMEOUT_S", "Talk", "await_no_routes", "connect", "hello", "info"]

TIMEOUT_S = 60.0
SILENCE_S = 0.15
PING = b"PING\r\n"
PONG = b"PONG\r\n"


def connect(**more: Any) -> bytes:
    """CONNECT."""
    said = {"verbose": False, "name": "NPEER", "cluster": CLUSTER_NAME, "headers": True, **more}
    return b"CONNECT " + json.dumps(said).encode() + b"\r\n"


def info(**more: Any) -> bytes:
    """INFO; what is None is left out."""
    said = {
        "server_id": "NPEER",
        "server_name": "peer",
        "version": "2.9.10",
        "proto": 2,
        "host": "127.0.0.1",
        "port": 1,
        "headers": True,
        "max_payload": 1 << 20,
        "cluster": CLUSTER_NAME,
        **more,
    }
    return b"INFO " + json.dumps({key: value for key, value in said.items() if value is not None}).encode() + b"\r\n"


def hello(name: str) -> bytes:
    """What makes a route of a connection: the server's id is N and its name."""
    return connect(name=f"N{name}") + info(server_id=f"N{name}", server_name=name)


HELLO = connect() + info()


class Talk:
    """One connection: what came back, and whether it has ended."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        if tls is not None:
            self.connection = tls.wrap_socket(self.connection, server_hostname="localhost")
        self.heard = b""
        self.ended = False

    def say(self, said: bytes) -> None:
        """Say it; that the server has closed is heard, not felt."""
        self.connection.settimeout(TIMEOUT_S)
        with contextlib.suppress(ConnectionError):
            self.connection.sendall(said)

    def hear(self, timeout_s: float) -> None:
        """Hear what comes next, if something does in time."""
        self.connection.settimeout(timeout_s)
        try:
            data = self.connection.recv(65_536)
        except TimeoutError:
            return
        except OSError:
            data = b""
        self.heard += data
        self.ended = not data

    def hear_until(self, wanted: bytes) -> bytes:
        """Hear until this has come; gives all that has come, and forgets it."""
        deadline = time.monotonic() + TIMEOUT_S
        while wanted not in self.heard:
            assert not self.ended, self.heard[-1000:]
            assert time.monotonic() < deadline, self.heard[-1000:]
            self.hear(0.1)
        heard, self.heard = self.heard, b""
        return heard

    def hear_end(self) -> bytes:
        """Hear until the server has closed; gives all that has come."""
        deadline = time.monotonic() + TIMEOUT_S
        while not self.ended:
            assert time.monotonic() < deadline, self.heard[-1000:]
            self.hear(0.1)
        return self.heard

    def caught_up(self, said: bytes = b"") -> bytes:
        """Say it, and wait until the server has done all of it; gives what has come."""
        self.say(said + PING)
        return self.hear_until(PONG)

    def hold(self, said: bytes) -> tuple[tuple[bytes, ...], bool]:
        """Say it, then PING; hear until that is answered or the end, and a little longer. Gives lines, and whether it has ended."""
        self.say(said + PING)
        deadline = time.monotonic() + TIMEOUT_S
        while not self.ended and PONG not in self.heard and time.monotonic() < deadline:
            self.hear(0.05)
        self.hear(SILENCE_S)
        return self.lines(), self.ended

    def lines(self) -> tuple[bytes, ...]:
        """What was heard, without INFO and what real servers tell each other in their own account."""
        return tuple(line for line in self.heard.split(b"\r\n") if line and not _is_own(line))

    def greeting(self) -> dict[str, Any]:
        """The server's INFO."""
        while b"\r\n" not in self.heard:
            self.hear(TIMEOUT_S)
        found: dict[str, Any] = json.loads(self.heard.split(b"\r\n")[0][5:])
        return found

    def close(self) -> None:
        """Leave."""
        self.connection.close()


def _is_own(line: bytes) -> bool:
    """Whether real servers say that to each other, or it says who they are."""
    return line.startswith((b"INFO ", b"RS+ $SYS ", b"RMSG $SYS ", b"HMSG $SYS ", b"{"))


def await_no_routes(server: NatsServer) -> None:
    """Wait until whoever was here is gone."""
    deadline = time.monotonic() + TIMEOUT_S
    while server.routed_to():
        assert time.monotonic() < deadline
        time.sleep(0.01)
