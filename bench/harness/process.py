"""A server as a process: started on a fresh data folder, asked about memory, disk and time, killed afterwards.

A server is killed, not stopped: its data is thrown away, and some would first write all their messages to the disk.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ROOT", "Kept", "MissingServerError", "ServerProcess", "Setup", "disk_bytes"]

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60.0
# A cold start is timed to this.
POLL_S = 0.002


class MissingServerError(Exception):
    """A server cannot be started here; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What all runs of a bench share."""

    scratch: Path
    port_base: int
    # Where the programs of `peers/build.sh` are.
    peers: Path
    polymq: list[str]
    # Settings of `polymq serve` that are not its defaults; for experiments, named in the report.
    polymq_extra: list[str] = field(default_factory=list)

    def peer(self, name: str) -> str:
        """The path of a program that polymq is measured against."""
        program = self.peers / name
        if not program.exists():
            raise MissingServerError(f"{program} is missing: run peers/build.sh")
        return str(program)


def disk_bytes(folder: Path) -> int:
    """Add up the blocks that a folder's files occupy (not their lengths: holes do not count)."""
    return sum(entry.stat().st_blocks * 512 for entry in folder.rglob("*") if entry.is_file())


class ServerProcess(ABC):
    """One running server. Use it as a context manager: leaving it kills the process and removes its data."""

    def __init__(self, kind: str, setup: Setup, *, name: str = "", wrapper: list[str] | None = None) -> None:
        self.kind = kind
        self.setup = setup
        self.data = setup.scratch / f"data-{name or kind}"
        self.log = setup.scratch / f"{name or kind}.log"
        self.wrapper = wrapper or []
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The command line, as the report shows it."""

    @abstractmethod
    def accepts(self) -> bool:
        """Whether a client is answered."""

    def __enter__(self) -> Self:
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(parents=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)

    def start(self) -> float:
        """Start on the data that is there, and return the seconds until a client is answered."""
        command = [*self.wrapper, *self.command()]
        if self.accepts():
            raise MissingServerError(f"something answers where {self.kind} is to be started: end it, or choose others with --port")
        began = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.setup.scratch, env=environment
            )
        while not self.accepts():
            if self.process.poll() is not None:
                raise MissingServerError(f"{self.kind} ended with status {self.process.returncode}: {self._last_words()}")
            if time.perf_counter() - began > START_TIMEOUT_S:
                self.kill()
                raise MissingServerError(f"{self.kind} did not accept connections within {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)
        return time.perf_counter() - began

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
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

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


Kind = TypeVar("Kind", bound=ServerProcess)


class Kept:
    """Servers that stay up from row to row, because starting and warming them takes longer than measuring; closing it ends them."""

    def __init__(self) -> None:
        self.servers: dict[str, ServerProcess] = {}

    def get(self, name: str, make: Callable[[], Kind]) -> Kind:
        """The server of that name, started on a fresh data folder if it is not up."""
        found = self.servers.get(name)
        if found is not None and found.is_running:
            return found  # type: ignore[return-value]
        self.drop(name)
        made = make()
        made.__enter__()
        self.servers[name] = made
        return made

    def drop(self, name: str) -> None:
        """End a server and remove its data."""
        found = self.servers.pop(name, None)
        if found is not None:
            found.__exit__()

    def drop_others(self, name: str = "") -> None:
        """End all but one."""
        for each in list(self.servers):
            if each != name:
                self.drop(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop_others()
