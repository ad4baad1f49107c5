"""Directories and nodes, real and ours, as processes; and the golden script's way to talk to a directory over sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from socket import SHUT_WR, create_connection
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.servers import ROOT, STOP_TIMEOUT_S, Running, answers, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from socket import socket

__all__ = ["BIN", "DIRECTORIES", "NODES", "LiveDirectory", "Server", "ask", "directory", "found", "node", "started", "until"]

BIN = ROOT / ".peers" / "bin"
DIRECTORIES = ("nsqlookupd", "polymq")
NODES = ("nsqd", "polymq")
POLYMQ = (sys.executable, "-m", "polymq.cli", "serve", "--advertise", "127.0.0.1")
QUIET_S = 0.12
CLOSED_S = 0.1
START_TIMEOUT_S = 20.0


class Server:
    """A process on its own ports, which can be killed and started again. `running` is what its clients see of it."""

    def __init__(self, kind: str, folder: Path, command: list[str], tcp: str, web: str) -> None:
        program = command[0]
        if not Path(program).exists():
            pytest.fail(f"{program} is missing: run peers/build.sh")
        self.running = Running(kind, tcp, web)
        self._command = command
        self._log = folder / f"{kind}-log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(self.running.http):
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{self.running.kind} did not start: {self.log[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End it without a word."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ask it to end, which it must do by itself."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                pytest.fail(f"{self.running.kind} did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM")

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace")


def directory(kind: str, folder: Path, *, inactive_s: int = 300, tombstone_s: int = 45) -> Server:
    """Prepare a directory that knows nothing."""
    tcp, web = (f"127.0.0.1:{port}" for port in free_ports(2))
    if kind == "nsqlookupd":
        times = [f"-inactive-producer-timeout={inactive_s}s", f"-tombstone-lifetime={tombstone_s}s"]
        command = [str(BIN / "nsqlookupd"), f"-tcp-address={tcp}", f"-http-address={web}", "-broadcast-address=127.0.0.1", *times]
    else:
        doors = ["--nsq", "off", "--nsq-http", "off", "--http", "off", "--nsq-lookup", tcp, "--nsq-lookup-http", web]
        times = ["--set", f"nsq.lookup_inactive_producer_timeout={inactive_s}s", "--set", f"nsq.lookup_tombstone_lifetime={tombstone_s}s"]
        command = [*POLYMQ, "--data", str(folder / "directory-data"), *doors, *times]
    return Server(kind, folder, command, tcp, web)


def node(kind: str, folder: Path, *directories: str, lookup: tuple[str, str] = ("off", "off")) -> Server:
    """Prepare a node that announces itself to `directories` (TCP); with `lookup`, a polymq that is a directory itself."""
    tcp, web = (f"127.0.0.1:{port}" for port in free_ports(2))
    data = folder / f"{kind}-data"
    data.mkdir(exist_ok=True)
    if kind == "nsqd":
        told = [f"-lookupd-tcp-address={address}" for address in directories]
        command = [str(BIN / "nsqd"), f"-data-path={data}", f"-tcp-address={tcp}", f"-http-address={web}", "-broadcast-address=127.0.0.1"]
        return Server(kind, folder, [*command, *told], tcp, web)
    doors = ["--nsq", tcp, "--nsq-http", web, "--http", "off", "--nsq-lookup", lookup[0], "--nsq-lookup-http", lookup[1]]
    told = ["--set", f"nsq.lookupd_tcp_addresses={','.join(directories)}"]
    return Server(kind, folder, [*POLYMQ, "--data", str(data), *doors, *told], tcp, web)


@contextlib.contextmanager
def started(*servers: Server) -> Iterator[None]:
    """Run servers, in order."""
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
            server.start()
        yield


def until(condition: Callable[[], object], *, patience_s: float = 20.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def ask(server: Running, path: str) -> Any:
    """Ask for JSON; None if there is nothing of the kind."""
    status, body = server.request("GET", path)
    return json.loads(body) if status == 200 else None


def found(server: Running, topic: str) -> list[str]:
    """List whom a directory sends consumers of a topic to."""
    answer = ask(server, f"/lookup?topic={topic}")
    return [] if answer is None else [f"{each['broadcast_address']}:{each['tcp_port']}" for each in answer["producers"]]


class LiveDirectory:
    """The script's directory over sockets."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._sockets: dict[str, socket] = {}

    def connect(self, name: str) -> None:
        host, _, port = self._running.tcp.rpartition(":")
        self._sockets[name] = create_connection((host, int(port)), timeout=QUIET_S)

    def send(self, name: str, data: bytes) -> list[bytes | None]:
        self._sockets[name].sendall(data)
        return self._read(name)

    def finish(self, name: str) -> list[bytes | None]:
        with contextlib.suppress(OSError):
            self._sockets[name].shutdown(SHUT_WR)
        return self._read(name)

    def close(self, name: str) -> None:
        self._sockets.pop(name).close()
        time.sleep(CLOSED_S)

    def ask(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._running.http, timeout=5)
        with contextlib.closing(connection):
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def end(self) -> None:
        """Close what the script has left open."""
        for each in self._sockets.values():
            each.close()

    def _read(self, name: str) -> list[bytes | None]:
        """Read until it is quiet."""
        found: list[bytes | None] = []
        rest = b""
        while True:
            try:
                data = self._sockets[name].recv(65536)
            except TimeoutError:
                assert not rest
                return found
            except ConnectionResetError:
                data = b""
            if not data:
                assert not rest
                return [*found, None]
            rest += data
            while len(rest) >= 4 and len(rest) >= (end := 4 + int.from_bytes(rest[:4], "big")):
                found.append(rest[4:end])
                rest = rest[end:]
