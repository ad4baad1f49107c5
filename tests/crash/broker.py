"""The broker as a process of its own: start, kill, stop, and look into its data folder when it is not running."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from polymq.core.access import ANONYMOUS
from polymq.core.broker import Broker
from polymq.server.node import SystemClock
from polymq.store.files import RealFiles
from polymq.store.store import Store
from polymq.store.workers import InlineWorker
from polymq.testing.process import read_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from polymq.testing.options import TopicPlan

__all__ = ["RealBroker"]

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 30.0
# Flags that say where clients of each protocol are waited for, on one port after the other.
_PORTS: Final = ("nsq", "rocketmq", "phpmq", "nats")
# The subjects of NATS that are stored although nobody has made topics of them.
_CAPTURED: Final = "captured.>"


class RealBroker:
    """One data folder and the process that serves it, when there is one."""

    def __init__(self, folder: Path, port: int) -> None:
        self.ports = {name: ("127.0.0.1", port + number) for number, name in enumerate(_PORTS)}
        self.address = self.ports["nsq"]
        self._data = folder / "data"
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the process and wait until it accepts; gives the seconds that took."""
        began = time.monotonic()
        command = [sys.executable, "-m", "polymq.cli", "serve", "--data", str(self._data), "--nats-capture", _CAPTURED]
        for name, (host, port) in self.ports.items():
            command += [f"--{name}", f"{host}:{port}"]
        for listener in ("--nsq-http", "--http", "--nsq-lookup", "--nsq-lookup-http"):
            command += [listener, "off"]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        while time.monotonic() < began + _START_TIMEOUT_S:
            if self._process.poll() is not None:
                raise AssertionError(f"the broker ended with {self._process.returncode} at its start:\n{self.log_tail()}")
            try:
                socket.create_connection(self.address, timeout=1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return time.monotonic() - began
        raise AssertionError(f"the broker did not accept in {_START_TIMEOUT_S} s:\n{self.log_tail()}")

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        assert process is not None
        assert process.poll() is None, f"the broker ended by itself with {process.returncode}:\n{self.log_tail()}"
        process.kill()
        process.wait()

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended well."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(signal.SIGTERM)
        code = process.wait(_STOP_TIMEOUT_S)
        assert code == 0, f"the broker ended with {code} when it was asked to:\n{self.log_tail()}"

    def close(self) -> None:
        """End what is left of it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log_tail(self) -> str:
        """What it said last."""
        return self._log.read_bytes()[-4000:].decode(errors="replace")

    # While there is no process.

    def create_topics(self, topics: Sequence[TopicPlan], groups: Sequence[tuple[str, str]]) -> None:
        """Make the data folder, with topics that have their own number of partitions and durability, and (topic, group) pairs.

        Only a topic's first group is given what is there already: where there are to be several, all are made while there is nothing.
        """
        for broker in self._inside():
            session = broker.session(ANONYMOUS)
            for plan in topics:
                session.create_topic(plan.name, partitions=plan.partitions, sync=plan.sync)
            for topic, group in groups:
                session.create_group(topic, group)

    def read_partitions(self, *, shown: bool = False) -> list[tuple[str, int, list[tuple[int, bytes]]]]:
        """Read what is in the logs, or what of that readers are `shown`: topic, partition number, (offset, body) pairs."""
        found: list[tuple[str, int, list[tuple[int, bytes]]]] = []
        for broker in self._inside():
            store = broker.store

            def turn(store: object = store) -> None:
                assert isinstance(store, Store)
                store.commit()
                store.poll()

            session = broker.session(ANONYMOUS)
            for _, topic in sorted(broker.catalogue.topics):
                found += [(topic, number, records) for number, records in read_partitions(session, [topic], turn, shown=shown)]
        return found

    def _inside(self) -> Iterator[Broker]:
        """Open the data folder in this process for a moment."""
        assert not self.running
        self._data.mkdir(parents=True, exist_ok=True)
        clock = SystemClock()
        store = Store.open(
            RealFiles(self._data), InlineWorker(), clock=clock, boot_id="inspection", random_u64=lambda: random.getrandbits(64)
        )
        broker = Broker(store, clock, random)
        broker.start()
        yield broker
        broker.tick()
        store.close(clean=True)
