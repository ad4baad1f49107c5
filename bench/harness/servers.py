"""The servers that are measured: started fresh for every run, asked about memory, disk and time, killed afterwards.

A server is killed, not stopped: its data is thrown away, and nsqd would first write all its messages to the disk.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["KINDS", "MissingServerError", "Server", "Setup", "disk_bytes"]

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60.0
# A cold start is timed to this.
POLL_S = 0.002
IDENTIFY = b'{"feature_negotiation":true,"client_id":"bench","heartbeat_interval":30000}'


class MissingServerError(Exception):
    """A server cannot be started here; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What all runs of a bench share."""

    scratch: Path
    port_base: int
    nsqd: Path
    polymq: list[str]
    # Settings of `polymq serve` that are not its defaults; for experiments, named in the report.
    polymq_extra: list[str] = field(default_factory=list)


def disk_bytes(folder: Path) -> int:
    """Add up the blocks that a folder's files occupy (not their lengths: holes do not count)."""
    return sum(entry.stat().st_blocks * 512 for entry in folder.rglob("*") if entry.is_file())


class Server:
    """One running server. Use it as a context manager: leaving it kills the process and removes its data."""

    def __init__(
        self, kind: str, setup: Setup, *, mem_queue_size: int = 1_000_000, wrapper: list[str] | None = None, auth: str = ""
    ) -> None:
        self.kind = kind
        self.setup = setup
        self.data = setup.scratch / f"data-{kind}"
        self.log = setup.scratch / f"{kind}.log"
        self.tcp = f"127.0.0.1:{setup.port_base}"
        self.http = f"127.0.0.1:{setup.port_base + 1}"
        # polymq's own HTTP door, from which Spark reads.
        self.log_door = f"127.0.0.1:{setup.port_base + 2}"
        self.mem_queue_size = mem_queue_size
        self.wrapper = wrapper or []
        # The address of an authentication server; clients must log in then.
        self.auth = auth
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(parents=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)

    def command(self) -> list[str]:
        """The command line, as the report shows it."""
        return KINDS[self.kind](self)

    def start(self) -> float:
        """Start on the data that is there, and return the seconds until a client's IDENTIFY is answered."""
        command = [*self.wrapper, *self.command()]
        began = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.setup.scratch, env=environment
            )
        while not self._accepts():
            if self.process.poll() is not None:
                raise MissingServerError(f"{self.kind} ended with status {self.process.returncode}: {self._last_words()}")
            if time.perf_counter() - began > START_TIMEOUT_S:
                self.kill()
                raise MissingServerError(f"{self.kind} did not accept connections within {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)
        return time.perf_counter() - began

    def _accepts(self) -> bool:
        host, port = self.tcp.split(":")
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(b"  V2IDENTIFY\n" + struct.pack(">i", len(IDENTIFY)) + IDENTIFY)
                return len(connection.recv(8)) == 8
        except OSError:
            return False

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    def kill(self) -> None:
        """End the process at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Let the process end by itself."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self.process is None:
            raise MissingServerError(f"{self.kind} is not running")
        return self.process.pid

    def anonymous_bytes(self) -> int:
        """Memory that is the process's own (RssAnon): not the page cache, not mapped files."""
        return self._status_bytes("RssAnon")

    def resident_bytes(self) -> int:
        """All memory of the process (VmRSS), with the program and its libraries."""
        return self._status_bytes("VmRSS")

    def _status_bytes(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise MissingServerError(f"the kernel does not report {name}")

    def descriptor_count(self) -> int:
        """Files and sockets that the process has open."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def written_bytes(self) -> int:
        """Bytes that the process has caused to be written to storage (`write_bytes`)."""
        for line in Path(f"/proc/{self.pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
        raise MissingServerError("the kernel does not report write_bytes")

    def cpu_s(self) -> float:
        """Processor time of the process until now, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def disk_bytes(self) -> int:
        """What the data folder occupies."""
        return disk_bytes(self.data)

    def post(self, paths: Iterable[str]) -> None:
        """POST to the HTTP API (`/channel/create?…`), all over one connection; raises on any status but 200."""
        connection = http.client.HTTPConnection(self.http, timeout=30)
        with contextlib.closing(connection):
            for path in paths:
                connection.request("POST", path, b"")
                with connection.getresponse() as response:
                    answer = response.read()
                if response.status != HTTPStatus.OK:
                    raise OSError(f"{self.kind} answers {path} by {response.status} {answer[:200]!r}")


def nsqd_command(server: Server) -> list[str]:
    if not server.setup.nsqd.exists():
        raise MissingServerError(f"{server.setup.nsqd} is missing: run peers/build.sh")
    return [
        str(server.setup.nsqd),
        f"-data-path={server.data}",
        f"-tcp-address={server.tcp}",
        f"-http-address={server.http}",
        f"-mem-queue-size={server.mem_queue_size}",
        "-log-level=error",
        *([f"-auth-http-address={server.auth}"] if server.auth else []),
    ]


def polymq_command(server: Server) -> list[str]:
    return [
        *server.setup.polymq,
        "serve",
        "--data",
        str(server.data),
        "--nsq",
        server.tcp,
        "--nsq-http",
        server.http,
        "--http",
        server.log_door,
        "--nsq-lookup",
        "off",
        "--nsq-lookup-http",
        "off",
        *(["--set", f"nsq.auth_http_addresses={server.auth}"] if server.auth else []),
        *server.setup.polymq_extra,
    ]


def polymq_fsync_command(server: Server) -> list[str]:
    """The other durability point: an answer waits for the disk."""
    return [*polymq_command(server), "--set", "store.durability=fsync"]


def loop_command(server: Server) -> list[str]:
    """No broker at all: an event loop that answers OK, the floor under every round trip."""
    return [sys.executable, str(Path(__file__).with_name("loop_floor.py")), server.tcp]


KINDS = {"nsqd": nsqd_command, "polymq": polymq_command, "polymq-fsync": polymq_fsync_command, "loop": loop_command}


def default_polymq() -> list[str]:
    """The command that is installed beside this Python, else the package run from the source tree."""
    installed = Path(sys.executable).with_name("polymq")
    given = os.environ.get("POLYMQ_COMMAND")
    if given:
        return shlex.split(given)
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "polymq.cli"]
