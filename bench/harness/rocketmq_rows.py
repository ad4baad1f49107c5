"""The rows about RocketMQ: sends one at a time and many at once, batches, pulls, the official tool, starting, memory.

Threads of a Java producer share one connection to a broker, so N threads are N requests under way on one connection ("shared"); N clients
have a connection each ("own"). Both are measured, with headers in JSON, which clients send unless told otherwise, and in RocketMQ's own
binary form. The generator checks what every answer says, and every message that it pulls.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.harness.generator import LoadError
from bench.harness.rocketmq_client import make_topic
from bench.harness.rocketmq_servers import QUEUES, REAL_KINDS, ROCKETMQ_KINDS, RocketmqServer, class_path
from bench.harness.row import RATE, SETTLE_S, Bench, Figures, Goal, Metric, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ROCKETMQ_ROWS"]

SIZE = 128
HEADERS = ("json", "binary")
BATCHES = (32, 100)
# A batch is filled with this many messages when it is only there to be read.
FILL_BATCH = 100
# The share of a load that goes before it.
WARM_SHARE = 4
STARTS = 3
TOOL_THREADS = (1, 64)
TOOL_REPORT_MS = 2000
# Reports while the tool's own JVM is still being warmed, and those that count.
TOOL_WARM_REPORTS = 3
TOOL_REPORTS = 4
TOOL_CLASS = "org.apache.rocketmq.example.benchmark.Producer"
TOOL_HEAP = "256m"
REPORTED = re.compile(r"Send TPS: (\d+).*?Send Failed: (\d+)")
ANYWHERE_MESSAGES = 20_000_000
ANYWHERE_PULLS = 5000


def up(bench: Bench, kind: str) -> RocketmqServer:
    """The server of a kind, which stays for the next row. What the last load has left to write is written now."""
    server = bench.kept.get(f"rocketmq-{kind}", lambda: RocketmqServer(kind, bench.setup))
    os.sync()
    return server


def alone(bench: Bench) -> None:
    """Have nobody else up, and not this one either: what follows starts its own."""
    bench.kept.drop_others()
    time.sleep(0 if bench.quick else 1)


def load(bench: Bench, server: RocketmqServer, mode: str, *, count: int, **options: Any) -> Figures:
    """Run a load with its warm-up, and take its figures; the server's processor time is that of both, by message."""
    warm_up = count // WARM_SHARE
    cpu = server.cpu_s()
    result: Mapping[str, float] = bench.generator.run(
        f"rocketmq-{mode}", server.address, messages=count, warm_up=warm_up, size=SIZE, **options
    )
    return {
        "rate": result["rate"],
        "p50": result["p50_us"],
        "p99": result["p99_us"],
        "server_cpu_us": (server.cpu_s() - cpu) / (count + warm_up) * 1e6,
        "generator_cpu_us": result["cpu_seconds"] / max(1, result["messages"]) * 1e6,
    }


def named(figures: Figures, name: str) -> Figures:
    return {f"{key}_{name}": value for key, value in figures.items()}


def header(name: str) -> dict[str, Any]:
    return {"binary": True} if name == "binary" else {}


# -- sending -------------------------------------------------------------------------------------------------------------


def ways(threads: int) -> dict[str, tuple[int, int]]:
    """Connections, and requests under way on each."""
    return {"shared": (1, threads), "own": (threads, 1)} if threads > 1 else {"shared": (1, 1)}


def send(bench: Bench, kind: str, *, threads: int, messages: int) -> Figures:
    server = up(bench, kind)
    figures: Figures = {}
    for name in HEADERS:
        for way, (connections, window) in ways(threads).items():
            topic = server.new_topic(f"send-{threads}")
            options: dict[str, Any] = {"connections": connections, "window": window, "topic": topic, "queues": QUEUES, **header(name)}
            figures |= named(load(bench, server, "send", count=bench.count(messages), **options), f"{name}_{way}")
    return figures


def batch(bench: Bench, kind: str) -> Figures:
    """Four producers, each waiting for the answer to a batch before it sends the next one."""
    server = up(bench, kind)
    figures: Figures = {}
    for size in BATCHES:
        count = bench.count(600_000 if size == BATCHES[0] else 1_000_000) // (size * WARM_SHARE) * size * WARM_SHARE
        options: dict[str, Any] = {
            "batch": size,
            "connections": 4,
            "window": 1,
            "topic": server.new_topic(f"batch-{size}"),
            "queues": QUEUES,
        }
        figures |= named(load(bench, server, "batch", count=count, **options), str(size))
    return figures


# -- reading -------------------------------------------------------------------------------------------------------------


def fill(bench: Bench, server: RocketmqServer, name: str, count: int) -> str:
    """A topic with so many messages; the same one when it is asked for again."""
    if name not in server.filled:
        topic = server.new_topic(name)
        options: dict[str, Any] = {"batch": FILL_BATCH, "connections": 2, "window": 4, "topic": topic, "queues": QUEUES, "size": SIZE}
        bench.generator.run("rocketmq-batch", server.address, messages=count, deadline_s=600, **options)
        os.sync()
        server.filled[name] = topic
    return server.filled[name]


def pull(bench: Bench, kind: str, *, queues: int) -> Figures:
    """Pull everything of one queue, or of four."""
    server = up(bench, kind)
    stored = bench.count(2_000_000)
    topic = fill(bench, server, "pulled", stored)
    figures: Figures = {}
    for name in HEADERS:
        count = stored * queues // QUEUES * WARM_SHARE // (WARM_SHARE + 1) // 1000 * 1000
        figures |= named(load(bench, server, "pull", count=count, topic=topic, queues=queues, **header(name)), name)
    return figures


def anywhere(bench: Bench, kind: str) -> Figures:
    """Pulls of 32 messages from random places among 20 million, one at a time. Nobody else is up, for the sake of the page cache."""
    name = f"rocketmq-{kind}"
    bench.kept.drop_others(name)
    server = up(bench, kind)
    topic = fill(bench, server, "anywhere", bench.count(ANYWHERE_MESSAGES))
    options: dict[str, Any] = {"window": 1, "topic": topic, "queues": QUEUES, "size": SIZE}
    results = [
        bench.generator.run("rocketmq-anywhere", server.address, messages=ANYWHERE_PULLS, warm_up=ANYWHERE_PULLS // 5, **options)
        for _ in range(1 if bench.quick else 3)
    ]
    figures: Figures = {key: [result[f"{key}_us"] / 1e3 for result in results] for key in ("p50", "p99", "max")}
    figures["messages"] = [result["pulled"] / result["requests"] for result in results]
    # Its log is in nobody's way any more.
    bench.kept.drop(name)
    return figures


# -- the official tool ---------------------------------------------------------------------------------------------------


def official(bench: Bench, kind: str) -> Figures:
    """RocketMQ's own benchmark producer, 128 bytes; its reports once it is warm."""
    server = up(bench, kind)
    figures: Figures = {}
    for threads in TOOL_THREADS:
        topic = server.new_topic("official")
        make_topic(server.address, topic, QUEUES)
        figures[f"rate_{threads}"] = tool_rate(bench, server, topic, threads)
    return figures


def tool_rate(bench: Bench, server: RocketmqServer, topic: str, threads: int) -> float:
    """The median of what the tool says it sent in a second."""
    home = bench.setup.scratch / "rocketmq-tool"
    home.mkdir(exist_ok=True)
    command = [
        "java",
        f"-Xms{TOOL_HEAP}",
        f"-Xmx{TOOL_HEAP}",
        f"-Duser.home={home}",
        "-cp",
        class_path(bench.setup, "benchmark"),
        TOOL_CLASS,
    ]
    command += ["-n", server.address, "-t", topic, "-w", str(threads), "-s", str(SIZE), "-ri", str(TOOL_REPORT_MS)]
    rates: list[int] = []
    wanted = 2 if bench.quick else TOOL_WARM_REPORTS + TOOL_REPORTS
    deadline = time.monotonic() + 10 + 3 * wanted * TOOL_REPORT_MS / 1000
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=home, text=True) as tool:
        try:
            assert tool.stdout is not None
            for line in tool.stdout:
                reported = REPORTED.search(line)
                if reported and int(reported[2]):
                    raise LoadError(f"the tool says: {line.strip()[:200]}")
                rates += [int(reported[1])] if reported else []
                if len(rates) == wanted or time.monotonic() > deadline:
                    break
        finally:
            tool.kill()
    if len(rates) < wanted:
        raise LoadError(f"the tool made {len(rates)} reports of {wanted}")
    return float(statistics.median(rates[1 if bench.quick else TOOL_WARM_REPORTS :]))


# -- starting, memory ----------------------------------------------------------------------------------------------------


def start(bench: Bench, kind: str) -> Figures:
    """From the command on an empty folder until a message has been sent and pulled: nameserver, then broker, then a topic."""
    alone(bench)
    figures: Figures = {"up": [], "message": []}
    for _ in range(1 if bench.quick else STARTS):
        server = RocketmqServer(kind, bench.setup)
        began = time.perf_counter()
        with server:
            for name, seconds in (("up", time.perf_counter() - began), ("message", passed(server, began))):
                series = figures[name]
                assert isinstance(series, list)
                series.append(seconds)
    return figures


def passed(server: RocketmqServer, began: float) -> float:
    server.first_message()
    return time.perf_counter() - began


def memory(bench: Bench, kind: str) -> Figures:
    """Memory of a server that has had one message and has nothing to do."""
    alone(bench)
    with RocketmqServer(kind, bench.setup) as server:
        server.first_message()
        time.sleep(1 if bench.quick else SETTLE_S)
        cpu, seconds = server.cpu_s(), 1.0 if bench.quick else 5.0
        time.sleep(seconds)
        return {
            "resident": server.resident_bytes() / 1e6,
            "anonymous": server.anonymous_bytes() / 1e6,
            "cpu_percent": (server.cpu_s() - cpu) / seconds * 100,
        }


# -- the table -----------------------------------------------------------------------------------------------------------


def row(
    name: str, title: str, metrics: tuple[Metric, ...], measure: Callable[[Bench, str], Figures], *, once: bool = False, note: str = ""
) -> Row:
    return Row(f"rocketmq-{name}", title, metrics, measure, ROCKETMQ_KINDS, once=once, note=note, protocol="RocketMQ", against=REAL_KINDS)


def send_row(threads: int, messages: int, ratio_min: float) -> Row:
    titles = {"shared": f"one connection, {threads} under way", "own": f"{threads} connections, one under way on each"}
    each = [
        (f"{name}_{way}", f"{'JSON' if name == 'json' else 'binary'}{f', {titles[way]}' if threads > 1 else ''}")
        for name in HEADERS
        for way in ways(threads)
    ]
    rates = tuple(Metric(f"rate_{key}", title, RATE, Goal(ratio_min=ratio_min)) for key, title in each)
    p50s = tuple(Metric(f"p50_{key}", f"p50, {title}", "µs") for key, title in each)
    p99s = tuple(Metric(f"p99_{key}", f"p99, {title}", "µs", Goal(ratio_max=1)) for key, title in each)
    title = "send 128 B, one at a time" if threads == 1 else f"send 128 B, {threads} at a time"
    note = "threads of a Java producer share one connection; clients have one each" if threads > 1 else ""
    return row(f"send-{threads}", title, (*rates, *p50s, *p99s), partial(send, threads=threads, messages=messages), note=note)


ROCKETMQ_ROWS: tuple[Row, ...] = (
    send_row(1, 40_000, 1.2),
    send_row(8, 80_000, 2),
    send_row(64, 100_000, 2),
    row(
        "batch",
        "send batches of 128 B, 4 connections",
        (
            *(Metric(f"rate_{size}", f"{size} to a batch", RATE, Goal(ratio_min=3)) for size in BATCHES),
            *(Metric(f"p99_{size}", f"p99 of a batch of {size}", "µs", Goal(ratio_max=1)) for size in BATCHES),
        ),
        batch,
        note="one batch under way on each connection; JSON headers",
    ),
    *(
        row(
            f"pull-{queues}",
            f"pull 128 B, 32 at a time, {queues} {'queue' if queues == 1 else 'queues'}",
            tuple(Metric(f"rate_{name}", "JSON" if name == "json" else "binary", RATE, Goal(ratio_min=3)) for name in HEADERS),
            partial(pull, queues=queues),
            note="one connection, one pull under way for each queue, everything in the page cache",
        )
        for queues in (1, QUEUES)
    ),
    row(
        "official",
        "RocketMQ's own benchmark tool (example 5.5.0), 128 B",
        tuple(
            Metric(f"rate_{threads}", f"{threads} {'thread' if threads == 1 else 'threads'}", RATE, Goal(ratio_min=1))
            for threads in TOOL_THREADS
        ),
        official,
        note="binary headers; the tool, a JVM with 256 MB of heap, shares the processors with the server and needs much of them",
    ),
    row(
        "anywhere",
        "pull 32 messages from anywhere among 20 M of 128 B",
        (
            Metric("p99", "p99", "ms", Goal(limit=5)),
            Metric("p50", "p50", "ms"),
            Metric("max", "max", "ms"),
            Metric("messages", "messages in an answer", ""),
        ),
        anywhere,
        once=True,
        note="three runs of 5,000 pulls, one at a time, random queue and offset; most of the log is in the page cache if the machine has room for it",
    ),
    row(
        "start",
        "start on an empty folder",
        (
            Metric("message", "until a message has been sent and pulled", "s", Goal(limit=1)),
            Metric("up", "until a topic could be made", "s"),
        ),
        start,
        once=True,
        note=f"{STARTS} starts; nameserver and broker one after the other, as the broker has to find its nameserver",
    ),
    row(
        "memory",
        "memory of an idle broker that has had one message",
        (
            Metric("resident", "resident (VmRSS), nameserver and broker together", "MB", Goal(limit=100)),
            Metric("anonymous", "of it anonymous", "MB"),
            Metric("cpu_percent", "processor", "% of a core"),
        ),
        memory,
        once=True,
        note="heaps are not touched in advance, as the scripts of RocketMQ have it done: all of them would count then",
    ),
)
