"""The servers that speak NATS, alone or two of them in a cluster, and how each is started."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import socket
import time
from typing import TYPE_CHECKING

from bench.harness.process import MissingServerError, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness.process import Setup

__all__ = ["NATS_KINDS", "NatsServer", "cluster"]

# Behind NSQ's own three.
PORTS_AT = 3
PORTS_EACH = 5
CLUSTER_NAME = "bench"
JOIN_TIMEOUT_S = 30.0
PROBE_EVERY_S = 0.02


class NatsServer(ServerProcess):
    """A server with NATS' doors. `number` keeps two of them apart; `route_to` is another one's, to make a cluster with it."""

    def __init__(self, kind: str, setup: Setup, *, number: int = 0, clustered: bool = False, route_to: str = "") -> None:
        super().__init__(kind, setup, name=f"nats-{kind}-{number}")
        ports = itertools.count(setup.port_base + PORTS_AT + PORTS_EACH * number)
        self.tcp, self.route, self.nsq, self.nsq_http, self.log_door = (f"127.0.0.1:{next(ports)}" for _ in range(PORTS_EACH))
        self.clustered = clustered
        self.route_to = route_to

    def command(self) -> list[str]:
        return NATS_KINDS[self.kind](self)

    def accepts(self) -> bool:
        """Whether a client that connects is told INFO."""
        try:
            with client(self.tcp) as connection:
                return bool(connection)
        except OSError:
            return False

    def create_topic(self, name: str) -> None:
        """Have a subject stored, where the server can: a topic of that name."""
        with contextlib.closing(http.client.HTTPConnection(self.nsq_http, timeout=30)) as connection:
            connection.request("POST", f"/topic/create?topic={name}", b"")
            connection.getresponse().read()


def nats_server(server: NatsServer, program: str) -> list[str]:
    host, port = server.tcp.split(":")
    routes = ["--routes", f"nats-route://{server.route_to}"] if server.route_to else []
    joined = ["--cluster_name", CLUSTER_NAME, "--cluster", f"nats://{server.route}", *routes] if server.clustered else []
    return [server.setup.peer(program), "-a", host, "-p", port, *joined]


def newest_command(server: NatsServer) -> list[str]:
    return nats_server(server, "nats-server")


def debian_command(server: NatsServer) -> list[str]:
    return nats_server(server, "nats-server-2.9")


def polymq_command(server: NatsServer) -> list[str]:
    """A member of a cluster only listens: it is the real one that dials."""
    assert not server.route_to
    joined = ["--nats-cluster", server.route, "--nats-cluster-name", CLUSTER_NAME] if server.clustered else []
    doors = ["--nats", server.tcp, *joined, "--nsq", server.nsq, "--nsq-http", server.nsq_http, "--http", server.log_door]
    directory = ["--nsq-lookup", "off", "--nsq-lookup-http", "off"]
    return [*server.setup.polymq, "serve", "--data", str(server.data), *doors, *directory, *server.setup.polymq_extra]


NATS_KINDS = {"nats-server": newest_command, "nats-server-2.9": debian_command, "polymq": polymq_command}


@contextlib.contextmanager
def cluster(kind: str, setup: Setup) -> Iterator[tuple[NatsServer, NatsServer]]:
    """A server of a kind and a newest nats-server, which know of each other; both with everything that it takes to route."""
    with (
        NatsServer(kind, setup, clustered=True) as first,
        NatsServer("nats-server", setup, number=1, clustered=True, route_to=first.route) as second,
    ):
        for source, target in ((first, second), (second, first)):
            await_route(source.tcp, target.tcp)
        yield first, second


@contextlib.contextmanager
def client(address: str, *lines: bytes) -> Iterator[socket.socket]:
    """A connection that has said CONNECT and some more, all of which the server has taken."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b'CONNECT {"verbose":false,"pedantic":false,"protocol":0}\r\n' + b"".join(lines) + b"PING\r\n")
        said = b""
        while b"PONG\r\n" not in said:
            more = connection.recv(4096)
            if not more:
                raise ConnectionResetError(said[:200].decode(errors="replace"))
            said += more
        yield connection


def await_route(source: str, target: str) -> None:
    """Publish at one server until a subscriber of the other gets something."""
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    with client(source) as publisher, client(target, b"SUB bench.joined 1\r\n") as subscriber:
        subscriber.settimeout(PROBE_EVERY_S)
        while time.monotonic() < deadline:
            publisher.sendall(b"PUB bench.joined 0\r\n\r\n")
            with contextlib.suppress(TimeoutError):
                if b"MSG" in subscriber.recv(4096):
                    return
    raise MissingServerError(f"nothing comes from {source} to {target}")
