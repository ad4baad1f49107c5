"""Servers that speak RocketMQ, on loopback: polymq, and a real nameserver with a real broker, 4.9 and 5.3.

A kind is started in a folder of its own; it is ready when the nameserver's port knows a broker that makes topics. `name_server` is what
clients are told. Leaving the context ends it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.rocketmq_raw import Connection
from tests.interop.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "EVERY_CONTROL",
    "JAVA_PEERS",
    "PEERS",
    "POLYMQ",
    "REAL_KINDS",
    "SERVING_KINDS",
    "RocketmqServer",
    "class_path",
    "java_command",
    "rocketmq_server",
]

# POLYMQ_PEERS: where peers/build.sh has put them, if not beside these tests.
PEERS = Path(os.environ.get("POLYMQ_PEERS", ROOT / ".peers"))
JAVA_PEERS = PEERS / "rocketmq"
REAL_KINDS = ("rocketmq-4.9", "rocketmq-5.3")
POLYMQ = "polymq"
SERVING_KINDS = (POLYMQ, *REAL_KINDS)
# Real servers show what a real one does, which does not change from day to day: so only some of that is asked of all of them.
EVERY_CONTROL = os.environ.get("POLYMQ_INTEROP_CONTROLS", "") == "all"
# POLYMQ_INTEROP_ROCKETMQ_PORTS: where the ports begin, if several runs share a machine. Each server takes five.
PORTS_EACH = 5
PORTS = range(first := int(os.environ.get("POLYMQ_INTEROP_ROCKETMQ_PORTS", "24600")), first + 80 * PORTS_EACH, PORTS_EACH)
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.05
GET_ROUTE = 105
MAKE_TOPIC = 17
# Topics are made after its likeness: it has a route once a broker has told the nameserver of itself.
LIKENESS = "TBW102"
# Java 17 does not let 4.9 free its maps otherwise.
JAVA_OPENS = ("java.base/java.nio=ALL-UNNAMED", "java.base/sun.nio.ch=ALL-UNNAMED", "java.base/jdk.internal.ref=ALL-UNNAMED")
LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %-5p %c{1} - %m%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
MEBIBYTE = 1 << 20

# Each process begins somewhere else, so that two of them hardly meet.
_numbers = itertools.count(11 * os.getpid())


def free_ports() -> int:
    """The first of five neighbours that nothing listens on."""
    for _ in PORTS:
        port = PORTS[next(_numbers) % len(PORTS)]
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for each in range(port, port + PORTS_EACH):
                stack.enter_context(socket.create_server(("127.0.0.1", each)))
            return port
    raise AssertionError(f"no free ports in {PORTS}")


def class_path(*parts: str) -> str:
    """The jars of some parts of peers/rocketmq, and what is compiled there, as Java wants them."""
    for part in parts:
        if not (JAVA_PEERS / part).is_dir():
            pytest.fail(f"{JAVA_PEERS / part} is missing: run peers/build.sh rocketmq")
    return os.pathsep.join(
        str(JAVA_PEERS / part / "*") if list((JAVA_PEERS / part).glob("*.jar")) else str(JAVA_PEERS / part) for part in parts
    )


def java_command(folder: Path, parts: Sequence[str], *, heap: str = "256m", options: Sequence[str] = ()) -> list[str]:
    """How Java is run here: small, and with its home in `folder`, where RocketMQ writes logs and offsets."""
    opens = [f"--add-opens={each}" for each in JAVA_OPENS]
    # RocketMQ sees no disk that is fuller than that as full.
    disk = [f"-Drocketmq.broker.diskSpace{name}Ratio=0.99" for name in ("WarningLevel", "CleanForcibly")]
    sizes = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    homes = [f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}", f"-Djava.io.tmpdir={folder}", "-Djava.net.preferIPv4Stack=true"]
    return ["java", *sizes, *opens, *homes, *disk, *options, "-cp", class_path(*parts)]


class RocketmqServer:
    """A server and its process, which may be killed and started again on the same ports and data."""

    def __init__(self, kind: str, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are the kind's own: lines of broker.conf, or of polymq's section `rocketmq`."""
        self.kind = kind
        self.folder = folder
        self.settings = dict(settings or {})
        port = free_ports()
        self.name_port = port
        # The port two below the broker's is a way in for old clients; a real one has something on the port above, too.
        self.broker_port = port + 3
        self.http_port = port + 4
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def name_server(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.name_port}"

    @functools.cached_property
    def command(self) -> list[str]:
        """What runs a server of this kind; writes the files that it needs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.kind == POLYMQ:
            return self._ours()
        (self.folder / "conf").mkdir(exist_ok=True)
        for name in ("namesrv", "broker"):
            (self.folder / "conf" / f"logback_{name}.xml").write_text(LOGBACK, encoding="utf-8")
        files = []
        for name, settings in (("namesrv", self._name_server_settings()), ("broker", self._broker_settings())):
            file = self.folder / "conf" / f"{name}.conf"
            file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
            files.append(str(file))
        version = self.kind.removeprefix("rocketmq-")
        parts = [f"servers-{version}", f"server-{version}"]
        return [*java_command(self.folder, parts, heap="384m"), "Servers", *files]

    def _ours(self) -> list[str]:
        # POLYMQ_COMMAND: another build of polymq than the one that this Python would run.
        ours = shlex.split(os.environ.get("POLYMQ_COMMAND", f"{shlex.quote(sys.executable)} -m polymq.cli"))
        roles = {"namesrv": self.name_server, "broker": f"127.0.0.1:{self.broker_port}", "vip": f"127.0.0.1:{self.broker_port - 2}"}
        settings = []
        for name, value in {**roles, "broker_name": "broker-a", "advertised_host": "127.0.0.1", **self.settings}.items():
            settings += ["--set", f"rocketmq.{name}={value}"]
        ports = ["--http", f"127.0.0.1:{self.http_port}", "--nsq", "off", "--nsq-http", "off"]
        return [*ours, "serve", "--data", str(self.folder / "data"), *ports, *settings]

    def _name_server_settings(self) -> dict[str, str]:
        return {"listenPort": str(self.name_port), "rocketmqHome": str(self.folder), "kvConfigPath": str(self.folder / "kv.json")}

    def _broker_settings(self) -> dict[str, str]:
        store = self.folder / "store"
        log_size = str(64 * MEBIBYTE)
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(self.broker_port),
            "haListenPort": str(self.broker_port + 1),
            "namesrvAddr": self.name_server,
            "rocketmqHome": str(self.folder),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            # Both names: it was misspelt once.
            "mapedFileSizeCommitLog": log_size,
            "mappedFileSizeCommitLog": log_size,
            "mappedFileSizeConsumeQueue": "600000",
            "maxHashSlotNum": "50000",
            "maxIndexNum": "200000",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerRole": "ASYNC_MASTER",
            "autoCreateTopicEnable": "true",
            "autoCreateSubscriptionGroup": "true",
            "deleteWhen": "04",
            "fileReservedTime": "72",
            "diskMaxUsedSpaceRatio": "95",
            # On a busy machine a send may wait for longer than the 200 ms that it is given.
            "waitTimeMillsInSendQueue": "3000",
            **self.settings,
        }

    def start(self) -> None:
        """Start it, and wait until it knows what a topic is."""
        assert self.process is None
        command = self.command
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=self.folder)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"{self.kind} did not start: {self.log_text()[-3000:]}")
            time.sleep(POLL_S)

    def answers(self) -> bool:
        """Whether clients are served."""
        try:
            with Connection(self.name_port, timeout_s=2) as connection:
                return connection.ask(GET_ROUTE, {"topic": LIKENESS}).code == 0
        except (OSError, EOFError):
            return False

    def broker(self) -> Connection:
        """A connection to the broker."""
        return Connection(self.broker_port)

    def nameserver(self) -> Connection:
        """A connection to the nameserver."""
        return Connection(self.name_port)

    def make_topic(self, topic: str, queues: int = 4) -> None:
        """Make a topic, and wait until the nameserver knows it."""
        counts = {"readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG"}
        with self.broker() as connection:
            answer = connection.ask(MAKE_TOPIC, {"topic": topic, "defaultTopic": LIKENESS, **counts, "topicSysFlag": "0", "order": "false"})
            assert answer.code == 0, answer
        self.await_route(topic)

    def await_route(self, topic: str) -> None:
        """Wait until the nameserver knows a topic."""
        deadline = time.monotonic() + START_TIMEOUT_S
        with self.nameserver() as connection:
            while connection.ask(GET_ROUTE, {"topic": topic}).code:
                assert time.monotonic() < deadline, f"{topic} is not known"
                time.sleep(POLL_S)

    def log_text(self) -> str:
        """All that it has said."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """kill -9; nothing if it has ended already."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """SIGTERM, after which polymq must end by itself; a real one is killed."""
        if self.process is None:
            return
        process, self.process = self.process, None
        was_dead = process.poll() is not None
        if self.kind != POLYMQ and not was_dead:
            # How a real one ends is nobody's question here, and it takes its time.
            process.kill()
            process.wait()
            return
        process.terminate()
        try:
            status = process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"{self.kind} did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM")
        if was_dead or status:
            pytest.fail(f"{self.kind} ended {'by itself ' if was_dead else ''}with {status}: {self.log_text()[-3000:]}")


@contextlib.contextmanager
def rocketmq_server(kind: str, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[RocketmqServer]:
    """Run one server; `settings` are lines of broker.conf, or of polymq's section `rocketmq`."""
    server = RocketmqServer(kind, folder, settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        # A real broker's files are many and large.
        shutil.rmtree(folder / "store", ignore_errors=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, rocketmq_server(sys.argv[1], Path(name)) as started:
        print(f"nameserver {started.name_server}, broker 127.0.0.1:{started.broker_port}")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(60)
