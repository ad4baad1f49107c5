"""The rows about several protocols at once: published by one and consumed by another, and all four side by side.

One polymq with all four doors; a process of the generator publishes while another one consumes, each as fast as it can. Nobody else
serves all of these, so there is no peer: a pair is held against what its two protocols do alone, in the same run.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.harness.generator import LoadError
from bench.harness.process import ServerProcess
from bench.harness.rocketmq_client import make_topic
from bench.harness.row import RATE, Bench, Figures, Goal, Metric, Row

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from bench.harness.process import Setup

__all__ = ["CROSS_ROWS", "PROTOCOLS", "CrossServer", "Protocol"]

# Behind the ports of all others.
PORTS_AT = 44
SIZE = 200
# What the tools of RocketMQ give a topic.
QUEUES = 8
TOPIC = "bench"
MESSAGES = 600_000
# What the messages of all publishers' commands go into.
MESSAGES_STEP = 800
# Those who consume are known to the server by then.
SETTLE_S = 0.1
TOGETHER_S = 4.0
# More than can be published in that time, in whole commands.
ENDLESS = 200_000_000
# Who publishes is at most so many messages ahead of who consumes: what is measured is that what comes in goes out.
LEAD = 10_000
# Publishers end after those who consume, and have all they need to say so.
LONGER_S = 1.0
DEADLINE_S = 300.0
SHARE_OF_PAIR = 0.7
SHARE_OF_ONE = 0.2
SHARE_OF_ALL = 0.8


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a protocol publishes and consumes: modes of the generator, with the windows and batches of its own rows."""

    title: str
    publish: str
    consume: str
    publishing: dict[str, Any] = field(default_factory=dict)
    consuming: dict[str, Any] = field(default_factory=dict)


PROTOCOLS = {
    "nsq": Protocol("NSQ", "mpub", "sub", {"batch": 200, "connections": 2, "window": 4}, {"rdy": 2500}),
    "nats": Protocol("NATS", "nats-pub", "nats-sub", {}, {"subscribers": 1}),
    "rocketmq": Protocol(
        "RocketMQ",
        "rocketmq-batch",
        "rocketmq-pull",
        {"batch": 32, "connections": 4, "window": 4, "queues": QUEUES},
        {"queues": QUEUES, "foreign": True},
    ),
    "phpmq": Protocol("PHPMQ", "phpmq-send", "phpmq-consume", {}, {"window": 1000}),
}


class CrossServer(ServerProcess):
    """polymq with all four doors."""

    def __init__(self, kind: str, setup: Setup) -> None:
        super().__init__(kind, setup, name=f"cross-{kind}")
        ports = iter(range(setup.port_base + PORTS_AT, setup.port_base + PORTS_AT + 6))
        self.nsq_http, self.log_door, *doors = (f"127.0.0.1:{port}" for port in ports)
        # In the order of PROTOCOLS.
        self.doors = dict(zip(PROTOCOLS, doors, strict=True))

    def command(self) -> list[str]:
        doors = [part for name, address in self.doors.items() for part in (f"--{name}", address)]
        http = ["--nsq-http", self.nsq_http, "--http", self.log_door, "--nsq-lookup", "off", "--nsq-lookup-http", "off"]
        extra = ["--advertise", "127.0.0.1", "--set", f"rocketmq.default_queues={QUEUES}", *self.setup.polymq_extra]
        return [*self.setup.polymq, "serve", "--data", str(self.data), *doors, *http, *extra]

    def accepts(self) -> bool:
        try:
            for address in self.doors.values():
                host, port = address.split(":")
                socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            return False
        return True

    def create_topic(self, name: str, *protocols: str) -> None:
        """Have a topic, as RocketMQ makes them if it takes part; a subject of its name is captured then."""
        if "rocketmq" in protocols:
            make_topic(self.doors["rocketmq"], name, QUEUES)
            return
        with contextlib.closing(http.client.HTTPConnection(self.nsq_http, timeout=30)) as connection:
            connection.request("POST", f"/topic/create?topic={name}", b"")
            connection.getresponse().read()


@contextlib.contextmanager
def consuming(
    bench: Bench, server: CrossServer, name: str, topic: str, deadline_s: float, messages: int, told: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Have somebody consume, who is there when this begins."""
    protocol = PROTOCOLS[name]
    options = {"topic": topic, "messages": messages, "size": SIZE, "ready": True, **protocol.consuming}
    if told is not None:
        told.write_bytes(bytes(8))
        options["tell"] = told
    load = bench.generator.start(protocol.consume, server.doors[name], deadline_s=deadline_s, **options)
    try:
        assert load.stdout is not None
        if not json.loads(load.stdout.readline() or b"{}").get("ready"):
            assert load.stderr is not None
            raise LoadError(load.stderr.read().decode(errors="replace").strip()[:300])
        yield load
    finally:
        load.kill()
        load.communicate()


@contextlib.contextmanager
def publishing(
    bench: Bench, server: CrossServer, name: str, topic: str, deadline_s: float, messages: int, told: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Have somebody publish."""
    protocol = PROTOCOLS[name]
    options = {"topic": topic, "messages": messages, "size": SIZE, **protocol.publishing}
    if told is not None:
        options |= {"follow": told, "lead_max": LEAD}
    load = bench.generator.start(protocol.publish, server.doors[name], deadline_s=deadline_s, **options)
    try:
        yield load
    finally:
        load.kill()
        load.communicate()


# -- pairs -----------------------------------------------------------------------------------------------------------------


def pair(bench: Bench, kind: str, source: str, target: str, count: int) -> Figures:
    """Publish by one protocol and consume by another: from the first message published until the last one has been consumed."""
    with CrossServer(kind, bench.setup) as server:
        server.create_topic(TOPIC, source, target)
        with consuming(bench, server, target, TOPIC, DEADLINE_S, count) as consumer:
            time.sleep(SETTLE_S)
            cpu = server.cpu_s()
            with publishing(bench, server, source, TOPIC, DEADLINE_S, count) as publisher:
                published = bench.generator.finish(publisher, deadline_s=DEADLINE_S)
                consumed = bench.generator.finish(consumer, deadline_s=DEADLINE_S)
            return {
                "rate": count / (consumed["ended_s"] - published["began_s"]),
                "published": published["rate"],
                "server_cpu_us": (server.cpu_s() - cpu) / count * 1e6,
            }


def cross(bench: Bench, kind: str) -> Figures:
    """All sixteen pairs."""
    count = bench.count(MESSAGES) // MESSAGES_STEP * MESSAGES_STEP
    figures: Figures = {}
    rates: dict[tuple[str, str], float] = {}
    for source in PROTOCOLS:
        for target in PROTOCOLS:
            found = pair(bench, kind, source, target, count)
            rates[source, target] = float(str(found["rate"]))
            figures |= {f"{key}_{source}_{target}": value for key, value in found.items()}
    for (source, target), rate in rates.items():
        if source != target:
            figures[f"share_{source}_{target}"] = rate / min(rates[source, source], rates[target, target])
    return figures


# -- all at once -----------------------------------------------------------------------------------------------------------


def side_by_side(bench: Bench, kind: str, names: list[str], seconds: float) -> dict[str, float]:
    """Have protocols publish and consume, each on a topic of its own, for some seconds; gives what each has consumed in a second."""
    with CrossServer(kind, bench.setup) as server, contextlib.ExitStack() as loads:
        for name in names:
            server.create_topic(f"{TOPIC}-{name}", name)
        told = {name: bench.setup.scratch / f"received-{name}" for name in names}
        consumers, publishers = {}, {}
        for name in names:
            consumers[name] = loads.enter_context(consuming(bench, server, name, f"{TOPIC}-{name}", seconds, ENDLESS, told[name]))
        time.sleep(SETTLE_S)
        for name in names:
            publishers[name] = loads.enter_context(
                publishing(bench, server, name, f"{TOPIC}-{name}", seconds + LONGER_S, ENDLESS, told[name])
            )
        consumed = {name: bench.generator.finish(load, deadline_s=seconds, whole=False) for name, load in consumers.items()}
        published = {name: bench.generator.finish(load, deadline_s=seconds, whole=False) for name, load in publishers.items()}
    return {name: consumed[name]["messages"] / (consumed[name]["ended_s"] - published[name]["began_s"]) for name in names}


def together(bench: Bench, kind: str) -> Figures:
    """Each protocol alone, then all of them at once."""
    seconds = 1.0 if bench.quick else TOGETHER_S
    alone = {name: side_by_side(bench, kind, [name], seconds)[name] for name in PROTOCOLS}
    at_once = side_by_side(bench, kind, list(PROTOCOLS), seconds)
    shares = {name: at_once[name] / max(1.0, alone[name]) for name in PROTOCOLS}
    figures: Figures = {f"share_{name}": share for name, share in shares.items()}
    figures["sum"] = sum(shares.values())
    figures |= {f"alone_{name}": rate for name, rate in alone.items()}
    figures |= {f"at_once_{name}": rate for name, rate in at_once.items()}
    return figures


# -- the table -------------------------------------------------------------------------------------------------------------


def share(key: str, title: str, least: float) -> Metric:
    return Metric(key, title, "x", Goal(least=least))


PAIRS = tuple((source, target) for source in PROTOCOLS for target in PROTOCOLS)

CROSS_ROWS: tuple[Row, ...] = (
    Row(
        "cross",
        f"{SIZE} B published by one protocol, consumed by another",
        (
            *(Metric(f"rate_{p}_{q}", f"{PROTOCOLS[p].title} to {PROTOCOLS[q].title}", RATE) for p, q in PAIRS),
            *(
                share(f"share_{p}_{q}", f"{PROTOCOLS[p].title} to {PROTOCOLS[q].title}, of the slower of the two alone", SHARE_OF_PAIR)
                for p, q in PAIRS
                if p != q
            ),
        ),
        cross,
        ("polymq",),
        note="from the first message published until the last one is consumed; NSQ by MPUB of 200 and RDY 2,500, NATS by PUB and a live subscriber, "
        "RocketMQ by batches of 32 on four connections, four under way on each, and pulls of 32 from eight queues, PHPMQ in a window of 1,000",
        protocol="All four",
        against=(),
    ),
    Row(
        "together",
        f"{SIZE} B published and consumed by all four at once, each on its own topic",
        (
            *(share(f"share_{name}", f"{each.title}, of what it does alone", SHARE_OF_ONE) for name, each in PROTOCOLS.items()),
            share("sum", "sum of the shares", SHARE_OF_ALL),
            *(Metric(f"alone_{name}", f"{each.title} alone", RATE) for name, each in PROTOCOLS.items()),
            *(Metric(f"at_once_{name}", f"{each.title} beside the others", RATE) for name, each in PROTOCOLS.items()),
        ),
        together,
        ("polymq",),
        note=f"{TOGETHER_S:.0f} seconds each; what is consumed in a second, while who publishes is at most {LEAD:,} messages ahead of who consumes",
        protocol="All four",
        against=(),
    ),
)
