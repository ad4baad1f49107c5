"""The servers that speak RocketMQ, and how each is started: polymq, and a real nameserver with a real broker, each a JVM.

The JVMs stay up from row to row, and polymq beside them, because starting and warming takes longer than measuring; each measurement has
topics of its own. What the scripts of RocketMQ give a JVM (8 GB to the broker, 4 GB to the nameserver, touched in advance) is scaled to
what three brokers on one machine can have; the collector and its settings are theirs.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from typing import TYPE_CHECKING

from bench.harness.process import MissingServerError, ServerProcess
from bench.harness.rocketmq_client import make_topic, message_passed

if TYPE_CHECKING:
    from pathlib import Path

    from bench.harness.process import Setup

__all__ = ["QUEUES", "REAL_KINDS", "ROCKETMQ_KINDS", "RocketmqServer", "class_path"]

REAL_KINDS = ("rocketmq-4.9", "rocketmq-5.3")
ROCKETMQ_KINDS = (*REAL_KINDS, "polymq")
QUEUES = 4
# Behind those of NSQ and NATS. A broker also takes the port above its own and the second one below.
PORTS_AT = 20
PORTS_EACH = 8
BROKER_PORT_AT = 4
BROKER_HEAP = "1g"
NAMESERVER_HEAP = "256m"
# Java 17 and newer do not let 4.9 free its maps otherwise.
JAVA_OPENS = ("java.base/java.nio=ALL-UNNAMED", "java.base/sun.nio.ch=ALL-UNNAMED", "java.base/jdk.internal.ref=ALL-UNNAMED")
COLLECTOR = ("G1HeapRegionSize=16m", "G1ReservePercent=25", "InitiatingHeapOccupancyPercent=30", "SoftRefLRUPolicyMSPerMB=0")
LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %-5p %c{1} - %m%n</pattern></encoder></appender>
  <root level="ERROR"><appender-ref ref="out"/></root>
</configuration>
"""
# The names by which the versions look for it.
LOGBACK_NAMES = ("logback_namesrv.xml", "logback_broker.xml", "rmq.namesrv.logback.xml", "rmq.broker.logback.xml")
POLL_S = 0.002
PATIENCE_S = 60.0

_topics = itertools.count()


def class_path(setup: Setup, part: str) -> str:
    """The jars of a part of peers/rocketmq."""
    folder = setup.peers.parent / "rocketmq" / part
    if not list(folder.glob("*.jar")):
        raise MissingServerError(f"{folder} has no jars: run peers/build.sh rocketmq")
    return f"{folder}/*"


def jvm(data: Path, heap: str) -> list[str]:
    """How a server's JVM is run: the settings of runbroker.sh, but for the size, and for touching all memory at the start."""
    opens = [f"--add-opens={each}" for each in JAVA_OPENS]
    collector = [f"-XX:{each}" for each in ("+UseG1GC", *COLLECTOR)]
    # A disk that is fuller than three quarters would be taken for a full one.
    disk = [f"-Drocketmq.broker.diskSpace{name}Ratio=0.99" for name in ("WarningLevel", "CleanForcibly")]
    homes = [f"-Duser.home={data}", f"-Drocketmq.home.dir={data}", f"-Djava.io.tmpdir={data}", "-Djava.net.preferIPv4Stack=true"]
    return ["java", "-server", f"-Xms{heap}", f"-Xmx{heap}", *collector, *opens, *disk, *homes]


def write_settings(path: Path, settings: dict[str, object]) -> Path:
    """A file of settings, and the folder around it with what a server looks for there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in LOGBACK_NAMES:
        (path.parent / name).write_text(LOGBACK)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


class Nameserver(ServerProcess):
    """A real nameserver."""

    def __init__(self, kind: str, setup: Setup, port: int) -> None:
        super().__init__(kind, setup, name=f"{kind}-nameserver")
        self.port = port

    def command(self) -> list[str]:
        settings = {"listenPort": self.port, "rocketmqHome": self.data, "kvConfigPath": self.data / "kv.json"}
        file = write_settings(self.data / "conf" / "namesrv.conf", settings)
        jars = class_path(self.setup, self.kind.replace("rocketmq", "server"))
        return [*jvm(self.data, NAMESERVER_HEAP), "-cp", jars, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(file)]

    def accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


class RocketmqServer(ServerProcess):
    """What serves RocketMQ's clients: polymq, or a broker with its nameserver; figures of memory and time are those of both together."""

    def __init__(self, kind: str, setup: Setup) -> None:
        super().__init__(kind, setup, name=f"rocketmq-{kind}" if kind == "polymq" else kind)
        self.port = setup.port_base + PORTS_AT + PORTS_EACH * ROCKETMQ_KINDS.index(kind)
        # HOST:PORT of the nameserver, which is all that clients are told.
        self.address = f"127.0.0.1:{self.port}"
        self.nameserver = Nameserver(kind, setup, self.port) if kind in REAL_KINDS else None
        # Topics that hold messages which several rows read.
        self.filled: dict[str, str] = {}

    def command(self) -> list[str]:
        return polymq_command(self) if self.nameserver is None else broker_command(self)

    def accepts(self) -> bool:
        """Whether a broker is known that makes topics, and makes one."""
        try:
            make_topic(self.address, "bench-there", QUEUES)
        except OSError:
            return False
        return True

    def new_topic(self, name: str) -> str:
        """A name that no topic has yet."""
        return f"{name}-{next(_topics)}"

    def start(self) -> float:
        began = time.perf_counter()
        self.filled.clear()
        if self.nameserver is not None:
            self.nameserver.__enter__()
        try:
            super().start()
        except BaseException:
            self.kill()
            raise
        return time.perf_counter() - began

    def first_message(self) -> None:
        """Try until a message has come through."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return message_passed(self.address, "bench-first")
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)

    def kill(self) -> None:
        super().kill()
        if self.nameserver is not None:
            self.nameserver.__exit__()

    def anonymous_bytes(self) -> int:
        return super().anonymous_bytes() + (self.nameserver.anonymous_bytes() if self.nameserver else 0)

    def resident_bytes(self) -> int:
        return super().resident_bytes() + (self.nameserver.resident_bytes() if self.nameserver else 0)

    def cpu_s(self) -> float:
        return super().cpu_s() + (self.nameserver.cpu_s() if self.nameserver else 0)


def broker_command(server: RocketmqServer) -> list[str]:
    """All as RocketMQ has it by default, asynchronous flush among it, but for addresses, folders, and the time that a send may wait for its turn."""
    port = server.port + BROKER_PORT_AT
    settings = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": server.address,
        "rocketmqHome": server.data,
        "storePathRootDir": server.data / "store",
        "storePathCommitLog": server.data / "store" / "commitlog",
        "flushDiskType": "ASYNC_FLUSH",
        "brokerRole": "ASYNC_MASTER",
        "autoCreateTopicEnable": "true",
        "diskMaxUsedSpaceRatio": 95,
        # By default 200: a moment in which the machine is away would be an error in place of a figure.
        "waitTimeMillsInSendQueue": 3000,
    }
    file = write_settings(server.data / "conf" / "broker.conf", settings)
    jars = class_path(server.setup, server.kind.replace("rocketmq", "server"))
    return [*jvm(server.data, BROKER_HEAP), "-cp", jars, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(file)]


def polymq_command(server: RocketmqServer) -> list[str]:
    doors = ["--rocketmq", server.address, "--http", f"127.0.0.1:{server.port + 1}", "--nsq", "off", "--nsq-http", "off"]
    directory = ["--nsq-lookup", "off", "--nsq-lookup-http", "off", "--advertise", "127.0.0.1"]
    return [*server.setup.polymq, "serve", "--data", str(server.data), *doors, *directory, *server.setup.polymq_extra]
