"""The directories that tests run against: the real nsqlookupd and polymq's lookup role, and the script's way to talk to them."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
import time
from socket import SHUT_WR, create_connection
from typing import TYPE_CHECKING

import pytest

from tests.interop.servers import ROOT, STOP_TIMEOUT_S, Running, answers, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from socket import socket

__all__ = ["KINDS", "LiveDirectory", "directory_running"]

NSQLOOKUPD = ROOT / ".peers" / "bin" / "nsqlookupd"
KINDS = ("nsqlookupd", "polymq")
QUIET_S = 0.12
CLOSED_S = 0.1
START_TIMEOUT_S = 20.0


def command(kind: str, folder: Path, tcp: str, web: str, *, inactive_s: int, tombstone_s: int) -> list[str]:
    if kind == "nsqlookupd":
        if not NSQLOOKUPD.exists():
            pytest.fail(f"{NSQLOOKUPD} is missing: run peers/build.sh")
        times = [f"-inactive-producer-timeout={inactive_s}s", f"-tombstone-lifetime={tombstone_s}s"]
        return [str(NSQLOOKUPD), f"-tcp-address={tcp}", f"-http-address={web}", "-broadcast-address=127.0.0.1", *times]
    doors = ["--nsq", "off", "--nsq-http", "off", "--http", "off", "--nsq-lookup", tcp, "--nsq-lookup-http", web]
    times = ["--set", f"nsq.lookup_inactive_producer_timeout={inactive_s}s", "--set", f"nsq.lookup_tombstone_lifetime={tombstone_s}s"]
    ours = [sys.executable, "-m", "polymq.cli", "serve", "--data", str(folder / "data"), "--advertise", "127.0.0.1"]
    return [*ours, *doors, *times]


@contextlib.contextmanager
def directory_running(kind: str, folder: Path, *, inactive_s: int = 300, tombstone_s: int = 45) -> Iterator[Running]:
    """Run a directory; afterwards it must end by itself when asked to."""
    tcp, web = (f"127.0.0.1:{port}" for port in free_ports(2))
    log = folder / "directory-log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command(kind, folder, tcp, web, inactive_s=inactive_s, tombstone_s=tombstone_s), stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(web):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{kind} did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        yield Running(kind, tcp, web)
    finally:
        process.terminate()
        process.wait(timeout=STOP_TIMEOUT_S)


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
