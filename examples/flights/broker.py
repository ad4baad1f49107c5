"""The broker as a process of its own: started, killed without warning, started again, and stopped in order."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Broker", "ChannelState", "channel_state"]

_START_SECONDS_MAX: Final = 30.0
_STOP_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class ChannelState:
    """What the broker says about a channel."""

    depth: int
    in_flight: int
    deferred: int

    @property
    def drained(self) -> bool:
        """Tell whether every message has been settled."""
        return not (self.depth or self.in_flight or self.deferred)


def channel_state(statistics: dict[str, Any], topic: str, channel: str) -> ChannelState | None:
    """Find a channel in nsqd's form of the statistics."""
    for each in statistics.get("topics", []):
        for found in each.get("channels", []):
            if (each["topic_name"], found["channel_name"]) == (topic, channel):
                waiting = int(found["depth"]) + int(each["depth"])
                return ChannelState(waiting, int(found["in_flight_count"]), int(found["deferred_count"]))
    return None


def free_ports(count: int) -> list[int]:
    """Find ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Broker:
    """One `polymq serve` on free ports of this machine, with its data in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nsq_port, self._nsq_http_port, self._http_port = free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_address(self) -> str:
        """Where the log is read."""
        return f"127.0.0.1:{self._http_port}"

    @property
    def log_file(self) -> Path:
        """Where the broker's own words go."""
        return self.folder.with_name("broker.log")

    def start(self) -> float:
        """Start it and wait until it answers; tell how many seconds that took."""
        began = time.monotonic()
        command = [sys.executable, "-m", "polymq.cli", "serve", "--data", str(self.folder)]
        command += ["--nsq", f"127.0.0.1:{self.nsq_port}", "--nsq-http", f"127.0.0.1:{self._nsq_http_port}", "--http", self.log_address]
        command += ["--nsq-lookup", "off", "--nsq-lookup-http", "off"]
        with self.log_file.open("ab") as words:
            self._process = subprocess.Popen(command, stdout=words, stderr=words, start_new_session=True)
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() - began > _START_SECONDS_MAX:
                raise SystemExit(f"The broker did not start; {self.log_file} says:\n{self.log_file.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        return time.monotonic() - began

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """End it with SIGTERM; give its exit status."""
        if self._process is None or self._process.poll() is not None:
            return 0 if self._process is None else self._process.returncode
        self._process.terminate()
        try:
            return self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def create(self, topic: str, channel: str) -> None:
        """Make a topic and a channel of it."""
        self._call(f"/topic/create?topic={topic}", post=True)
        self._call(f"/channel/create?topic={topic}&channel={channel}", post=True)

    def channel(self, topic: str, channel: str) -> ChannelState | None:
        """Ask how far a channel is; None while the broker does not answer."""
        try:
            return channel_state(json.loads(self._call(f"/stats?format=json&topic={topic}")), topic, channel)
        except (OSError, ValueError):
            return None

    def _answers(self) -> bool:
        try:
            self._call("/ping")
            with urllib.request.urlopen(f"http://{self.log_address}/v1/topics", timeout=5):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def _call(self, path: str, *, post: bool = False) -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{self._nsq_http_port}{path}", data=b"" if post else None)
        with urllib.request.urlopen(request, timeout=5) as answer:
            body: bytes = answer.read()
            return body
