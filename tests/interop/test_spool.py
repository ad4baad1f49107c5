"""A spooler in a process of its own, killed again and again, with real brokers: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from polymq.clients.nats import NatsPublisher
from polymq.clients.nsq import NsqProducer
from polymq.spool import folder
from polymq.spool.reading import Catalogue, read_piece
from polymq.wire.records import columns
from tests.interop.nats_servers import nats_server
from tests.interop.servers import KINDS, Running, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


KILLS = 6
BATCHES = 60
PER_BATCH = 200
TIMEOUT_S = 60.0


@dataclass(slots=True)
class SpoolerProcess:
    """`polymq spool run`, which may be killed and started again."""

    command: list[str]
    path: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def is_receiving(self) -> bool:
        """Whether this very process says so."""
        assert self.process is not None
        said = folder.status(self.path) if self.path.exists() else None
        return said is not None and (said["state"], said["pid"]) == ("receiving", self.process.pid)

    def await_receiving(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not self.is_receiving():
            assert time.monotonic() < deadline, self.log.read_text(errors="replace")[-2000:]
            time.sleep(0.02)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)


@contextlib.contextmanager
def spooling(protocol: str, path: Path, **options: object) -> Iterator[SpoolerProcess]:
    pairs = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    command = [sys.executable, "-m", "polymq.cli", "spool", "run", protocol, str(path), *pairs]
    spooler = SpoolerProcess(command, path, path.with_suffix(".log"))
    spooler.start()
    try:
        yield spooler
    finally:
        if spooler.process is not None and spooler.process.poll() is None:
            spooler.kill()


def end_of(path: Path) -> int:
    found = folder.position(path) if path.exists() else None
    return 0 if found is None else found.end


def bodies_in(path: Path, protocol: str) -> list[bytes]:
    catalogue = Catalogue(path, protocol)
    assert catalogue.start() == 0
    found: list[bytes] = []
    for piece in catalogue.pieces(0, catalogue.end()):
        for stretch in read_piece(path, piece):
            made = columns(stretch.data, 0, stretch.size, stretch.first, stretch.end)
            found += [bytes(made.bodies[made.body_ends[n] : made.body_ends[n + 1]]) for n in range(made.count)]
    return found


def wait_for(path: Path, count: int, spooler: SpoolerProcess) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while end_of(path) < count:
        assert time.monotonic() < deadline, f"{end_of(path)} of {count}\n{spooler.log.read_text(errors='replace')[-2000:]}"
        time.sleep(0.02)


def publishing(server: Running, bodies: list[bytes], done: threading.Event) -> None:
    async def publish() -> None:
        async with NsqProducer(server.tcp) as producer:
            for first in range(0, len(bodies), PER_BATCH):
                await producer.publish_many("orders", bodies[first : first + PER_BATCH])
                await asyncio.sleep(0.02)

    asyncio.run(publish())
    done.set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_spooler_that_is_killed_loses_and_doubles_nothing(kind: str, tmp_path: Path) -> None:
    draw = random.Random(7)
    path = tmp_path / "spool"
    bodies = [b"%06d" % n for n in range(BATCHES * PER_BATCH)]
    done = threading.Event()
    # What a killed spooler had in flight comes again after the timeout.
    with running(kind, tmp_path, message_timeout_ms=1500) as server:
        server.request("POST", "/topic/create?topic=orders")
        server.request("POST", "/channel/create?topic=orders&channel=spark")
        options = {"servers": server.tcp, "subscribe": "orders", "channel": "spark", "maxInFlight": 700}
        with spooling("nsq", path, **options) as spooler:
            thread = threading.Thread(target=publishing, args=(server, bodies, done))
            thread.start()
            for _ in range(KILLS):
                before = end_of(path)
                wait_for(path, min(before + 1, len(bodies)), spooler)
                time.sleep(draw.random() * 0.2)
                spooler.kill()
                spooler.start()
            thread.join()
            spooler.await_receiving()
            wait_for(path, len(bodies), spooler)
            settled = server.settled("orders", "spark")
            assert settled["depth"] == 0
            assert spooler.stop() == 0
    assert done.is_set()
    assert sorted(bodies_in(path, "nsq")) == bodies
    said = json.loads((path / folder.STATUS).read_text(encoding="utf-8"))
    assert (said["state"], said["end"]) == ("stopped", len(bodies))


def test_nats_goes_into_the_spool_once_and_what_was_durable_stays(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    (tmp_path / "server").mkdir()
    with (
        nats_server("nats-server", tmp_path / "server") as server,
        spooling("nats", path, server=server.address, subscribe="orders.*") as spooler,
    ):

        def publish(life: int) -> list[bytes]:
            sent = [b"%d-%04d" % (life, n) for n in range(300)]

            async def go() -> None:
                async with NatsPublisher(server.address) as publisher:
                    await publisher.publish_each([(f"orders.{n % 3}", body, {"n": str(n)}) for n, body in enumerate(sent)])

            asyncio.run(go())
            return sent

        expected: list[bytes] = []
        for life in range(3):
            spooler.await_receiving()
            expected += publish(life)
            wait_for(path, len(expected), spooler)
            if life < 2:
                spooler.kill()
                spooler.start()
        assert spooler.stop() == 0
    assert bodies_in(path, "nats") == expected


def test_two_spoolers_of_one_spool_and_a_server_that_is_away(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    options = {"servers": "127.0.0.1:1", "subscribe": "orders", "channel": "spark", "nsq.clientId": "first"}
    with spooling("nsq", path, **options) as first:
        deadline = time.monotonic() + TIMEOUT_S
        while not (path.exists() and folder.status(path) is not None):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        code = "from polymq.store.files import RealFiles; import sys; RealFiles(sys.argv[1]).lock()"
        taken = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False, text=True, env=dict(os.environ))
        assert "BlockingIOError" in taken.stderr
        assert first.stop() == 0
