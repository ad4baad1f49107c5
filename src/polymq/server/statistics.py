"""The numbers of the process, the store and the connections, in the one registry that everything is rendered from.

Names and units are Prometheus' own where it has a convention (`process_…`). Each family is collected when somebody
asks; what several families share is read once a moment.
"""

from __future__ import annotations

import resource
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq import __version__, _build
from polymq.core.statistics import Family, Kind, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from polymq.core.statistics import Registry
    from polymq.server.connection import Connection
    from polymq.store.figures import StoreFigures

__all__ = ["register_answers", "register_connections", "register_process", "register_store"]

_NS_PER_S: Final = 1_000_000_000
_STATM: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = Path("/proc/self/fd")
# Figures of the store stay what they are for so long: one scrape reads them once.
_FRESH_NS: Final = 100_000_000


def register_process(registry: Registry, *, started_at_ns: int) -> None:
    """Register what operators ask of every process, under the names that they know."""

    def register(name: str, kind: Kind, text: str, value: Callable[[], float]) -> None:
        registry.register(Family(name, kind, text, lambda: [Sample({}, value())]))

    register("process_start_time_seconds", Kind.GAUGE, "When the process started, since 1970.", lambda: started_at_ns / _NS_PER_S)
    register("process_cpu_seconds_total", Kind.COUNTER, "Processor time spent, user and system.", cpu_s)
    register("process_resident_memory_bytes", Kind.GAUGE, "Memory that is resident.", lambda: memory_bytes()[1])
    register("process_virtual_memory_bytes", Kind.GAUGE, "Memory that is mapped, files included.", lambda: memory_bytes()[0])
    register("process_open_fds", Kind.GAUGE, "Descriptors that are open.", descriptors)
    register("process_max_fds", Kind.GAUGE, "Descriptors that may be open.", lambda: float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    labels = {"version": __version__, "build": _build.mode()}
    registry.register(Family("polymq_build_info", Kind.GAUGE, "Always 1; the labels say what runs.", lambda: [Sample(labels, 1)]))


def cpu_s() -> float:
    """Give the processor time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def memory_bytes() -> tuple[int, int]:
    """Give what is mapped and what is resident; zeros where the system does not say."""
    try:
        mapped, resident = _STATM.read_bytes().split()[:2]
    except OSError:
        return 0, 0
    page = resource.getpagesize()
    return int(mapped) * page, int(resident) * page


def descriptors() -> int:
    """Count the open descriptors; 0 where the system does not say. The size of the folder is the count on new kernels."""
    try:
        # The one that lists the folder is among them.
        return _DESCRIPTORS.stat().st_size or sum(1 for _ in _DESCRIPTORS.iterdir()) - 1
    except OSError:
        return 0


def register_store(
    registry: Registry, figures: Callable[[], StoreFigures], health: Callable[[], list[str]], now: Callable[[], int]
) -> None:
    """Register what the store says of log, journal, syncs and disk."""
    read_ns = -_FRESH_NS
    known: StoreFigures | None = None

    def current() -> StoreFigures:
        nonlocal read_ns, known
        now_ns = now()
        if known is None or now_ns - read_ns >= _FRESH_NS:
            known, read_ns = figures(), now_ns
        return known

    def register(name: str, kind: Kind, text: str, value: Callable[[StoreFigures], float]) -> None:
        registry.register(Family(name, kind, text, lambda: [Sample({}, value(current()))]))

    counter, gauge = Kind.COUNTER, Kind.GAUGE
    register("polymq_store_partitions", gauge, "Partitions of all topics.", lambda found: found.partitions)
    register("polymq_store_failed_partitions", gauge, "Partitions that take no writes any more.", lambda found: found.partitions_failed)
    register("polymq_store_written_bytes_total", counter, "Bytes written to logs and journal.", lambda found: found.written_bytes)
    register("polymq_store_unsynced_bytes", gauge, "Bytes written and not synced yet.", lambda found: found.unsynced_bytes)
    register("polymq_store_congested", gauge, "1 while publishers have to wait for the disk.", lambda found: found.congested)
    register("polymq_store_syncs_total", counter, "Syncs that have ended.", lambda found: found.syncs)
    register("polymq_store_failed_syncs_total", counter, "Syncs that failed, for one partition or more.", lambda found: found.syncs_failed)
    register("polymq_store_sync_seconds_total", counter, "Time that syncs took.", lambda found: found.sync_ns / _NS_PER_S)
    register("polymq_journal_bytes", gauge, "Bytes of the journal on the disk.", lambda found: found.journal_size_bytes)
    register("polymq_disk_bytes", gauge, "Size of the disk with the data folder.", lambda found: found.disk_size_bytes)
    register("polymq_disk_free_bytes", gauge, "What is free on it.", lambda found: found.disk_free_bytes)
    register("polymq_disk_full", gauge, "1 while publishes are refused for want of room.", lambda found: found.disk_is_full)
    registry.register(Family("polymq_health_problems", gauge, "Problems that /healthz names.", lambda: [Sample({}, len(health()))]))


def register_answers(registry: Registry, by_listener: Mapping[str, Mapping[int, int]]) -> None:
    """Register how many requests over HTTP were answered how; statuses are those that endpoints give, a few dozen at most."""

    def collect() -> Iterable[Sample]:
        for what, answers in by_listener.items():
            for status, count in sorted(answers.items()):
                yield Sample({"listener": what, "status": str(status)}, count)

    registry.register(Family("polymq_http_requests_total", Kind.COUNTER, "Requests over HTTP that were answered.", collect))


def register_connections(
    registry: Registry, connections: Callable[[], Collection[Connection]], opened: Callable[[], int], listeners: Mapping[str, str]
) -> None:
    """Register how many connections there are, by what listens (`listeners`: what it is, by its address), and have been."""

    def collect() -> Iterable[Sample]:
        counts = Counter(connection.peer.listener for connection in connections())
        return [Sample({"listener": what, "address": address}, counts[address]) for address, what in listeners.items()]

    registry.register(Family("polymq_connections", Kind.GAUGE, "Connections that are open.", collect))
    registry.register(
        Family("polymq_connections_opened_total", Kind.COUNTER, "Connections taken since the start.", lambda: [Sample({}, opened())])
    )
