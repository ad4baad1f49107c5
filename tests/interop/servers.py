"""The two servers that every test runs against: polymq, and nsqd 1.3.0 as the control."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["KINDS", "NSQD", "ROOT", "Running", "running"]

ROOT = Path(__file__).resolve().parents[2]
NSQD = ROOT / ".peers" / "bin" / "nsqd"
KINDS = ("nsqd", "polymq")
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
# Flags of nsqd that are not called like the option they set.
NSQD_FLAGS = {"e2e_processing_latency_percentiles": "e2e-processing-latency-percentile", "auth_http_addresses": "auth-http-address"}
# Those that are given once for each value.
NSQD_REPEATED = ("auth_http_addresses",)
# Options of nsqd that polymq calls otherwise.
POLYMQ_NAMES = {"https_address": "https"}


@dataclass(frozen=True, slots=True)
class Running:
    """A server that accepts connections."""

    kind: str
    tcp: str
    http: str
    door: str = ""

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """One HTTP request."""
        request = urllib.request.Request(f"http://{self.http}{path}", method=method, data=body if method == "POST" else None)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def topic(self, topic: str) -> dict[str, Any]:
        """The statistics of one topic."""
        status, body = self.request("GET", f"/stats?format=json&topic={topic}")
        assert status == 200
        (found,) = json.loads(body)["topics"]
        return dict(found)

    def channel(self, topic: str, channel: str) -> dict[str, Any]:
        """The statistics of one channel."""
        (found,) = [each for each in self.topic(topic)["channels"] if each["channel_name"] == channel]
        return dict(found)

    def settled(self, topic: str, channel: str) -> dict[str, Any]:
        """Wait until nothing of a channel is waiting, in flight or deferred; FIN has no answer."""
        deadline = time.monotonic() + 10
        while True:
            found = self.channel(topic, channel)
            if not (found["depth"] or found["in_flight_count"] or found["deferred_count"]):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Find ports that nothing listens on; they are held together until all are known."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def command(kind: str, folder: Path, ports: list[int], message_timeout_ms: int, options: Mapping[str, str] | None = None) -> list[str]:
    """`options` are nsqd's, by the names of its configuration file."""
    tcp, http, admin = (f"127.0.0.1:{port}" for port in ports)
    if kind == "nsqd":
        if not NSQD.exists():
            pytest.fail(f"{NSQD} is missing: run peers/build.sh")
        timeout = f"-msg-timeout={message_timeout_ms}ms"
        advertise = "-broadcast-address=127.0.0.1"
        flags = [
            f"-{NSQD_FLAGS.get(name, name.replace('_', '-'))}={value}"
            for name, values in (options or {}).items()
            for value in (values.split(",") if name in NSQD_REPEATED else [values])
        ]
        # With TLS it opens an HTTPS port as well, for which few ask here.
        https = [] if "https_address" in (options or {}) else ["-https-address=127.0.0.1:0"]
        return [str(NSQD), f"-data-path={folder}", f"-tcp-address={tcp}", f"-http-address={http}", *https, advertise, timeout, *flags]
    # POLYMQ_COMMAND: another build of polymq than the one that this Python would run.
    ours = shlex.split(os.environ.get("POLYMQ_COMMAND", f"{shlex.quote(sys.executable)} -m polymq.cli"))
    settings = ["--advertise", "127.0.0.1", "--set", f"nsq.msg_timeout={message_timeout_ms}ms"]
    for name, value in (options or {}).items():
        settings += ["--set", f"nsq.{POLYMQ_NAMES.get(name, name)}={value}"]
    return [*ours, "serve", "--data", str(folder), "--nsq", tcp, "--nsq-http", http, "--http", admin, *settings]


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/ping", timeout=2) as response:
            return bool(response.read() == b"OK")
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 403  # it wants TLS
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def running(kind: str, folder: Path, *, message_timeout_ms: int = 60_000, options: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Run a server on a fresh data folder; afterwards it must end by itself when asked to."""
    ports = free_ports(3)
    (folder / "data").mkdir()
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(kind, folder / "data", ports, message_timeout_ms, options),
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    server = Running(kind, *(f"127.0.0.1:{port}" for port in ports))
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(server.http):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{kind} did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"{kind} did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM")
