"""nsqd's statistics as text: the widths and spaces are nsqd's own, because people's scripts cut columns out of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from polymq.gateways.nsq.http_format import NS_PER_SECOND, duration, rfc3339, short_duration

if TYPE_CHECKING:
    from polymq.gateways.nsq.stats_memory import MemoryFigures
    from polymq.gateways.nsq.stats_model import ChannelStats, ClientStats, LatencyStats, TopicStats

__all__ = ["NO_TOPICS", "TOPICS", "opening", "producers", "topic"]

TOPICS: Final = "\nTopics:"
NO_TOPICS: Final = "\nTopics: None\n"


def opening(*, version: str, runtime: str, started_at_ns: int, now_ns: int, health: str, memory: MemoryFigures | None) -> str:
    """Write everything before the topics."""
    text = f"nsqd v{version} (built w/{runtime})\nstart_time {rfc3339(started_at_ns)}\n"
    text += f"uptime {duration(max(0, now_ns - started_at_ns))}\n\nHealth: {health}\n"
    if memory is not None:
        text += "\nMemory:\n" + "".join(f"   {name:<25}\t{value}\n" for name, value in asdict(memory).items())
    return text


def topic(stats: TopicStats, now_ns: int) -> str:
    """Write a topic with its channels and their clients."""
    text = (
        f"\n{'*P ' if stats.paused else '   '}[{stats.name:<15}] depth: {stats.depth:<5} be-depth: {0:<5} "
        f"msgs: {stats.message_count:<8} e2e%: {_latency(stats.latency)}\n"
    )
    return text + "".join(_channel(channel, now_ns) for channel in stats.channels)


def _channel(stats: ChannelStats, now_ns: int) -> str:
    text = (
        f"{'   *P ' if stats.paused else '      '}[{stats.name:<25}] depth: {stats.depth:<5} be-depth: {0:<5} "
        f"inflt: {stats.in_flight_count:<4} def: {stats.deferred_count:<4} re-q: {stats.requeue_count:<5} "
        f"timeout: {stats.timeout_count:<5} msgs: {stats.message_count:<8} e2e%: {_latency(stats.latency)}\n"
    )
    return text + "".join(f"        {_client(client, now_ns)}\n" for client in stats.clients or ())


def producers(stats: list[ClientStats], now_ns: int) -> str:
    """Write the connections that have published."""
    if not stats:
        return "\nProducers: None\n"
    return "\nProducers:\n" + "".join(f"   {_client(client, now_ns)}\n" for client in stats)


def _client(stats: ClientStats, now_ns: int) -> str:
    peer, consumer = stats.peer, stats.consumer
    port = peer.remote_address.rpartition(":")[2] if ":" in peer.remote_address else ""
    who = f"{peer.host_name}:{port} {peer.user_agent}"
    since_s = max(0, now_ns // NS_PER_SECOND - peer.connected_at_ns // NS_PER_SECOND)
    connected = f"connected: {duration(since_s * NS_PER_SECOND)}"
    if stats.published:
        total = sum(count for _, count in stats.published)
        topics = ",".join(f"{name}={count}" for name, count in stats.published)
        return f"[{peer.protocol_version} {who:<21}] msgs: {total:<8} topics: {topics} {connected}"
    leased, credit, settled, requeued, delivered = (
        (consumer.leased, consumer.credit, consumer.settled, consumer.requeued, consumer.delivered) if consumer else (0, 0, 0, 0, 0)
    )
    return (
        f"[{peer.protocol_version} {who:<21}] state: {stats.state} inflt: {leased:<4} rdy: {credit:<4} "
        f"fin: {settled:<8} re-q: {requeued:<8} msgs: {delivered:<8} {connected}"
    )


def _latency(stats: LatencyStats) -> str:
    return ", ".join(short_duration(value) for _, value in stats.quantiles)
