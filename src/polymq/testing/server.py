"""A polymq of one's own, for tests of whatever talks to one: a process on free ports over a folder that may be thrown away.

    with PolymqServer(tmp_path) as server:
        client.connect(server.nsq)         # HOST:PORT, likewise nats, rocketmq (both roles), phpmq, http
        server.kill()                      # SIGKILL
        server.start()                     # the same ports, the same data

This file knows nothing of pytest: `pytest_plugin.py` makes fixtures of it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from polymq.errors import DeadlineExceeded, LocalProtocolError, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = ["PolymqServer"]

# What each listener is called as a setting, and in the line of the log that tells its port.
_LISTENERS: Final = {
    "nsq": ("nsq.tcp", "NSQ"),
    "nats": ("nats.client", "NATS"),
    "rocketmq": ("rocketmq.broker", "RocketMQ"),
    "phpmq": ("phpmq.tcp", "PHPMQ"),
    "http": ("server.http", "HTTP"),
}
# They would take their standard ports.
_NOT_WANTED: Final = ("nsq.http", "nsq.lookup_tcp", "nsq.lookup_http")
# Where it listens is said at these levels of the log.
_TELLING: Final = ("debug", "info")
_ANY_PORT: Final = "127.0.0.1:0"
_POLL_SECONDS: Final = 0.005
# Of the environment: a setting of the developer's is none of the test's; which build runs is.
_KEPT: Final = "POLYMQ_PURE"


class PolymqServer:
    """One broker with all its listeners over `folder`/data; `settings` are those of polymq.toml, as `section.key`.

    Without the answer to `start` within `deadline_seconds` there is no server; `stop` waits as long before it kills.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None, *, deadline_seconds: float = 20.0) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._settings = {name: _written(value) for name, value in (settings or {}).items()}
        if self._settings.get("server.log_level", "info") not in _TELLING:
            raise LocalProtocolError("with this server.log_level the server would not say where it listens: leave it at info or debug")
        self._deadline_seconds = deadline_seconds
        self._addresses = dict.fromkeys(_LISTENERS, _ANY_PORT)
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = folder / "polymq.log"

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop; what went wrong in the block is more to the point than what goes wrong here."""
        try:
            self.stop()
        except StoreFailed:
            if kind is None:
                raise

    @property
    def nsq(self) -> str:
        """Where NSQ's TCP protocol is spoken."""
        return self._addresses["nsq"]

    @property
    def nats(self) -> str:
        """Where NATS is spoken, without the `nats://`."""
        return self._addresses["nats"]

    @property
    def rocketmq(self) -> str:
        """Where the name server of RocketMQ is, and the broker: one port for both."""
        return self._addresses["rocketmq"]

    @property
    def phpmq(self) -> str:
        """Where PHPMQ is spoken."""
        return self._addresses["phpmq"]

    @property
    def http(self) -> str:
        """Where polymq's own HTTP door is: the log, metrics, health."""
        return self._addresses["http"]

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Read what all its processes have written so far."""
        return self._lines.read_text(encoding="utf-8", errors="replace") if self._lines.exists() else ""

    def start(self) -> None:
        """Start, and wait until every listener takes connections; the ports are those of the last time.

        Raises:  LocalProtocolError when it runs already; StoreFailed when it ends instead of serving; DeadlineExceeded.
        """
        if self.is_running:
            raise LocalProtocolError("this server runs already")
        self.folder.mkdir(parents=True, exist_ok=True)
        begin = self._lines.stat().st_size if self._lines.exists() else 0
        with self._lines.open("ab") as output:
            # Its own folder: a polymq.toml where the tests are run has nothing to do with them.
            self._process = subprocess.Popen(  # noqa: S603 - this Python and this package
                self._command(), stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=self.folder, env=_environment()
            )
        try:
            self._wait_until_it_serves(begin)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it as SIGTERM does, with everything on the disk; nothing if it does not run because of `stop` or `kill`.

        Raises:  StoreFailed when it had ended by itself, or ends with an error; DeadlineExceeded when it had to be killed.
        """
        process, self._process = self._process, None
        if process is None:
            return
        ended_before = process.poll() is not None
        process.terminate()
        try:
            code = process.wait(timeout=self._deadline_seconds)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise DeadlineExceeded(f"polymq did not stop within {self._deadline_seconds:g} s of SIGTERM:\n{self.log()}") from error
        if ended_before or code != 0:
            raise StoreFailed(f"polymq ended {'by itself ' if ended_before else ''}with code {code}:\n{self.log()}")

    def kill(self) -> None:
        """End it at once, as SIGKILL does: what a crash of the process looks like to clients, and to the data."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Stop it and start it again on the same ports and data."""
        self.stop()
        self.start()

    def _command(self) -> list[str]:
        values = dict.fromkeys(_NOT_WANTED, "off")
        values |= {setting: self._addresses[name] for name, (setting, _) in _LISTENERS.items()}
        values |= {"server.advertise": "127.0.0.1", **self._settings, "server.data": str(self.data)}
        pairs = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
        return [sys.executable, "-m", "polymq.cli", "serve", *pairs]

    def _wait_until_it_serves(self, begin: int) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._deadline_seconds
        while True:
            has_ended = self._process.poll() is not None
            written = self._lines.read_bytes()[begin:].decode("utf-8", "replace")
            if re.search(r": serving, data in .*\n", written):
                break
            if has_ended:
                raise StoreFailed(f"polymq did not start:\n{written}")
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"polymq did not serve within {self._deadline_seconds:g} s:\n{written}")
            time.sleep(_POLL_SECONDS)
        for name, (_, word) in _LISTENERS.items():
            found = re.search(rf": {word}\b[^:\n]* on (\S+)\n", written)
            self._addresses[name] = found[1] if found else "off"


def _written(value: object) -> str:
    """Write a value as `--set` reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _environment() -> dict[str, str]:
    """Make the environment of a server: that of the tests without settings, and with this very polymq first on the path."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("POLYMQ_") or name == _KEPT}
    here = str(Path(__file__).resolve().parents[2])
    found["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [found.get("PYTHONPATH")])])
    return found
