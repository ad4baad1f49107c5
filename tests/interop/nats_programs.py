"""Programs that talk to a NATS server and say in words what comes of it: run to their end, or listened to while they wait."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_servers import PEERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.interop.nats_servers import NatsServer

__all__ = ["Listener", "output_of"]

TOOL_TIMEOUT_S = 30.0


def _command(name: str, server: NatsServer, arguments: tuple[str, ...]) -> list[str]:
    program = PEERS / name
    if not program.exists():
        pytest.fail(f"{program} is missing: run peers/build.sh")
    return [str(program), "-s", server.url, *arguments]


def output_of(
    name: str, server: NatsServer, *arguments: str, said: str | None = None, status: int = 0, environment: Mapping[str, str] | None = None
) -> str:
    """All that a program says until it ends; `said` is its standard input."""
    done = subprocess.run(
        _command(name, server, arguments),
        input=said,
        stdin=None if said is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


class Listener:
    """A program that waits for messages and says what it gets; it waits once it has said `ready`."""

    def __init__(
        self,
        name: str,
        server: NatsServer,
        *arguments: str,
        ready: str = "istening on [",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.ready = ready
        self.process = subprocess.Popen(
            _command(name, server, arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def says(self, words: str) -> str:
        """Wait for a line with these words."""
        seen: list[str] = []
        while True:
            try:
                seen.append(self.lines.get(timeout=TOOL_TIMEOUT_S))
            except queue.Empty:
                pytest.fail(f"nothing says {words!r}: {''.join(seen)}")
            if words in seen[-1]:
                return seen[-1]

    def rest(self) -> str:
        """Wait for its end by itself; all that it has said since."""
        assert self.process.wait(TOOL_TIMEOUT_S) == 0
        self.reader.join()
        return "".join(self.lines.queue)

    def __enter__(self) -> Listener:
        try:
            self.says(self.ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
