"""A standalone Spark cluster on loopback out of pip's package: a master, workers, and programs that are submitted to them.

pip's package has no start scripts, but all classes. Every process is one of a session of its own, on ports that were free, and runs in
a folder from which nothing is found: it knows polymq by the folder that `pip install --target` has filled, as a node does that has it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyspark

from tests.crash.processes import kill_session, members
from tests.interop.servers import ROOT, free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["SparkCluster", "install"]

_SPARK: Final = Path(pyspark.__file__).parent
_START_S_MAX: Final = 120.0
_POLL_S: Final = 0.1
# Java processes that live for a minute: what compiles and collects least is the quickest.
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# What a wheel is made of; what was built in this tree, for another Python or of another state, is none of it.
_SOURCES: Final = ("pyproject.toml", "setup.py", "hot_modules.txt", "MANIFEST.in", "README.md", "LICENSE", "src")


def install(folder: Path) -> Path:
    """Make a wheel of this tree, and install it into a folder: what docs/SPARK_CLUSTER.md has done on every node.

    Without a compiler's work, which takes minutes and changes nothing but the speed; without a network.
    """
    tree, wheels, target = folder / "tree", folder / "wheels", folder / "site"
    tree.mkdir(parents=True)
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info", "_build_mode.txt")
            )
        else:
            shutil.copy(ROOT / name, tree / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    make = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(tree)]
    subprocess.run(make, check=True, cwd=folder, env=os.environ | {"POLYMQ_BUILD": "pure", "PYTHONPATH": ""})
    (wheel,) = wheels.glob("polymq-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)], check=True, cwd=folder)
    return target


class SparkCluster:
    """A master and two workers, of one core and one executor each."""

    def __init__(self, folder: Path, site: Path) -> None:
        self._folder = folder
        port, web, *self._workers_web = free_ports(4)
        self.master = f"spark://127.0.0.1:{port}"
        self._web = f"http://127.0.0.1:{web}/json/"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        self._environment |= {
            "SPARK_HOME": str(_SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(site),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _QUICK,
        }
        self._begun: dict[str, subprocess.Popen[bytes]] = {}
        self._class("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web))

    def __enter__(self) -> Self:
        """Start the workers, and wait until the master knows both."""
        for number, web in enumerate(self._workers_web):
            arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", str(web)]
            work = self._folder / f"work{number}"
            self._class(f"worker{number}", "org.apache.spark.deploy.worker.Worker", *arguments, "--work-dir", str(work), self.master)
        self.wait_for_workers(2)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End everything."""
        for name in reversed(list(self._begun)):
            self.kill(name)

    def submit(self, name: str, arguments: Sequence[str]) -> None:
        """Submit a program; `arguments` as those of spark-submit."""
        quick = ["--conf", f"spark.executor.extraJavaOptions={_QUICK}", "--conf", "spark.log.level=WARN"]
        self._run(name, [str(_SPARK / "bin" / "spark-submit"), "--master", self.master, *quick, *arguments])

    def kill(self, name: str) -> None:
        """SIGKILL to a process with all that it has started: of a worker, also its executors and their Python workers."""
        process = self._begun.pop(name)
        kill_session(process.pid)
        process.wait()

    def kill_worker_at_work(self, name: str) -> None:
        """Kill a worker that has an executor, and with it that."""
        assert members(self._begun[name].pid, "CoarseGrainedExecutorBackend"), f"{name} has no executor"
        self.kill(name)

    def is_running(self, name: str) -> bool:
        """Whether a process is still there."""
        return self._begun[name].poll() is None

    def state(self) -> dict[str, Any]:
        """Ask the master what there is."""
        with urllib.request.urlopen(self._web, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def wait_for_workers(self, count: int) -> None:
        """Wait until the master has so many workers that are alive."""
        deadline = time.monotonic() + _START_S_MAX
        while True:
            try:
                if sum(each["state"] == "ALIVE" for each in self.state()["workers"]) == count:
                    return
            except OSError:
                pass
            assert time.monotonic() < deadline, self.words("master")
            time.sleep(_POLL_S)

    def words(self, name: str) -> str:
        """What a process has said, its end."""
        return (self._folder / f"{name}.log").read_text(errors="replace")[-8000:]

    def _class(self, name: str, java_class: str, *arguments: str) -> None:
        self._run(name, [str(_SPARK / "bin" / "spark-class"), java_class, *arguments])

    def _run(self, name: str, command: list[str]) -> None:
        with (self._folder / f"{name}.log").open("ab") as words:
            self._begun[name] = subprocess.Popen(
                command,
                stdout=words,
                stderr=words,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )
