"""The load generator: compiled when its source is newer than the program, run as a process, its answer read as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.harness.process import MissingServerError

__all__ = ["Generator", "LoadError"]

SOURCE = Path(__file__).resolve().parents[1] / "loadgen"
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]
# Beyond its own deadline the generator gets this long to sort and print its samples.
GRACE_S = 20.0
# The status that says that the deadline came first.
EXIT_DEADLINE = 3


class LoadError(Exception):
    """The generator ended with an error: of the server, of the connection, or of the deadline."""


class Generator:
    """Runs `loadgen`; every call is bounded by a deadline."""

    def __init__(self, build: Path) -> None:
        self.program = build / "loadgen"
        sources = sorted(SOURCE.glob("*.[ch]"))
        newest = max(path.stat().st_mtime for path in sources)
        if self.program.exists() and self.program.stat().st_mtime > newest:
            return
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if not compiler:
            raise MissingServerError("no C compiler for the load generator: install gcc (apt-get install gcc) or set CC")
        build.mkdir(parents=True, exist_ok=True)
        units = [str(path) for path in sources if path.suffix == ".c"]
        built = subprocess.run([compiler, *FLAGS, "-o", str(self.program), *units, "-lz"], capture_output=True, text=True, check=False)
        if built.returncode:
            missing = "zlib.h" in built.stderr or "-lz" in built.stderr
            hint = "no zlib for the load generator: install zlib1g-dev" if missing else built.stderr.strip()[-2000:]
            raise MissingServerError(hint)

    def start(self, mode: str, address: str, *, deadline_s: float = 120, **options: object) -> subprocess.Popen[bytes]:
        """Start a load that runs beside another one; hand it to `finish`."""
        command = [str(self.program), mode, "--address", address, "--deadline", str(deadline_s)]
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            command += [flag] if value is True else [flag, str(value)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self, process: subprocess.Popen[bytes], *, deadline_s: float = 120, whole: bool = True) -> dict[str, Any]:
        """Wait for a load and return what it measured; unless it must be `whole`, what it did until its deadline will do."""
        try:
            out, err = process.communicate(timeout=deadline_s + GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise LoadError("the generator did not end at its deadline") from None
        if process.returncode and (whole or process.returncode != EXIT_DEADLINE):
            done = json.loads(out.splitlines()[-1])["messages"] if out else 0
            raise LoadError(f"{err.decode(errors='replace').strip()[:300]} (after {done} messages)")
        return dict(json.loads(out.splitlines()[-1]))

    def run(self, mode: str, address: str, *, deadline_s: float = 120, **options: object) -> dict[str, Any]:
        """Run a load to its end."""
        return self.finish(self.start(mode, address, deadline_s=deadline_s, **options), deadline_s=deadline_s)
