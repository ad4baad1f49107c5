"""What NATS' monitoring pages and the registry of statistics are told of this server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from polymq.core.statistics import Family, Kind, Sample
from polymq.gateways.nats.figures import Totals
from polymq.gateways.nats.monitoring_format import number
from polymq.server.statistics import cpu_s, memory_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.statistics import Registry
    from polymq.gateways.nats.house import House
    from polymq.gateways.nats.monitoring import Monitored
    from polymq.server.nats_settings import ClusterSettings, NatsServerSettings
    from polymq.server.node import Node

__all__ = ["make_monitored", "register_nats"]

_NS_PER_SECOND: Final = 1_000_000_000
# Of who has no TLS, as nats-server says it.
_TLS_TIMEOUT_NS: Final = 2 * _NS_PER_SECOND
_LABELS: Final = {"protocol": "nats"}


def make_monitored(node: Node, house: House, settings: NatsServerSettings, *, port: int) -> Monitored:
    """Say what the pages are about; `port` is the one that was opened for them."""
    # Only who has these pages needs all that they are made with.
    from polymq.gateways.nats.monitoring import Monitored, Process

    assert settings.http is not None

    def cpu_percent() -> float:
        elapsed_ns = node.clock.wall_ns() - node.started_at_ns
        return 100 * cpu_s() * _NS_PER_SECOND / elapsed_ns if elapsed_ns > 0 else 0.0

    return Monitored(
        house=house,
        clock=node.clock,
        process=Process(lambda: memory_bytes()[1], cpu_percent, node.store.health),
        pending_size_bytes=node.pump.courier.waiting_size_bytes,
        started_at_ns=node.started_at_ns,
        http_host=settings.http.host,
        http_port=port,
        system_account=settings.system_account,
        cluster={} if settings.cluster is None else _cluster(settings.cluster),
    )


def _cluster(cluster: ClusterSettings) -> dict[str, Any]:
    """Describe the block `cluster` of the configuration."""
    if cluster.listen is None:
        return {}
    document: dict[str, Any] = {"name": cluster.name, "addr": cluster.listen.host, "cluster_port": cluster.listen.port}
    document["auth_timeout"] = number(cluster.auth_timeout_ns / _NS_PER_SECOND)
    if cluster.routes:
        document["urls"] = [f"{route.host}:{route.port}" for route in cluster.routes]
    document["tls_timeout"] = number((cluster.tls.timeout_ns if cluster.tls is not None else _TLS_TIMEOUT_NS) / _NS_PER_SECOND)
    return document if cluster.tls is None else {**document, "tls_required": True, "tls_verify": True}


class _Sums:
    """What passed all clients, added up once for all the families that are collected together: there may be many clients."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._totals = Totals()
        self._asked: set[int] = set()
        self._until_ns = 0

    def given(self, family: int) -> Totals:
        """Give the sums to a family: new ones if it had these, or if they are old."""
        now_ns = self._house.clock.monotonic_ns()
        if not self._asked or family in self._asked or now_ns > self._until_ns:
            self._totals = self._house.totals()
            self._asked.clear()
            self._until_ns = now_ns + _NS_PER_SECOND
        self._asked.add(family)
        return self._totals


def register_nats(registry: Registry, house: House) -> None:
    """Register what passes through live, without the log."""

    def register(name: str, kind: Kind, text: str, value: Callable[[], float]) -> None:
        registry.register(Family(name, kind, text, lambda: [Sample(_LABELS, value())]))

    counter, gauge = Kind.COUNTER, Kind.GAUGE
    sums = _Sums(house)
    spaces = house.broker.live.spaces
    register(
        "polymq_live_received_messages_total",
        counter,
        "Live messages that clients have published.",
        lambda: sums.given(0).in_message_count,
    )
    register("polymq_live_received_bytes_total", counter, "Headers and payloads of these.", lambda: sums.given(1).in_size_bytes)
    register("polymq_live_sent_messages_total", counter, "Live messages that clients were given.", lambda: sums.given(2).out_message_count)
    register("polymq_live_sent_bytes_total", counter, "Headers and payloads of these.", lambda: sums.given(3).out_size_bytes)
    register(
        "polymq_live_subscriptions",
        gauge,
        "Who listens, here and at other servers.",
        lambda: sum(each.listening_count for each in spaces.values()),
    )
    register(
        "polymq_live_slow_consumers_total",
        counter,
        "Clients cut off because they did not keep up.",
        lambda: house.departed.slow_consumer_count,
    )
    register("polymq_live_stalls_total", counter, "Waits of publishers for somebody who hardly keeps up.", lambda: house.stall_count)
