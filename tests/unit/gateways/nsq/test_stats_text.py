"""nsqd's columns, beyond what the vectors show."""

from __future__ import annotations

from dataclasses import replace

from polymq.core.views import LatencyView
from polymq.gateways.nsq import stats_text
from polymq.gateways.nsq.http_format import rfc3339
from polymq.gateways.nsq.stats_memory import MemoryFigures
from polymq.gateways.nsq.stats_model import ClientStats, topic_stats

from .test_stats_model import CONSUMER, PEER, TOPIC

SECOND_NS = 1_000_000_000


def test_latencies() -> None:
    slow = replace(TOPIC, groups=(), latency=LatencyView(3, ((0.99, 1_500_000), (0.5, 900))))
    assert stats_text.topic(topic_stats(slow, None), 0).endswith("e2e%: 1.5ms, 900.0ns\n")


def test_opening() -> None:
    text = stats_text.opening(
        version="1.3.0", runtime="r", started_at_ns=SECOND_NS, now_ns=62 * SECOND_NS, health="OK", memory=MemoryFigures(gc_total_runs=3)
    )
    assert text.startswith(f"nsqd v1.3.0 (built w/r)\nstart_time {rfc3339(SECOND_NS)}\nuptime 1m1s\n\nHealth: OK\n\nMemory:\n")
    assert text.endswith("   gc_total_runs            \t3\n")


def test_wide_values_push_the_rest() -> None:
    client = ClientStats(replace(PEER, host_name="x" * 30, remote_address="unix"), CONSUMER, ())
    line = stats_text.producers([client], 65 * SECOND_NS)
    assert (
        line
        == f"\nProducers:\n   [V2 {'x' * 30}: a] state: 3 inflt: 6    rdy: 7    fin: 4        re-q: 3        msgs: 5        connected: 1m0s\n"
    )
