"""Servers that speak NATS, on loopback: one, or a cluster of them, of one kind or mixed; with secrets, accounts and TLS.

A server is started from a configuration file in nats-server's own language, so every kind is asked for the same. It is ready when its
monitoring page (of the real ones) and its client port answer; a cluster when every member has a route to every other one. Leaving the context asks each server
to end, and it is a failure if it has to be killed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = [
    "CLUSTER_NAME",
    "NATS_KINDS",
    "PEERS",
    "POLYMQ",
    "SERVING_KINDS",
    "NatsOptions",
    "NatsServer",
    "await_mesh",
    "ending",
    "free_port",
    "mixtures",
    "nats_cluster",
    "nats_server",
]

PEERS = ROOT / ".peers" / "bin"
# The newest one, and the one that Debian 12 has.
NATS_KINDS = ("nats-server", "nats-server-2.9")
POLYMQ = "polymq"
# For what each of them must do to a client.
SERVING_KINDS = (POLYMQ, *NATS_KINDS)
# POLYMQ_INTEROP_NATS_PORTS: where the ports begin, if several runs share a machine.
PORTS = range(first := int(os.environ.get("POLYMQ_INTEROP_NATS_PORTS", "24500")), first + 100)
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
MESH_TIMEOUT_S = 20.0
POLL_S = 0.02
CLUSTER_NAME = "interop"

# Each process begins somewhere else, so that two of them hardly meet.
_numbers = itertools.count(7 * os.getpid())


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """What a server is told beyond its ports: blocks of the configuration file, without their braces; "" leaves a block out."""

    authorization: str = ""
    accounts: str = ""
    tls: str = ""
    # Of the cluster's block; `route_user` is "NAME:PASSWORD", which every member asks for and gives.
    route_user: str = ""
    route_tls: str = ""
    route_more: str = ""
    # Clients begin with TLS at once, before INFO.
    tls_first: bool = False
    more: str = ""


def free_port() -> int:
    """The next port of the range that nothing listens on."""
    for _ in PORTS:
        port = PORTS[next(_numbers) % len(PORTS)]
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError(f"no free port in {PORTS}")


class NatsServer:
    """One server and its process, which may be killed and started again on the same ports."""

    def __init__(self, kind: str, name: str, folder: Path, options: NatsOptions) -> None:
        self.kind = kind
        self.name = name
        self.options = options
        self.client_port, self.http_port, self.route_port = (free_port() for _ in range(3))
        self.routes: list[NatsServer] = []
        self.clustered = False
        self.cluster_name = CLUSTER_NAME  # "": each makes one up
        self.configuration = folder / f"{name}.conf"
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.client_port}"

    @property
    def url(self) -> str:
        """The address as client libraries want it."""
        return f"{'tls' if self.options.tls else 'nats'}://{self.address}"

    def text(self) -> str:
        """The configuration file."""
        options = self.options
        blocks = {"authorization": options.authorization, "accounts": options.accounts, "tls": options.tls}
        lines = [f'server_name: "{self.name}"', f'listen: "{self.address}"', f'http: "127.0.0.1:{self.http_port}"']
        lines += [f"{name} {{\n{body}\n}}" for name, body in blocks.items() if body]
        if self.clustered:
            name, _, password = options.route_user.partition(":")
            secret = f'authorization {{ user: "{name}", password: "{password}", timeout: 2 }}' if name else ""
            user = f"{options.route_user}@" if name else ""
            routes = ", ".join(f'"nats-route://{user}127.0.0.1:{each.route_port}"' for each in self.routes)
            tls = f"tls {{\n{options.route_tls}\n}}" if options.route_tls else ""
            called = f'name: "{self.cluster_name}"' if self.cluster_name else ""
            inner = [called, f'listen: "127.0.0.1:{self.route_port}"', f"routes: [{routes}]", secret, tls, options.route_more]
            lines.append("cluster {\n" + "\n".join(inner) + "\n}")
        return "\n".join([*lines, options.more]) + "\n"

    def command(self) -> list[str]:
        """What runs a server of this kind."""
        if self.kind == POLYMQ:
            # POLYMQ_COMMAND: another build of polymq than the one that this Python would run.
            ours = shlex.split(os.environ.get("POLYMQ_COMMAND", f"{shlex.quote(sys.executable)} -m polymq.cli"))
            data = self.configuration.with_suffix(".data")
            return [*ours, "nats-server", "-c", str(self.configuration), "--polymq-set", f"server.data={data}"]
        program = PEERS / self.kind
        if not program.exists():
            pytest.fail(f"{program} is missing: run peers/build.sh")
        return [str(program), "-c", str(self.configuration)]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert self.process is None
        self.configuration.write_text(self.text(), encoding="utf-8")
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(self.command(), stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"{self.kind} did not start: {self.log_text()[-2000:]}")
            time.sleep(POLL_S)

    def answers(self) -> bool:
        """Whether monitoring and clients are served."""
        try:
            if self.kind != POLYMQ:
                self.monitored("varz")
            with socket.create_connection(("127.0.0.1", self.client_port), timeout=2) as connection:
                return self.options.tls_first or connection.recv(5) == b"INFO "
        except OSError:
            return False

    def monitored(self, page: str) -> dict[str, Any]:
        """A page of the monitoring port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/{page}", timeout=5) as response:
            return dict(json.load(response))

    def told_cluster(self) -> str:
        """The cluster's name as a client is told it now; /varz of a real server goes on showing what it was at the first look."""
        with socket.create_connection(("127.0.0.1", self.client_port), timeout=5) as connection, connection.makefile("rb") as lines:
            return str(json.loads(lines.readline().removeprefix(b"INFO "))["cluster"])

    def routed_to(self) -> set[str]:
        """The ids of the servers that it has routes to."""
        try:
            return {each["remote_id"] for each in self.monitored("routez")["routes"] or []}
        except OSError:
            return set()

    def server_id(self) -> str:
        """Another one after every start."""
        return str(self.monitored("varz")["server_id"])

    def log_text(self) -> str:
        """All that it has said."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """kill -9; nothing if it has ended already."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """SIGTERM, after which it must end by itself."""
        if self.process is None:
            return
        process, self.process = self.process, None
        was_dead = process.poll() is not None
        process.terminate()
        try:
            status = process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"{self.kind} did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM")
        # nats-server ends with 1 where others end with 0.
        if was_dead or status not in {0, 1}:
            pytest.fail(f"{self.kind} ended {'by itself ' if was_dead else ''}with {status}: {self.log_text()[-2000:]}")


@contextlib.contextmanager
def ending(servers: Sequence[NatsServer]) -> Iterator[None]:
    """End all of them, even if one does not end as it should."""
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
        yield


@contextlib.contextmanager
def nats_server(kind: str, folder: Path, options: NatsOptions | None = None, *, name: str = "single") -> Iterator[NatsServer]:
    """Run one server."""
    server = NatsServer(kind, name, folder, options or NatsOptions())
    with ending([server]):
        server.start()
        yield server


@contextlib.contextmanager
def nats_cluster(
    kinds: Sequence[str], folder: Path, options: NatsOptions | None = None, *, seeded: bool = False
) -> Iterator[list[NatsServer]]:
    """Run a full mesh. Every member is told of all others; if `seeded`, of the first only, and gossip does the rest."""
    members = [NatsServer(kind, f"member-{number}", folder, options or NatsOptions()) for number, kind in enumerate(kinds)]
    for member in members:
        member.clustered = True
        member.routes = [each for each in (members[:1] if seeded else members) if each is not member]
    with ending(members):
        for member in members:
            member.start()
        await_mesh(members)
        yield members


def await_mesh(members: Sequence[NatsServer]) -> None:
    """Wait until each of these has routes to all others of these."""
    ids = {member.name: member.server_id() for member in members}
    deadline = time.monotonic() + MESH_TIMEOUT_S
    while missing := [
        f"{member.name} to {other}"
        for member in members
        for found in [member.routed_to()]
        for other, wanted in ids.items()
        if other != member.name and wanted not in found
    ]:
        if time.monotonic() > deadline:
            logs = "\n".join(f"--- {member.name}\n{member.log_text()[-1500:]}" for member in members)
            pytest.fail(f"no route from {', '.join(missing)}\n{logs}")
        time.sleep(POLL_S)


def mixtures(kind: str) -> list[tuple[str, ...]]:
    """Clusters with a kind in it: two of it, one beside another kind, two around one of another kind."""
    other = next(each for each in NATS_KINDS if each != kind)
    return [(kind, kind), (kind, other), (kind, other, kind)]
