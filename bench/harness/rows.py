"""The rows of the table: what load is put on a server, and what is read off.

A row measures one run of one kind of server on a fresh data folder and returns its figures. Which runs there are, in
which order, and what becomes of the figures is not decided here. Here are the rows about the broker itself; those about
what NSQ has beside publishing and consuming are in `nsq_rows.py`, those about NATS in `nats_rows.py`, those about RocketMQ in
`rocketmq_rows.py`, those about PHPMQ in `phpmq_rows.py`, those about all of
them together in `cross_rows.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.harness.cross_rows import CROSS_ROWS
from bench.harness.generator import LoadError
from bench.harness.machine import SmallCache
from bench.harness.nats_rows import NATS_ROWS
from bench.harness.nsq_rows import NSQ_ROWS
from bench.harness.phpmq_rows import PHPMQ_ROWS
from bench.harness.rocketmq_rows import ROCKETMQ_ROWS
from bench.harness.row import (
    MIB,
    NSQD_DEFAULT_QUEUE,
    PUBLISHERS,
    RATE,
    SETTLE_S,
    Bench,
    Figures,
    Goal,
    Metric,
    Row,
    fill_partitions,
    grown,
    rate_figures,
)
from bench.harness.servers import Server

__all__ = ["ROWS", "Bench", "Figures", "Goal", "Metric", "Row"]

SMALL_CACHE_BYTES = 512 * MIB
# A latency beside a backlog means something only if the backlog was being read for nearly all of the time.
OVERLAP_PERCENT_MIN = 90.0


def mpub(bench: Bench, kind: str) -> Figures:
    count = bench.count(5_000_000, kind)
    with Server(kind, bench.setup, mem_queue_size=count + 1000) as server:
        cpu = server.cpu_s()
        result = bench.generator.run("mpub", server.tcp, messages=count, batch=200, connections=2, window=4, subscribers=1)
        return rate_figures(result, server, cpu)


def pub_100(bench: Bench, kind: str) -> Figures:
    count = bench.count(500_000, kind)
    with Server(kind, bench.setup, mem_queue_size=count + 1000) as server:
        cpu = server.cpu_s()
        result = bench.generator.run("pub", server.tcp, messages=count, window=100, subscribers=1)
        return rate_figures(result, server, cpu)


def pub_one(bench: Bench, kind: str) -> Figures:
    count = bench.count(50_000, kind)
    with Server(kind, bench.setup) as server:
        cpu = server.cpu_s()
        result = bench.generator.run("pub", server.tcp, messages=count, window=1, subscribers=0 if kind == "loop" else 1)
        return {**rate_figures(result, server, cpu), "p50": result["p50_us"], "p99": result["p99_us"]}


def consume(bench: Bench, kind: str, *, rdy: int, messages: int) -> Figures:
    count = bench.count(messages)
    with Server(kind, bench.setup, mem_queue_size=count + 1000) as server:
        bench.generator.run("prefill", server.tcp, messages=count, batch=200, subscribers=1)
        cpu = server.cpu_s()
        result = bench.generator.run("sub", server.tcp, messages=count, rdy=rdy)
        return rate_figures(result, server, cpu)


def consume_2500(bench: Bench, kind: str) -> Figures:
    return consume(bench, kind, rdy=2500, messages=3_000_000)


def consume_1(bench: Bench, kind: str) -> Figures:
    return consume(bench, kind, rdy=1, messages=50_000)


def both(bench: Bench, kind: str, *, channels: int, messages: int) -> Figures:
    count = bench.count(messages, kind)
    with Server(kind, bench.setup, mem_queue_size=count + 1000) as server:
        cpu = server.cpu_s()
        result = bench.generator.run("both", server.tcp, messages=count, batch=200, channels=channels)
        return rate_figures(result, server, cpu)


def both_1x1(bench: Bench, kind: str) -> Figures:
    return both(bench, kind, channels=1, messages=2_000_000)


def both_1x4(bench: Bench, kind: str) -> Figures:
    return both(bench, kind, channels=4, messages=1_000_000)


def latency(bench: Bench, kind: str) -> Figures:
    with Server(kind, bench.setup) as server:
        result = bench.generator.run("latency", server.tcp, messages=bench.count(20_000), rate=2000, rdy=100)
        return {
            "p50": result["p50_us"] / 1e3,
            "p90": result["p90_us"] / 1e3,
            "p99": result["p99_us"] / 1e3,
            "max": result["max_us"] / 1e3,
            "generator_late_max": result["generator_late_us_max"] / 1e3,
        }


def memory_waiting(bench: Bench, kind: str) -> Figures:
    count = bench.count(10_000_000)
    with Server(kind, bench.setup, mem_queue_size=count + 1000) as server:
        before = server.anonymous_bytes()
        bench.generator.run("prefill", server.tcp, messages=count, batch=200, subscribers=1, deadline_s=300)
        return grown(server, before)


def memory_deferred(bench: Bench, kind: str) -> Figures:
    count = bench.count(1_000_000)
    with Server(kind, bench.setup, mem_queue_size=count + 1000) as server:
        before = server.anonymous_bytes()
        bench.generator.run("pub", server.tcp, messages=count, window=1000, defer_ms=3_600_000, subscribers=1, deadline_s=300)
        return grown(server, before)


def memory_held(bench: Bench, kind: str) -> Figures:
    count = bench.count(50_000_000)
    with Server(kind, bench.setup) as server:
        before = server.anonymous_bytes()
        result = bench.generator.run(
            "both", server.tcp, messages=count, batch=200, hold_first=True, message_timeout_ms=900_000, lead_max=200_000, deadline_s=600
        )
        return {**grown(server, before), "rate": result["rate"]}


def backlog(bench: Bench, kind: str) -> Figures:
    """Read a backlog that is not in the page cache, and time another topic meanwhile."""
    count = bench.count(10_000_000)
    seconds = 1 if bench.quick else 2
    with (
        SmallCache(SMALL_CACHE_BYTES) as cache,
        Server(kind, bench.setup, mem_queue_size=NSQD_DEFAULT_QUEUE, wrapper=cache.wrapper) as server,
    ):
        bench.generator.run("prefill", server.tcp, topic="backlog", messages=count, batch=200, subscribers=1, deadline_s=600)
        os.sync()
        if cache.group is None:
            cache.drop(server.data)
        alone = bench.generator.run("latency", server.tcp, topic="alone", messages=1000 * seconds, rate=2000, rdy=100)
        reading = bench.generator.start("sub", server.tcp, topic="backlog", messages=count, deadline_s=600)
        try:
            timed = bench.generator.run("latency", server.tcp, topic="other", messages=2000 * seconds, rate=2000, rdy=100)
            read = bench.generator.finish(reading, deadline_s=600)
        finally:
            if reading.poll() is None:
                reading.kill()
                reading.communicate()
        overlap_percent = min(100.0, 100 * read["seconds"] / timed["seconds"])
        if overlap_percent < OVERLAP_PERCENT_MIN and not bench.quick:
            raise LoadError(f"the backlog was read in only {overlap_percent:.0f} % of the timed run: the latency says nothing")
        return {
            "p50": timed["p50_us"] / 1e3,
            "p99": timed["p99_us"] / 1e3,
            "max": timed["max_us"] / 1e3,
            "alone_p99": alone["p99_us"] / 1e3,
            "generator_late_max": timed["generator_late_us_max"] / 1e3,
            "backlog_rate": read["rate"],
            "overlap_percent": overlap_percent,
            "control_group": float(cache.group is not None),
        }


def idle_partitions(bench: Bench, kind: str) -> Figures:
    count = 500 if bench.quick else 5000
    with Server(kind, bench.setup, mem_queue_size=NSQD_DEFAULT_QUEUE) as server:
        before = server.anonymous_bytes()
        fill_partitions(bench, server, count)
        figures = grown(server, before)
        cpu = server.cpu_s()
        time.sleep(SETTLE_S)
        return {**figures, "disk": server.disk_bytes() / MIB, "idle_cpu_percent": (server.cpu_s() - cpu) / SETTLE_S * 100}


def start(bench: Bench, kind: str) -> Figures:
    """Start on 10 M waiting messages and 5,000 partitions, after a clean stop and after a kill."""
    count = bench.count(10_000_000)
    times = 2 if bench.quick else 5
    with Server(kind, bench.setup, mem_queue_size=NSQD_DEFAULT_QUEUE) as server:
        bench.generator.run("prefill", server.tcp, messages=count, batch=200, subscribers=1, deadline_s=600)
        fill_partitions(bench, server, 500 if bench.quick else 5000)
        time.sleep(SETTLE_S)
        clean: list[float] = []
        killed: list[float] = []
        for _ in range(times):
            server.stop()
            clean.append(server.start())
            time.sleep(0.5)
            server.kill()
            killed.append(server.start())
            time.sleep(0.5)
        return {"clean": clean, "killed": killed}


def written(bench: Bench, kind: str) -> Figures:
    """Bytes on the disk and bytes written for a message of 200 bytes, in batches of 200 and one by one."""
    count, single = bench.count(1_000_000), bench.count(50_000)
    figures: Figures = {}
    for mode, messages, window in (("mpub", count, 4), ("pub", single, 1)):
        with Server(kind, bench.setup, mem_queue_size=0) as server:
            disk, io = server.disk_bytes(), server.written_bytes()
            bench.generator.run(mode, server.tcp, messages=messages, batch=200, window=window, subscribers=1)
            time.sleep(SETTLE_S)
            figures[f"{mode}_disk"] = (server.disk_bytes() - disk) / messages
            figures[f"{mode}_written"] = (server.written_bytes() - io) / messages
    return figures


def spark(bench: Bench, kind: str) -> Figures:
    """Records per second of Spark's one core, out of the log and out of Parquet."""
    count = bench.count(2_000_000)
    program = Path(__file__).with_name("spark_read.py")
    with Server(kind, bench.setup) as server, tempfile.TemporaryDirectory(dir=bench.setup.scratch) as folder:
        bench.generator.run("prefill", server.tcp, messages=count, batch=200, subscribers=1)
        command = [sys.executable, str(program), server.log_door, "bench", str(count), folder]
        environment = {**os.environ, "PYTHONPATH": str(program.parents[2] / "src"), "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    if done.returncode:
        raise LoadError(f"Spark: {done.stderr.strip()[-300:]}")
    read = json.loads(done.stdout.splitlines()[-1])
    if read["rows"] != count:
        raise LoadError(f"Spark read {read['rows']} of {count} records")
    return {"log": count / read["log_seconds"], "parquet": count / read["parquet_seconds"]}


ROWS: tuple[Row, ...] = (
    Row(
        "mpub",
        "MPUB 200 x 200 B, 2 connections, 5 M messages",
        (Metric("rate", "sustained", RATE, Goal(ratio_min=2.5)), Metric("slowest_tenth", "slowest tenth of the run", RATE)),
        mpub,
        PUBLISHERS,
        note="4 commands in flight per connection",
    ),
    Row("pub-100", "PUB 200 B, 100 in flight", (Metric("rate", "", RATE, Goal(ratio_min=6)),), pub_100, PUBLISHERS),
    Row(
        "pub-one",
        "PUB 200 B, one at a time",
        (Metric("rate", "", RATE, Goal(ratio_min=0.8)), Metric("p50", "round trip p50", "µs"), Metric("p99", "round trip p99", "µs")),
        pub_one,
        (*PUBLISHERS, "loop"),
        note="`loop` is no broker: an event loop that answers OK and does nothing else, the floor under a round trip",
    ),
    Row("consume-2500", "consume + FIN, RDY 2500, 200 B", (Metric("rate", "", RATE, Goal(ratio_min=6)),), consume_2500),
    Row("consume-1", "consume + FIN, RDY 1, 200 B", (Metric("rate", "", RATE, Goal(ratio_min=0.8)),), consume_1),
    Row("both-1x1", "MPUB and consume at once, 1 topic x 1 channel", (Metric("rate", "", RATE, Goal(ratio_min=3)),), both_1x1, PUBLISHERS),
    Row("both-1x4", "MPUB and consume at once, 1 topic x 4 channels", (Metric("rate", "", RATE, Goal(ratio_min=3)),), both_1x4, PUBLISHERS),
    Row(
        "latency",
        "publish to receive at 2,000 messages/s, RDY 100",
        (Metric("p50", "p50", "ms", Goal(below_peer=True)), Metric("p99", "p99", "ms", Goal(below_peer=True, limit=5))),
        latency,
        PUBLISHERS,
        note="the consumer asks for output_buffer_timeout 250 ms, as every client library does",
    ),
    Row(
        "memory-waiting",
        "memory with 10 M messages of 200 B waiting",
        (Metric("anonymous", "anonymous memory over the empty broker", "MiB", Goal(limit=100)),),
        memory_waiting,
        once=True,
    ),
    Row(
        "memory-deferred",
        "memory with 1 M messages deferred",
        (Metric("anonymous", "anonymous memory over the empty broker", "MiB", Goal(limit=100)),),
        memory_deferred,
        once=True,
    ),
    Row(
        "memory-held",
        "memory with one message never settled while 50 M pass",
        (Metric("anonymous", "anonymous memory over the empty broker", "MiB", Goal(limit=100)), Metric("rate", "passing", RATE)),
        memory_held,
        once=True,
    ),
    Row(
        "backlog",
        "another topic's latency while 10 M messages are read that are not in the page cache",
        (
            Metric("p99", "p99", "ms", Goal(limit=20)),
            Metric("max", "max", "ms"),
            Metric("alone_p99", "p99 before the reading", "ms"),
            Metric("generator_late_max", "the generator itself late by at most", "ms"),
            Metric("backlog_rate", "backlog read at", RATE),
            Metric("overlap_percent", "of the timed run during the reading", "%"),
        ),
        backlog,
        once=True,
        note=f"server in a memory control group of {SMALL_CACHE_BYTES // MIB} MiB where one can be made, else files dropped by posix_fadvise; "
        "nsqd with its default queue of 10,000, so that its backlog is on the disk too",
    ),
    Row(
        "idle-partitions",
        "5,000 idle topics with one channel and one message each",
        (
            Metric("disk", "disk", "MiB", Goal(limit=1024)),
            Metric("anonymous", "anonymous memory over the empty broker", "MiB", Goal(limit=50)),
            Metric("idle_cpu_percent", "processor while idle", "%"),
        ),
        idle_partitions,
        once=True,
    ),
    Row(
        "start",
        "start to accepting, 10 M waiting and 5,000 topics",
        (Metric("clean", "after a clean stop", "s", Goal(limit=1)), Metric("killed", "after kill -9", "s", Goal(limit=1))),
        start,
        once=True,
        note="five starts each on one data folder; after kill -9 nsqd has lost what was in memory",
    ),
    Row(
        "written",
        "bytes per message of 200 B",
        (
            Metric("mpub_disk", "occupied, batches of 200", "B"),
            Metric("mpub_written", "written, batches of 200", "B"),
            Metric("pub_disk", "occupied, one by one", "B"),
            Metric("pub_written", "written, one by one", "B"),
        ),
        written,
        once=True,
        note="occupied includes space prepared for coming messages; nsqd with mem-queue-size 0, since else it writes nothing",
    ),
    Row(
        "spark",
        "Spark on one core, 200 B, into Parquet",
        (Metric("log", "out of the log", "records/s"), Metric("parquet", "the same rows out of Parquet", "records/s")),
        spark,
        ("polymq",),
        note="the JVM and its Python worker share one core; the broker has another",
    ),
    *NSQ_ROWS,
    *NATS_ROWS,
    *ROCKETMQ_ROWS,
    *PHPMQ_ROWS,
    *CROSS_ROWS,
)
