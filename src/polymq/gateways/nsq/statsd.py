"""nsqd's statistics for statsd: the lines of one report, under nsqd's names, made topic by topic.

Counters are sent as what they have grown by since the report before, everything else as it is. The lines know
nothing of packets or sockets. Read next: `server/statsd.py`, which sends them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.gateways.nsq.stats_model import topic_stats
from polymq.protocols.nsq.names import is_ephemeral

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from polymq.core.session import Session
    from polymq.gateways.nsq.stats_memory import MemoryFigures
    from polymq.gateways.nsq.stats_model import ChannelStats, LatencyStats, TopicStats

__all__ = ["StatsdReport", "statsd_prefix"]

_GAUGE: Final = "g"
_COUNTER: Final = "c"
_MEMORY: Final = "mem."
# The one figure about memory that is a counter, and what nsqd calls it here.
_COLLECTIONS: Final = ("gc_total_runs", "gc_runs")


def statsd_prefix(template: str, *, broadcast_address: str, http_port: int) -> str:
    """Put this node's address in the place of %s; a prefix that is not empty ends in a dot.

    Source: nsqd/nsqd.go New, internal/statsd/host.go, NSQ 1.3.0.
    """
    host = f"[{broadcast_address}]" if ":" in broadcast_address else broadcast_address
    key = f"{host}:{http_port}".replace(".", "_").replace(":", "_")
    prefix = template.replace("%s", key)
    return prefix if not prefix or prefix.endswith(".") else f"{prefix}."


class StatsdReport:
    """What was sent last, and the next report. Counters of what has gone are forgotten with the report that misses it.

    Source: nsqd/statsd.go, NSQ 1.3.0.
    """

    def __init__(self, session: Session, prefix: str, memory: Callable[[], MemoryFigures] | None, *, exclude_ephemeral: bool) -> None:
        self._session = session
        self._prefix = prefix
        self._memory = memory
        self._exclude_ephemeral = exclude_ephemeral
        self._sent: dict[str, int] = {}

    def lines(self) -> Generator[bytes, None, None]:
        """Give the lines of one report, some at a time, each with its end."""
        counted: dict[str, int] = {}
        try:
            yield from self._pieces(counted)
        except GeneratorExit:
            # The rest is part of the next report.
            self._sent.update(counted)
            raise
        self._sent = counted

    def _pieces(self, counted: dict[str, int]) -> Iterator[bytes]:
        for name in self._session.topic_names():
            if self._leaves_out(name):
                continue
            view = self._session.topic(name, consumers=False)
            if view is not None:
                yield self._topic(topic_stats(view, None), counted)
        if self._memory is not None:
            yield self._about_memory(self._memory(), counted)

    def _leaves_out(self, name: str) -> bool:
        return self._exclude_ephemeral and is_ephemeral(name.encode("utf-8"))

    def _topic(self, topic: TopicStats, counted: dict[str, int]) -> bytes:
        name = f"topic.{topic.name}."
        lines = [
            self._count(f"{name}message_count", topic.message_count, counted),
            self._count(f"{name}message_bytes", topic.message_bytes, counted),
            self._line(f"{name}depth", topic.depth, _GAUGE),
            self._line(f"{name}backend_depth", 0, _GAUGE),
            *self._latency(name, topic.latency),
        ]
        for channel in topic.channels:
            if not self._leaves_out(channel.name):
                lines += self._channel(f"{name}channel.{channel.name}.", channel, counted)
        return "".join(lines).encode("utf-8")

    def _channel(self, name: str, channel: ChannelStats, counted: dict[str, int]) -> list[str]:
        return [
            self._count(f"{name}message_count", channel.message_count, counted),
            self._line(f"{name}depth", channel.depth, _GAUGE),
            self._line(f"{name}backend_depth", 0, _GAUGE),
            self._line(f"{name}in_flight_count", channel.in_flight_count, _GAUGE),
            self._line(f"{name}deferred_count", channel.deferred_count, _GAUGE),
            self._count(f"{name}requeue_count", channel.requeue_count, counted),
            self._count(f"{name}timeout_count", channel.timeout_count, counted),
            self._line(f"{name}clients", channel.client_count, _GAUGE),
            *self._latency(name, channel.latency),
        ]

    def _latency(self, name: str, latency: LatencyStats) -> list[str]:
        return [self._line(f"{name}e2e_processing_latency_{share * 100:.0f}", value, _GAUGE) for share, value in latency.quantiles]

    def _about_memory(self, figures: MemoryFigures, counted: dict[str, int]) -> bytes:
        field, name = _COLLECTIONS
        lines = [self._line(f"{_MEMORY}{each}", getattr(figures, each), _GAUGE) for each in figures.__dataclass_fields__ if each != field]
        lines.append(self._count(f"{_MEMORY}{name}", getattr(figures, field), counted))
        return "".join(lines).encode("utf-8")

    def _count(self, name: str, value: int, counted: dict[str, int]) -> str:
        counted[name] = value
        return self._line(name, value - self._sent.get(name, 0), _COUNTER)

    def _line(self, name: str, value: int, kind: str) -> str:
        return f"{self._prefix}{name}:{value}|{kind}\n"
