"""What a row of the table is made of: what is measured, what it must reach, and what every measurement needs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.harness.process import Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.harness.generator import Generator
    from bench.harness.process import ServerProcess, Setup
    from bench.harness.servers import Server

__all__ = [
    "MIB",
    "NSQD_DEFAULT_QUEUE",
    "PUBLISHERS",
    "RATE",
    "SETTLE_S",
    "Bench",
    "Figures",
    "Goal",
    "Metric",
    "Row",
    "fill_partitions",
    "grown",
    "rate_figures",
]

MIB = 1 << 20
RATE = "messages/s"
PUBLISHERS = ("nsqd", "polymq", "polymq-fsync")
# nsqd's own default; with it nsqd overflows to its disk queue.
NSQD_DEFAULT_QUEUE = 10_000
# A server's background work (syncs, zeroing the next segment, garbage collection) gets this long to end.
SETTLE_S = 3.0

Figures = dict[str, float | list[float]]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a metric of polymq must reach, measured by the peer's figure (`ratio_min`, `ratio_max`, `below_peer`) or by a number (`limit`, `least`)."""

    ratio_min: float | None = None
    ratio_max: float | None = None
    limit: float | None = None
    least: float | None = None
    below_peer: bool = False

    @property
    def less_is_better(self) -> bool:
        """Whether the peer to beat is the one with the smallest figure."""
        return self.ratio_max is not None or self.below_peer

    @property
    def needs_peer(self) -> bool:
        """Whether it is measured by a peer's figure."""
        return self.ratio_min is not None or self.less_is_better

    def text(self, unit: str, peer: str) -> str:
        """Say the goal as the table shows it."""
        parts = []
        if self.ratio_min is not None:
            parts.append(f"≥ {self.ratio_min:g} x {peer}")
        if self.ratio_max is not None:
            parts.append(f"≤ {self.ratio_max:g} x {peer}")
        if self.below_peer:
            parts.append(f"below {peer}")
        if self.limit is not None:
            parts.append(f"≤ {self.limit:g} {unit}")
        if self.least is not None:
            parts.append(f"≥ {self.least:g} {unit}")
        return ", ".join(parts)

    def met(self, ours: float, peer: float | None) -> bool | None:
        """Whether `ours` reaches the goal; None when the peer's figure is needed and missing."""
        if peer is None and self.needs_peer:
            return None
        checks = [self.limit is None or ours <= self.limit, self.least is None or ours >= self.least]
        if peer is not None:
            checks.append(self.ratio_min is None or ours >= self.ratio_min * peer)
            checks.append(self.ratio_max is None or ours <= self.ratio_max * peer)
            checks.append(not self.below_peer or ours < peer)
        return all(checks)


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a row; `key` is its name among what the row measures."""

    key: str
    title: str
    unit: str
    goal: Goal | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """What a row needs to run."""

    setup: Setup
    generator: Generator
    quick: bool
    kept: Kept = field(default_factory=Kept)

    def count(self, messages: int, kind: str = "") -> int:
        """The number of messages in whole batches: as the row wants it, a tenth where each answer waits for the disk, a fiftieth to smoke."""
        share = (10 if kind == "polymq-fsync" else 1) * (50 if self.quick else 1)
        return max(2000, messages // share // 2000 * 2000)


@dataclass(frozen=True, slots=True)
class Row:
    """One load: how to measure it, on which servers, and what to show."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    measure: Callable[[Bench, str], Figures]
    kinds: tuple[str, ...] = ("nsqd", "polymq")
    # Rows with an absolute goal that take long are measured once.
    once: bool = False
    note: str = ""
    # Which table it stands in, and the servers that the goals are about: the best of them.
    protocol: str = "NSQ"
    against: tuple[str, ...] = ("nsqd",)


def rate_figures(result: Mapping[str, Any], server: ServerProcess, cpu_before_s: float) -> Figures:
    """Figures of a load. A consumer's rate leaves out the last tenth: nsqd holds its last messages back for up to 250 ms."""
    return {
        "rate": result.get("steady_rate", result["rate"]),
        "slowest_tenth": min(result["slice_rates"] or [0.0]),
        "server_cpu_us": (server.cpu_s() - cpu_before_s) / max(1, result["messages"]) * 1e6,
        "generator_cpu_us": result["cpu_seconds"] / max(1, result["messages"]) * 1e6,
    }


def grown(server: ServerProcess, before: int) -> Figures:
    """What a load has left in the server's memory."""
    time.sleep(SETTLE_S)
    return {"anonymous": (server.anonymous_bytes() - before) / MIB, "empty": before / MIB}


def fill_partitions(bench: Bench, server: Server, count: int) -> None:
    """Topics with a channel each that hold one message."""
    bench.generator.run("prefill", server.tcp, topic="idle", topics=count, messages=count, batch=1, deadline_s=300)
    server.post(f"/channel/create?topic=idle-{index:05}&channel=bench" for index in range(count))
