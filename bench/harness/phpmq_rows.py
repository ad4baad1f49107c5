"""The rows about PHPMQ. Its reference server cannot be had for a run side by side: the goals are multiples of what was measured of it elsewhere."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from bench.harness.process import ServerProcess
from bench.harness.row import RATE, Bench, Figures, Goal, Metric, Row, rate_figures

if TYPE_CHECKING:
    from bench.harness.process import Setup

__all__ = ["PHPMQ_ROWS"]

# Behind the ports of all others.
PORTS_AT = 15
# Messages a second of the reference server with bodies of 200 B, in memory, by window (PHP 8.2; it sleeps 0.2 s in each round).
REFERENCE_10 = 49.8
REFERENCE_1000 = 7834.0
KINDS = ("polymq", "polymq-fsync")


class PhpmqServer(ServerProcess):
    """polymq with PHPMQ's door."""

    def __init__(self, kind: str, setup: Setup) -> None:
        super().__init__(kind, setup, name=f"phpmq-{kind}")
        self.tcp = f"127.0.0.1:{setup.port_base + PORTS_AT}"

    def command(self) -> list[str]:
        nothing = [part for flag in ("--nsq", "--nsq-http", "--nsq-lookup", "--nsq-lookup-http", "--http") for part in (flag, "off")]
        durability = ["--set", "store.durability=fsync"] if self.kind == "polymq-fsync" else []
        return [
            *self.setup.polymq,
            "serve",
            "--data",
            str(self.data),
            "--phpmq",
            self.tcp,
            *nothing,
            *durability,
            *self.setup.polymq_extra,
        ]

    def accepts(self) -> bool:
        host, port = self.tcp.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            return False
        return True


def send(bench: Bench, kind: str) -> Figures:
    count = bench.count(2_000_000, kind)
    with PhpmqServer(kind, bench.setup) as server:
        cpu = server.cpu_s()
        return rate_figures(bench.generator.run("phpmq-send", server.tcp, messages=count), server, cpu)


def consume(bench: Bench, kind: str, *, window: int, messages: int) -> Figures:
    count = bench.count(messages, kind)
    with PhpmqServer(kind, bench.setup) as server:
        bench.generator.run("phpmq-send", server.tcp, messages=count)
        cpu = server.cpu_s()
        return rate_figures(bench.generator.run("phpmq-consume", server.tcp, messages=count, window=window), server, cpu)


def consume_10(bench: Bench, kind: str) -> Figures:
    return consume(bench, kind, window=10, messages=400_000)


def consume_1000(bench: Bench, kind: str) -> Figures:
    return consume(bench, kind, window=1000, messages=2_000_000)


PHPMQ_ROWS: tuple[Row, ...] = (
    Row(
        "phpmq-send",
        "001 with 200 B, one connection, until the server has read all",
        (Metric("rate", "", RATE),),
        send,
        KINDS,
        protocol="PHPMQ",
        against=(),
    ),
    Row(
        "phpmq-10",
        "consume and acknowledge in a window of 10, 200 B",
        (Metric("rate", "", RATE, Goal(least=50 * REFERENCE_10)),),
        consume_10,
        KINDS,
        protocol="PHPMQ",
        against=(),
    ),
    Row(
        "phpmq-1000",
        "consume and acknowledge in a window of 1,000, 200 B",
        (Metric("rate", "", RATE, Goal(least=20 * REFERENCE_1000)),),
        consume_1000,
        KINDS,
        protocol="PHPMQ",
        against=(),
    ),
)
