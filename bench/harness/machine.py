"""The machine: what it is, warming its memory, and making its page cache small for one server."""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import subprocess
import time
from pathlib import Path

__all__ = ["SmallCache", "available_bytes", "facts", "warm_memory"]

WARM_CHUNK_BYTES = 1 << 30
# Left alone when warming, so that nothing else on the machine is pushed out.
WARM_RESERVE_BYTES = 2 << 30


def _meminfo(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def available_bytes() -> int:
    """Memory that can be had without pushing anything out."""
    return _meminfo("MemAvailable")


def warm_memory(size_bytes_max: int) -> str:
    """Touch memory once, so that no server pays for pages that a virtual machine has never used; say what was done."""
    size = min(size_bytes_max, available_bytes() - WARM_RESERVE_BYTES)
    chunks = []
    began = time.perf_counter()
    for _ in range(max(0, size) // WARM_CHUNK_BYTES):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        chunks.append(mmap.mmap(-1, WARM_CHUNK_BYTES, flags=flags))
    seconds = time.perf_counter() - began
    for chunk in chunks:
        chunk.close()
    return f"{len(chunks)} GiB touched in {seconds:.1f} s"


def _first_line(path: str, prefix: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(prefix):
            return line.split(":", 1)[1].strip()
    return "unknown"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def facts(scratch: Path) -> dict[str, object]:
    """What a reader needs to compare figures with those of another machine."""
    return {
        "processor": _first_line("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_gib": round(_meminfo("MemTotal") / 2**30, 1),
        "kernel": platform.release(),
        "file_system": _output("stat", "-f", "-c", "%T", str(scratch)),
        "python": platform.python_version(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "commit": _output("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"),
    }


class SmallCache:
    """A memory control group around one server: its page cache and its own memory together stay under a limit.

    Entering gives the words to put before the server's command. Without the right to make a group, `method` says so
    and nothing is limited; the caller then drops the files from the cache by `drop`.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.group: Path | None = None
        self.wrapper: list[str] = []
        self.method = "no control group; files dropped from the page cache by posix_fadvise before reading"

    def __enter__(self) -> SmallCache:
        for base, limit in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
            group = base / f"polymq-bench-{os.getpid()}"
            try:
                group.mkdir()
                (group / limit).write_text(str(self.size_bytes))
            except OSError:
                if group.is_dir():
                    group.rmdir()
                continue
            self.group = group
            self.method = f"control group of {self.size_bytes >> 20} MiB ({limit}) around the server"
            self.wrapper = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]
            break
        return self

    def __exit__(self, *_: object) -> None:
        if self.group is not None:
            deadline = time.monotonic() + 5
            while self.group.is_dir() and time.monotonic() < deadline:
                # The kernel needs a moment to see that the last process is gone.
                with contextlib.suppress(OSError):
                    self.group.rmdir()
                time.sleep(0.1)

    def drop(self, folder: Path) -> None:
        """Ask the kernel to forget the cached pages of every file in a folder."""
        for path in folder.rglob("*"):
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)
