"""nsqd's report to statsd, over the real core."""

from __future__ import annotations

import pytest

from polymq.core.settings import CoreSettings
from polymq.gateways.nsq.stats_memory import MemoryFigures
from polymq.gateways.nsq.statsd import StatsdReport, statsd_prefix
from tests.unit.core.conftest import World, inbox


def report(world: World, *, prefix: str = "", exclude_ephemeral: bool = False) -> StatsdReport:
    return StatsdReport(world.session, prefix, None, exclude_ephemeral=exclude_ephemeral)


def taken(report: StatsdReport) -> list[str]:
    return b"".join(report.lines()).decode().splitlines()


def busy() -> World:
    world = World(1)
    world.settings = CoreSettings(latency_quantiles=(1.0, 0.99))
    world.restart()
    consumer = world.consume("t", "c", 2)
    world.publish("t", b"abc", b"de", b"f")
    world.turn()
    world.wait(1)
    world.settle(consumer, inbox(consumer).ids[0])
    world.session.requeue(consumer, inbox(consumer).ids[1], delay_ns=5_000_000_000)
    world.turn()
    return world


def test_one_report() -> None:
    assert taken(report(busy(), prefix="nsq.h.")) == [
        "nsq.h.topic.t.message_count:3|c",
        "nsq.h.topic.t.message_bytes:6|c",
        "nsq.h.topic.t.depth:0|g",
        "nsq.h.topic.t.backend_depth:0|g",
        "nsq.h.topic.t.e2e_processing_latency_100:1000000000|g",
        "nsq.h.topic.t.e2e_processing_latency_99:1000000000|g",
        "nsq.h.topic.t.channel.c.message_count:3|c",
        "nsq.h.topic.t.channel.c.depth:0|g",
        "nsq.h.topic.t.channel.c.backend_depth:0|g",
        "nsq.h.topic.t.channel.c.in_flight_count:1|g",
        "nsq.h.topic.t.channel.c.deferred_count:1|g",
        "nsq.h.topic.t.channel.c.requeue_count:1|c",
        "nsq.h.topic.t.channel.c.timeout_count:0|c",
        "nsq.h.topic.t.channel.c.clients:1|g",
        "nsq.h.topic.t.channel.c.e2e_processing_latency_100:1000000000|g",
        "nsq.h.topic.t.channel.c.e2e_processing_latency_99:1000000000|g",
    ]


def test_counters_are_sent_as_differences_and_gauges_as_they_are() -> None:
    world = busy()
    sender = report(world)
    taken(sender)
    world.publish("t", b"1234")
    world.turn()
    lines = taken(sender)
    assert "topic.t.message_count:1|c" in lines
    assert "topic.t.message_bytes:4|c" in lines
    assert "topic.t.channel.c.requeue_count:0|c" in lines
    assert "topic.t.channel.c.deferred_count:1|g" in lines


def test_a_topic_that_was_gone_counts_from_nothing() -> None:
    world = busy()
    sender = report(world)
    taken(sender)
    world.session.delete_topic("t")
    assert taken(sender) == []
    world.publish("t", b"x")
    world.turn()
    assert "topic.t.message_count:1|c" in taken(sender)


def test_what_a_report_cut_short_has_not_said_is_in_the_next() -> None:
    world = World(1)
    world.publish("a", b"x")
    world.publish("b", b"x")
    world.turn()
    sender = report(world)
    lines = sender.lines()
    assert b"topic.a.message_count:1|c\n" in next(lines)
    lines.close()
    again = taken(sender)
    assert "topic.a.message_count:0|c" in again
    assert "topic.b.message_count:1|c" in again


@pytest.mark.parametrize(("exclude", "names"), [(False, ["e#ephemeral", "t"]), (True, ["t"])])
def test_ephemeral_topics_and_channels_can_be_left_out(exclude: bool, names: list[str]) -> None:
    world = World(1)
    world.consume("t", "c", 0)
    world.consume("t", "d#ephemeral", 0, ephemeral_group=True)
    world.consume("e#ephemeral", "c", 0, ephemeral_topic=True)
    lines = taken(report(world, exclude_ephemeral=exclude))
    assert sorted({line.split(".")[1] for line in lines}) == names
    assert any("d#ephemeral" in line for line in lines) is not exclude


def test_memory() -> None:
    figures = [MemoryFigures(heap_objects=3, gc_total_runs=5), MemoryFigures(gc_total_runs=6)]
    sender = StatsdReport(World(1).session, "", lambda: figures.pop(0), exclude_ephemeral=False)
    assert taken(sender) == [
        "mem.heap_objects:3|g",
        "mem.heap_idle_bytes:0|g",
        "mem.heap_in_use_bytes:0|g",
        "mem.heap_released_bytes:0|g",
        "mem.gc_pause_usec_100:0|g",
        "mem.gc_pause_usec_99:0|g",
        "mem.gc_pause_usec_95:0|g",
        "mem.next_gc_bytes:0|g",
        "mem.gc_runs:5|c",
    ]
    assert "mem.gc_runs:1|c" in taken(sender)


@pytest.mark.parametrize(
    ("template", "address", "prefix"),
    [
        ("nsq.%s", "10.0.0.1", "nsq.10_0_0_1_4151."),
        ("nsq.%s.", "host.example", "nsq.host_example_4151."),
        ("%s", "::1", "[__1]_4151."),
        ("mine", "h", "mine."),
        ("", "h", ""),
    ],
)
def test_prefixes(template: str, address: str, prefix: str) -> None:
    assert statsd_prefix(template, broadcast_address=address, http_port=4151) == prefix
