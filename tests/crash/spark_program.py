"""The program that is killed, seen from outside: its processes, and how far its checkpoint says that it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polymq
from polymq.testing.promises import PromiseBrokenError
from tests.crash.processes import kill_session, members

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

__all__ = ["Program"]

_ROOT: Final = Path(__file__).resolve().parents[2]
# By what the command lines of its processes are known.
_KINDS: Final = {"executor": "CoarseGrainedExecutorBackend", "python worker": "pyspark.daemon", "planner": "python_streaming_source_runner"}


class Program:
    """`tests.crash.spark_archive` over one table, when it runs."""

    def __init__(self, folder: Path, master: str, server: str, topics: Sequence[str]) -> None:
        folder.mkdir()
        self.checkpoint = folder / "checkpoint"
        self.has_executors = master.startswith("local-cluster")
        self._folder = folder
        self._arguments = ["--master", master, "--server", server, "--subscribe", ",".join(topics), "--folder", str(folder)]
        self._log = folder / "log"
        self._said = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the program's first process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self, *more: str) -> None:
        """Start it, in a session of its own."""
        assert not self.is_running
        self.kill()
        source = str(Path(polymq.__file__).parents[1])
        environment = os.environ | {"PYTHONPATH": source, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment["SPARK_WORKER_DIR"] = str(self._folder / "work")
        # The program is found beside these tests, by its folder: it runs in one where nothing else is to be found.
        environment["PYTHONPATH"] += os.pathsep + str(_ROOT)
        command = [sys.executable, "-m", "tests.crash.spark_archive", *self._arguments, *more]
        self._said = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment, cwd=self._folder, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        process, self._process = self._process, None
        if process is not None:
            kill_session(process.pid)
            process.wait()

    def kill_one(self, what: str, random: Random) -> bool:
        """SIGKILL to one of its processes; False if there is none of that kind just now."""
        assert self._process is not None
        found = members(self._process.pid, _KINDS[what])
        if not found:
            return False
        try:
            os.kill(random.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def wait(self, seconds: float) -> None:
        """Wait until it ends by itself, as it should; for so long without another batch, and no longer."""
        assert self._process is not None
        while True:
            committed = self.batches("commits")
            try:
                code = self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                if self.batches("commits") > committed:
                    continue
                raise PromiseBrokenError(f"no batch for {seconds:.0f} s, and not all is there:\n{self.log_tail()}") from None
            break
        if code != 0:
            raise PromiseBrokenError(f"the program ended with {code}:\n{self.log_tail()}")

    def batches(self, kind: str) -> int:
        """Tell how many batches are planned (`offsets`) or committed (`commits`), by its checkpoint."""
        numbers = [int(each.name) for each in (self.checkpoint / kind).glob("[0-9]*") if each.name.isdecimal()]
        return max(numbers, default=-1) + 1

    def has_begun(self) -> bool:
        """Whether the query has made its checkpoint."""
        return (self.checkpoint / "metadata").exists()

    def has_said_started(self) -> bool:
        """Whether it has started a query since its own start."""
        return b"started\n" in self._log.read_bytes()[self._said :]

    def log_tail(self) -> str:
        """What it said last."""
        return self._log.read_bytes()[-6000:].decode(errors="replace") if self._log.exists() else ""
