"""polymq as a PHPMQ server, a PHP program that speaks to it, and bytes by hand."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest

from polymq.protocols.phpmq.frames import FrameReader, WireMessage
from tests.interop.servers import ROOT, START_TIMEOUT_S, STOP_TIMEOUT_S, free_ports

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["Hand", "PhpmqServer", "php"]

PROGRAM = ROOT / "peers" / "php" / "phpmq.php"


@dataclass
class PhpmqServer:
    """polymq over one data folder, which may be killed and started again on the same ports."""

    folder: Path
    settings: tuple[str, ...] = ()
    ports: list[int] = field(default_factory=lambda: free_ports(4))
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def console(self) -> tuple[str, int]:
        return "127.0.0.1", self.ports[1]

    @property
    def nsq(self) -> str:
        return f"127.0.0.1:{self.ports[3]}"

    def start(self) -> None:
        ours = shlex.split(os.environ.get("POLYMQ_COMMAND", f"{shlex.quote(sys.executable)} -m polymq.cli"))
        listeners = ["--phpmq", self.address, "--phpmq-maintenance", f"127.0.0.1:{self.ports[1]}", "--nsq", self.nsq]
        nothing = ["--nsq-http", "off", "--nsq-lookup", "off", "--nsq-lookup-http", "off", "--http", f"127.0.0.1:{self.ports[2]}"]
        more = [part for each in self.settings for part in ("--set", each)]
        log = (self.folder / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [*ours, "serve", "--data", str(self.folder / "data"), *listeners, *nothing, *more],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.ports[0]), timeout=1).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"polymq did not start: {self.log()[-2000:]}")
                time.sleep(0.02)
            else:
                return

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        try:
            assert self.process.wait(timeout=STOP_TIMEOUT_S) == 0, self.log()[-2000:]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail("polymq did not end when it was asked to")

    def metric(self, line: str) -> float:
        """One number of /metrics; 0 if it is not there."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[2]}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        return next((float(each.rpartition(" ")[2]) for each in lines if each.rpartition(" ")[0] == line), 0.0)

    def ask(self, *commands: str) -> str:
        """Say something at the maintenance port; give what was answered until it was left."""
        with socket.create_connection(self.console, timeout=10) as connection:
            connection.sendall("".join(f"{command}\r\n" for command in (*commands, "quit")).encode())
            answer = b""
            while data := connection.recv(1 << 16):
                answer += data
        return answer.decode()


def php(**job: Any) -> dict[str, Any]:
    """Have the PHP program do a job. `bodies` are bytes."""
    if shutil.which("php") is None:
        pytest.fail("php is missing: install php-cli")
    job = {"dialect": "current", "ttl": 0, "greet": "", "then": "ack", **job}
    if "bodies" in job:
        job["bodies"] = [base64.b64encode(body).decode() for body in job["bodies"]]
    done = subprocess.run(["php", str(PROGRAM)], input=json.dumps(job).encode(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    for delivery in answer.get("deliveries", ()):
        delivery["body"] = base64.b64decode(delivery["body"])
    return answer


class Hand:
    """A connection by hand."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()
        self._found: list[WireMessage] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def take(self, count: int, *, seconds: float = 10.0) -> list[WireMessage]:
        """Wait for so many messages; fewer if they do not come in time, or the connection ends."""
        deadline = time.monotonic() + seconds
        while len(self._found) < count and (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(1 << 18)
            except (TimeoutError, ConnectionError):
                break
            if not data:
                break
            for each in self._reader.feed(data):
                assert isinstance(each, WireMessage), each
                self._found.append(each)
        found, self._found = self._found[:count], self._found[count:]
        return found

    def is_closed(self) -> bool:
        """Wait for the end of the connection."""
        self._socket.settimeout(5)
        try:
            return self._socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True
