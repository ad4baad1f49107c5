"""The processes of a program that was started in a session of its own: found, told apart by what they run, and killed."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

__all__ = ["kill_session", "members"]


def members(session: int, containing: str = "") -> list[int]:
    """List the processes of a session (the first one's number) whose command line has something in it.

    Groups will not do: Spark's Python workers make one of their own.
    """
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            # The name may have blanks and brackets: what follows is behind the last bracket; the session is the fourth of it.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if int(fields[3]) == session and fields[0] != "Z" and containing in command:
                found.append(int(folder.name))
    return sorted(found)


def kill_session(session: int) -> int:
    """SIGKILL to everybody, until nobody is left; says how many there were."""
    count = 0
    while left := members(session):
        count = max(count, len(left))
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
    return count
