"""The rows about what NSQ has beside publishing and consuming: AUTH, compression, many connections, many topics."""

from __future__ import annotations

import time
from functools import partial

from bench.harness.auth import AuthServer
from bench.harness.generator import LoadError
from bench.harness.row import (
    MIB,
    NSQD_DEFAULT_QUEUE,
    RATE,
    SETTLE_S,
    Bench,
    Figures,
    Goal,
    Metric,
    Row,
    fill_partitions,
    rate_figures,
)
from bench.harness.servers import Server

__all__ = ["NSQ_ROWS"]

SECRET = "bench"
# As the generator asks for; every connection answers two of them while time is taken.
HEARTBEAT_S = 30
CONNECT_TIMEOUT_S = 60.0


# -- AUTH: the loads of the rows without it, every connection logged in --------------------------------------------------


def auth_mpub(bench: Bench, kind: str) -> Figures:
    count = bench.count(5_000_000)
    with AuthServer() as auth, Server(kind, bench.setup, mem_queue_size=count + 1000, auth=auth) as server:
        cpu = server.cpu_s()
        result = bench.generator.run("mpub", server.tcp, messages=count, batch=200, connections=2, window=4, subscribers=1, auth=SECRET)
        return rate_figures(result, server, cpu)


def auth_pub_100(bench: Bench, kind: str) -> Figures:
    count = bench.count(500_000)
    with AuthServer() as auth, Server(kind, bench.setup, mem_queue_size=count + 1000, auth=auth) as server:
        cpu = server.cpu_s()
        result = bench.generator.run("pub", server.tcp, messages=count, window=100, subscribers=1, auth=SECRET)
        return rate_figures(result, server, cpu)


def auth_consume_2500(bench: Bench, kind: str) -> Figures:
    count = bench.count(3_000_000)
    with AuthServer() as auth, Server(kind, bench.setup, mem_queue_size=count + 1000, auth=auth) as server:
        bench.generator.run("prefill", server.tcp, messages=count, batch=200, subscribers=1, auth=SECRET)
        cpu = server.cpu_s()
        result = bench.generator.run("sub", server.tcp, messages=count, rdy=2500, auth=SECRET)
        return rate_figures(result, server, cpu)


# -- compression --------------------------------------------------------------------------------------------------------


def packed_mpub(bench: Bench, kind: str, *, compression: str) -> Figures:
    count = bench.count(2_000_000)
    with Server(kind, bench.setup, mem_queue_size=count + 1000) as server:
        cpu = server.cpu_s()
        result = bench.generator.run(
            "mpub", server.tcp, messages=count, batch=200, connections=2, window=4, subscribers=1, compression=compression, words=True
        )
        return rate_figures(result, server, cpu)


def packed_consume(bench: Bench, kind: str, *, compression: str) -> Figures:
    count = bench.count(1_000_000)
    with Server(kind, bench.setup, mem_queue_size=count + 1000) as server:
        bench.generator.run("prefill", server.tcp, messages=count, batch=200, subscribers=1, words=True)
        cpu = server.cpu_s()
        result = bench.generator.run("sub", server.tcp, messages=count, rdy=2500, compression=compression)
        return rate_figures(result, server, cpu)


# -- many connections, many topics ---------------------------------------------------------------------------------------


def idle_connections(bench: Bench, kind: str) -> Figures:
    """Memory and processor time of connections that do nothing but answer heartbeats, a consumer each."""
    count, seconds = (1000, 5) if bench.quick else (10_000, 2 * HEARTBEAT_S)
    deadline_s = CONNECT_TIMEOUT_S + SETTLE_S + seconds
    with Server(kind, bench.setup) as server:
        time.sleep(1)  # the connection that saw the server come up is gone by then
        empty, before = server.anonymous_bytes(), server.descriptor_count()
        load = bench.generator.start("idle", server.tcp, deadline_s=deadline_s, connections=count, topics=100)
        try:
            began = time.perf_counter()
            while server.descriptor_count() < before + count:
                if load.poll() is not None or time.perf_counter() - began > CONNECT_TIMEOUT_S:
                    raise LoadError(f"only {server.descriptor_count() - before} of {count} connections")
                time.sleep(0.1)
            connected_s = time.perf_counter() - began
            time.sleep(SETTLE_S)
            cpu = server.cpu_s()
            time.sleep(seconds)
            cpu_percent = (server.cpu_s() - cpu) / seconds * 100
            if load.poll() is not None or server.descriptor_count() < before + count:
                raise LoadError("connections were lost: heartbeats were not answered")
            anonymous = server.anonymous_bytes()
            return {
                "resident": server.resident_bytes() / 1e6,
                "kib_each": (anonymous - empty) / count / 1024,
                "anonymous": anonymous / MIB,
                "cpu_percent": cpu_percent,
                "connected_s": connected_s,
            }
        finally:
            load.kill()
            load.communicate()


def idle_topics(bench: Bench, kind: str) -> Figures:
    """What is left of the rates when there are 1,000 other topics, each with a channel and a message."""
    published, consumed = bench.count(5_000_000), bench.count(5_000_000)
    rates: dict[str, float] = {}
    for idle in (0, 100 if bench.quick else 1000):
        with Server(kind, bench.setup, mem_queue_size=NSQD_DEFAULT_QUEUE if kind == "nsqd" else published) as server:
            if idle:
                fill_partitions(bench, server, idle)
            # Idle they are only when what they were given has been synced; the run without them waits as long.
            time.sleep(SETTLE_S)
            result = bench.generator.run("mpub", server.tcp, messages=published, batch=200, connections=2, window=4, subscribers=1)
            rates["mpub_beside" if idle else "mpub_alone"] = result["rate"]
            result = bench.generator.run("sub", server.tcp, messages=consumed, rdy=2500)
            rates["consume_beside" if idle else "consume_alone"] = result["steady_rate"]
    return {
        **rates,
        "mpub_kept": rates["mpub_beside"] / rates["mpub_alone"] * 100,
        "consume_kept": rates["consume_beside"] / rates["consume_alone"] * 100,
    }


def spread(bench: Bench, kind: str, *, batch: int, messages: int) -> Figures:
    """Publish to 1,000 topics in turn, and consume five channels of each."""
    topics = 20 if bench.quick else 1000
    count = messages // (50 if bench.quick else 1)
    with Server(kind, bench.setup, mem_queue_size=NSQD_DEFAULT_QUEUE) as server:
        cpu = server.cpu_s()
        result = bench.generator.run(
            "both", server.tcp, messages=count, batch=batch, connections=2, window=100, topics=topics, channels=5, rdy=100
        )
        return {**rate_figures(result, server, cpu), "middle": result["middle_rate"]}


SUSTAINED = (Metric("rate", "sustained", RATE, Goal(ratio_min=2.5)), Metric("slowest_tenth", "slowest tenth of the run", RATE))
PACKED = (Metric("rate", "", RATE, Goal(ratio_min=1)), Metric("server_cpu_us", "processor time of the server per message", "µs"))
PACKED_NOTE = (
    "bodies of words; commands are compressed in advance, each by itself, and what a consumer sends is in stored blocks, "
    "so the server decompresses and compresses and the generator decompresses only"
)
SPREAD = (Metric("middle", "", RATE, Goal(ratio_min=1.5)), Metric("server_cpu_us", "processor time of the server per message", "µs"))

NSQ_ROWS: tuple[Row, ...] = (
    Row(
        "auth-mpub",
        "AUTH on: MPUB 200 x 200 B, 2 connections",
        SUSTAINED,
        auth_mpub,
        note="an authentication server in the bench says yes to everybody, once per connection",
    ),
    Row("auth-pub-100", "AUTH on: PUB 200 B, 100 in flight", (Metric("rate", "", RATE, Goal(ratio_min=6)),), auth_pub_100),
    Row("auth-consume", "AUTH on: consume + FIN, RDY 2500, 200 B", (Metric("rate", "", RATE, Goal(ratio_min=6)),), auth_consume_2500),
    Row("snappy-mpub", "snappy: MPUB 200 x 200 B, 2 connections", PACKED, partial(packed_mpub, compression="snappy"), note=PACKED_NOTE),
    Row("snappy-consume", "snappy: consume + FIN, RDY 2500, 200 B", PACKED, partial(packed_consume, compression="snappy")),
    Row("deflate-mpub", "deflate: MPUB 200 x 200 B, 2 connections", PACKED, partial(packed_mpub, compression="deflate")),
    Row(
        "deflate-consume",
        "deflate: consume + FIN, RDY 2500, 200 B",
        PACKED,
        partial(packed_consume, compression="deflate"),
        note="level 6 on both servers, which is nsqd's default",
    ),
    Row(
        "idle-connections",
        "10,000 connections with a subscription each, heartbeats every 30 s",
        (
            Metric("resident", "memory of the whole broker (VmRSS)", "MB", Goal(limit=250)),
            Metric("kib_each", "own memory per connection", "KiB"),
            Metric("cpu_percent", "processor", "% of a core", Goal(limit=10)),
        ),
        idle_connections,
        once=True,
        note="processor time over two rounds of heartbeats, all answered; 100 topics with one channel each",
    ),
    Row(
        "idle-topics",
        "MPUB and consume beside 1,000 idle topics",
        (
            Metric("mpub_kept", "MPUB, of the rate without them", "%", Goal(least=90)),
            Metric("consume_kept", "consume, of the rate without them", "%", Goal(least=90)),
            Metric("mpub_beside", "MPUB beside them", RATE),
            Metric("consume_beside", "consume beside them", RATE),
        ),
        idle_topics,
        note="each share is of two runs one after the other on fresh data folders; nsqd keeps 10,000 messages of a topic in memory "
        "here, because it takes room for all of them when a topic is made, and the rest on its disk",
    ),
    Row(
        "spread",
        "PUB to 1,000 topics in turn, 5 channels each consumed at once, 200 B",
        SPREAD,
        partial(spread, batch=1, messages=300_000),
        note="2 publishers with 100 commands in flight each, 5,000 consumers with RDY 100; messages published per second, "
        "each of them delivered and settled five times; the first tenth, in which topics get their first files, and the last are left out",
    ),
    Row(
        "spread-mpub",
        "MPUB of 20 to 1,000 topics in turn, 5 channels each consumed at once, 200 B",
        SPREAD,
        partial(spread, batch=20, messages=1_000_000),
        note="as `spread`, in batches",
    ),
)
