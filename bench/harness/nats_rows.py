"""The rows about NATS: messages that are passed on and forgotten, questions and answers, connections and subscriptions, clusters.

Each load is run with bodies of three sizes, each on a fresh server. The generator checks every message that it gets: lost, twice or out of order
is an error in place of a figure.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING

from bench.harness.generator import LoadError
from bench.harness.nats_servers import NatsServer, cluster
from bench.harness.row import MIB, RATE, Bench, Figures, Goal, Metric, Row, grown, rate_figures

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NATS_ROWS"]

SERVERS = ("nats-server", "nats-server-2.9")
KINDS = (*SERVERS, "polymq")
# What the sizes are called, and how many messages of them take about as long.
SIZES = {16: "16 B", 200: "200 B", 1024: "1 KiB"}
SHARES = {16: 1.0, 200: 0.6, 1024: 0.2}
# Publishers are at most this much ahead of the slowest subscriber, or every server would sooner or later take one for a slow consumer:
# nats-server ends a connection for which 64 MiB wait, lines included.
LEAD_BYTES = 8 * MIB
GROUP_SUBJECTS = 100
# What waits for one that does not read may be 64 MiB, as nats-server's default has it; buffers that grow by doubling take twice that, and
# twice again while one is copied into the next.
SLOW_LIMIT_MIB = 256
SAMPLE_EVERY_S = 0.02


def each_size(bench: Bench, messages: int, load: Callable[[int, int], Figures]) -> Figures:
    """Run a load with each size of body, which is part of the figures' names then."""
    figures: Figures = {}
    for size, share in SHARES.items():
        found = load(size, bench.count(int(messages * share)))
        figures |= {f"{key}_{size}": value for key, value in found.items()}
    return figures


def figures_of(bench: Bench, server: NatsServer, mode: str, **options: int) -> Figures:
    cpu = server.cpu_s()
    result = bench.generator.run(mode, server.tcp, **options)
    # Nobody holds back the last messages here: the rate is that of all of them.
    return {**rate_figures(result, server, cpu), "rate": result["rate"]}


def publish(bench: Bench, kind: str) -> Figures:
    def load(size: int, count: int) -> Figures:
        with NatsServer(kind, bench.setup) as server:
            return figures_of(bench, server, "nats-pub", messages=count, size=size)

    return each_size(bench, 5_000_000, load)


def both(
    bench: Bench, kind: str, *, messages: int, subscribers: int = 0, members: int = 0, subjects: int = 1, stored: bool = False
) -> Figures:
    """Publish and consume at once."""

    def load(size: int, count: int) -> Figures:
        with NatsServer(kind, bench.setup) as server:
            if stored and kind == "polymq":
                server.create_topic("bench")
            options = {"subscribers": subscribers, "members": members, "topics": subjects, "lead_max": LEAD_BYTES // size}
            return figures_of(bench, server, "nats-both", messages=count, size=size, **options)

    return each_size(bench, messages, load)


def request(bench: Bench, kind: str) -> Figures:
    def load(size: int, count: int) -> Figures:
        with NatsServer(kind, bench.setup) as server:
            # The first ones pay for memory and caches that all later ones use.
            bench.generator.run("nats-request", server.tcp, messages=max(100, count // 10), size=size)
            result = bench.generator.run("nats-request", server.tcp, messages=count, size=size)
            return {"p50": result["p50_us"], "p99": result["p99_us"], "rate": result["rate"]}

    figures: Figures = {}
    for size in SIZES:
        figures |= {f"{key}_{size}": value for key, value in load(size, bench.count(30_000)).items()}
    return figures


def route(bench: Bench, kind: str) -> Figures:
    """From a client of the one server to a client of the other, and the reverse; the second server is always a real one."""

    def load(size: int, count: int) -> Figures:
        figures: Figures = {}
        with cluster(kind, bench.setup) as (first, second):
            for name, source, target in (("out", first, second), ("in", second, first)):
                result = bench.generator.run(
                    "nats-both",
                    source.tcp,
                    other_address=target.tcp,
                    messages=count,
                    size=size,
                    subscribers=1,
                    settle_ms=200,
                    lead_max=LEAD_BYTES // size,
                )
                figures[name] = result["rate"]
        return figures

    return each_size(bench, 1_000_000, load)


def slow_subscriber(bench: Bench, kind: str) -> Figures:
    """Three subscribers get everything while a fourth reads nothing; the server's memory is looked at all the time."""
    count = bench.count(2_000_000)
    with NatsServer(kind, bench.setup) as server:
        empty = peak = server.anonymous_bytes()
        load = bench.generator.start("nats-both", server.tcp, messages=count, size=200, subscribers=3, slow=1, lead_max=LEAD_BYTES // 200)
        while load.poll() is None:
            peak = max(peak, server.anonymous_bytes())
            time.sleep(SAMPLE_EVERY_S)
        result = bench.generator.finish(load)
        return {"rate": result["rate"], "peak": (peak - empty) / MIB, "slow_got": sum(result["slow_received"]) / count * 100}


def idle(bench: Bench, kind: str, *, connections: int, subscriptions: int) -> Figures:
    """Memory of connections that do nothing, and of their subscriptions."""
    seconds = 2.0 if bench.quick else 10.0
    with NatsServer(kind, bench.setup) as server:
        time.sleep(1)  # the connection that saw the server come up is gone by then
        empty = server.anonymous_bytes()
        options = {"connections": connections, "subscriptions": subscriptions, "deadline_s": 120 + seconds}
        load = bench.generator.start("nats-idle", server.tcp, **options)
        try:
            assert load.stdout is not None
            began = time.perf_counter()
            if not json.loads(load.stdout.readline() or b"{}").get("ready"):
                assert load.stderr is not None
                raise LoadError(load.stderr.read().decode(errors="replace").strip()[:300])
            connected_s = time.perf_counter() - began
            kept = grown(server, empty)
            cpu = server.cpu_s()
            time.sleep(seconds)
            cpu_percent = (server.cpu_s() - cpu) / seconds * 100
            if load.poll() is not None:
                raise LoadError("connections were lost")
            anonymous = float(str(kept["anonymous"])) * MIB
            return {
                "resident": server.resident_bytes() / 1e6,
                "kib_each": anonymous / connections / 1024,
                "bytes_each": anonymous / connections / subscriptions,
                "cpu_percent": cpu_percent,
                "connected_s": connected_s,
            }
        finally:
            load.kill()
            load.communicate()


def idle_connections(bench: Bench, kind: str) -> Figures:
    return idle(bench, kind, connections=1000 if bench.quick else 10_000, subscriptions=1)


def subscriptions(bench: Bench, kind: str) -> Figures:
    return idle(bench, kind, connections=10, subscriptions=2000 if bench.quick else 100_000)


def rates(ratio_min: float) -> tuple[Metric, ...]:
    return tuple(Metric(f"rate_{size}", title, RATE, Goal(ratio_min=ratio_min)) for size, title in SIZES.items())


def row(name: str, title: str, metrics: tuple[Metric, ...], measure: Callable[[Bench, str], Figures], *, note: str = "") -> Row:
    return Row(f"nats-{name}", title, metrics, measure, KINDS, note=note, protocol="NATS", against=SERVERS)


LEAD_NOTE = f"the publisher is at most {LEAD_BYTES // MIB} MiB of bodies ahead of the slowest subscriber"

NATS_ROWS: tuple[Row, ...] = (
    row("pub", "publish only", rates(2), publish, note="nobody subscribes; done when the last PING is answered"),
    row("1x1", "1 publisher, 1 subscriber", rates(2), partial(both, messages=3_000_000, subscribers=1), note=LEAD_NOTE),
    row("1x4", "1 publisher, 4 subscribers, messages published", rates(1.5), partial(both, messages=1_000_000, subscribers=4)),
    row("1x10", "1 publisher, 10 subscribers, messages published", rates(1.5), partial(both, messages=500_000, subscribers=10)),
    row(
        "subjects",
        f"1 publisher, {GROUP_SUBJECTS} subjects in turn, 1 subscriber to each",
        rates(1.8),
        partial(both, messages=2_000_000, subscribers=1, subjects=GROUP_SUBJECTS),
        note="the subject changes from message to message; one connection with a subscription to each",
    ),
    row("queue", "1 publisher, a queue group of 4", rates(1.5), partial(both, messages=2_000_000, members=4)),
    row(
        "request",
        "request and reply, one at a time",
        (
            *(Metric(f"p50_{size}", f"p50, {title}", "µs", Goal(ratio_max=1.2)) for size, title in SIZES.items()),
            *(Metric(f"p99_{size}", f"p99, {title}", "µs", Goal(ratio_max=1)) for size, title in SIZES.items()),
        ),
        request,
        note="one requester and one responder, both of the generator; every question has a reply subject of its own",
    ),
    Row(
        "nats-route",
        "across a route",
        (
            *(Metric(f"out_{size}", f"to a client of the real one, {title}", RATE, Goal(ratio_min=1)) for size, title in SIZES.items()),
            *(Metric(f"in_{size}", f"from a client of the real one, {title}", RATE, Goal(ratio_min=1)) for size, title in SIZES.items()),
        ),
        route,
        ("nats-server", "polymq"),
        protocol="NATS",
        against=("nats-server",),
        note=f"a cluster of two, the other one is nats-server 2.15.2; {LEAD_NOTE}",
    ),
    row(
        "captured",
        "1 publisher, 1 subscriber, stored by polymq",
        rates(1),
        partial(both, messages=1_000_000, subscribers=1, stored=True),
        note="there is a topic of the subject's name, so polymq writes every message to its log; nats-server stores nothing",
    ),
    row(
        "slow",
        "3 subscribers beside one that reads nothing, 200 B",
        (
            Metric("rate", "of the others", RATE),
            Metric("peak", "anonymous memory over the empty broker, at most", "MiB", Goal(limit=SLOW_LIMIT_MIB)),
            Metric("slow_got", "what the slow one got in the end", "%"),
        ),
        slow_subscriber,
        note="400 MB go to the slow one; a server may end its connection",
    ),
    Row(
        "nats-idle-connections",
        "10,000 connections with a subscription each",
        (
            Metric("resident", "memory of the whole broker (VmRSS)", "MB", Goal(limit=250)),
            Metric("kib_each", "own memory per connection", "KiB"),
            Metric("cpu_percent", "processor", "% of a core"),
            Metric("connected_s", "until all are there", "s"),
        ),
        idle_connections,
        KINDS,
        once=True,
        protocol="NATS",
        against=SERVERS,
    ),
    Row(
        "nats-subscriptions",
        "1,000,000 subscriptions to as many subjects, on 10 connections",
        (Metric("bytes_each", "own memory per subscription", "B", Goal(limit=1000)), Metric("connected_s", "until all are there", "s")),
        subscriptions,
        KINDS,
        once=True,
        protocol="NATS",
        against=SERVERS,
    ),
)
