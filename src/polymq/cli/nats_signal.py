"""`polymq nats-server --signal COMMAND[=PID]`: have a server that runs do something, as nats-server's flag does.

Without a process id, or the path of a file with one, it is the only `polymq nats-server` that runs.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from polymq.errors import ConfigError

__all__ = ["SIGNALS", "send", "servers"]

SIGNALS: Final = {
    "reload": signal.SIGHUP,
    "reopen": signal.SIGUSR1,
    "ldm": signal.SIGUSR2,
    "quit": signal.SIGINT,
    "stop": signal.SIGTERM,  # nats-server kills; here everything is kept
    "term": signal.SIGTERM,
}
_PROCESSES: Final = Path("/proc")


def send(text: str) -> int:
    """Send what was asked for; returns to which process. Raises ConfigError."""
    command, _, whom = text.partition("=")
    if command not in SIGNALS:
        raise ConfigError([f"--signal: expected one of {', '.join(SIGNALS)}, maybe with =PID, not {command!r}"])
    pid = _pid(whom) if whom else _only(servers(_PROCESSES))
    try:
        os.kill(pid, SIGNALS[command])
    except OSError as error:
        raise ConfigError([f"--signal: process {pid}: {error.strerror or error}"]) from error
    return pid


def servers(processes: Path) -> list[int]:
    """List the processes that are servers, but for this one and those that it is run by."""
    found = []
    for folder in processes.iterdir():
        if not folder.name.isdigit() or int(folder.name) in (os.getpid(), os.getppid()):
            continue
        try:
            words = [os.fsdecode(word) for word in (folder / "cmdline").read_bytes().split(b"\0")]
        except OSError:
            continue  # it has ended, or is somebody else's
        if "nats-server" in words and _is_polymq(words[: words.index("nats-server")]):
            found.append(int(folder.name))
    return sorted(found)


def _is_polymq(words: list[str]) -> bool:
    return "polymq.cli" in words or any(Path(word).name == "polymq" for word in words[-1:])


def _pid(whom: str) -> int:
    text = whom
    if not text.isdigit():
        try:
            text = Path(whom).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            text = ""
    if not text.isdigit() or int(text) < 1:
        raise ConfigError([f"--signal: {whom!r} is neither a process id nor a file that has one"])
    return int(text)


def _only(found: list[int]) -> int:
    if not found:
        raise ConfigError(["--signal: no polymq nats-server is running; name a process, --signal COMMAND=PID"])
    if len(found) > 1:
        raise ConfigError([f"--signal: several servers are running: {', '.join(map(str, found))}; name one, --signal COMMAND=PID"])
    return found[0]
