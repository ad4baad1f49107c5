from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from polymq.admin.metrics import TEXT, render
from polymq.config_sections import NatsSettings, NsqSettings, PhpmqSettings, ServerSettings, Settings
from polymq.config_values import TcpAddress
from polymq.core.statistics import Registry
from polymq.gateways.contract import Peer
from polymq.server import statistics
from polymq.server.mounts import mount_all
from polymq.server.node import Node
from polymq.server.statistics import (
    cpu_s,
    descriptors,
    memory_bytes,
    register_answers,
    register_connections,
    register_process,
    register_store,
)
from polymq.store.figures import StoreFigures

if TYPE_CHECKING:
    import pytest


def values(registry: Registry) -> dict[str, Any]:
    """Each family's only value, or its (labels, value) pairs."""
    found: dict[str, Any] = {}
    for family in registry:
        samples = list(family.collect())
        plain = len(samples) == 1 and not samples[0].labels
        found[family.name] = samples[0].value if plain else [(dict(sample.labels), sample.value) for sample in samples]
    return found


def test_the_process() -> None:
    registry = Registry()
    register_process(registry, started_at_ns=1_500_000_000_500_000_000)
    found = values(registry)
    assert found["process_start_time_seconds"] == 1_500_000_000.5
    assert 10 << 20 < found["process_resident_memory_bytes"] < found["process_virtual_memory_bytes"]
    assert 3 <= found["process_open_fds"] <= found["process_max_fds"]
    [(labels, one)] = found["polymq_build_info"]
    assert (set(labels), one) == ({"version", "build"}, 1)


def test_processor_time_grows() -> None:
    before = cpu_s()
    deadline = time.process_time() + 0.03
    while time.process_time() < deadline:
        pass
    assert before + 0.01 < cpu_s() < before + 10


def test_an_open_descriptor_counts() -> None:
    before = descriptors()
    descriptor = os.open("/dev/null", os.O_RDONLY)
    try:
        assert descriptors() == before + 1
    finally:
        os.close(descriptor)


def test_a_system_that_does_not_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(statistics, "_STATM", tmp_path / "none")
    monkeypatch.setattr(statistics, "_DESCRIPTORS", tmp_path / "none")
    assert (memory_bytes(), descriptors()) == ((0, 0), 0)


def figures(written_bytes: int) -> StoreFigures:
    return StoreFigures(
        partitions=3,
        partitions_failed=1,
        written_bytes=written_bytes,
        unsynced_bytes=7,
        congested=True,
        syncs=5,
        syncs_failed=1,
        sync_ns=1_500_000_000,
        journal_size_bytes=65536,
        disk_size_bytes=100,
        disk_free_bytes=40,
        disk_is_full=False,
    )


def test_the_store() -> None:
    registry = Registry()
    asked: list[int] = []
    now_ns = 0

    def ask() -> StoreFigures:
        asked.append(now_ns)
        return figures(len(asked))

    register_store(registry, ask, lambda: ["damaged"], lambda: now_ns)
    assert values(registry) == {
        "polymq_store_partitions": 3,
        "polymq_store_failed_partitions": 1,
        "polymq_store_written_bytes_total": 1,
        "polymq_store_unsynced_bytes": 7,
        "polymq_store_congested": 1,
        "polymq_store_syncs_total": 5,
        "polymq_store_failed_syncs_total": 1,
        "polymq_store_sync_seconds_total": 1.5,
        "polymq_journal_bytes": 65536,
        "polymq_disk_bytes": 100,
        "polymq_disk_free_bytes": 40,
        "polymq_disk_full": 0,
        "polymq_health_problems": 1,
    }
    assert asked == [0], "one scrape reads them once"
    now_ns = 200_000_000
    assert values(registry)["polymq_store_written_bytes_total"] == 2


class FakeConnection:
    def __init__(self, listener: str) -> None:
        self.peer = Peer("h", 1, listener)


def test_connections_by_listener() -> None:
    registry = Registry()
    open_now = [FakeConnection("a:1"), FakeConnection("a:1"), FakeConnection("gone:1")]
    register_connections(registry, lambda: cast("Any", open_now), lambda: 9, {"a:1": "NSQ", "b:2": "HTTP"})
    assert values(registry) == {
        "polymq_connections": [({"listener": "NSQ", "address": "a:1"}, 2), ({"listener": "HTTP", "address": "b:2"}, 0)],
        "polymq_connections_opened_total": 9,
    }


def test_requests_by_status() -> None:
    registry = Registry()
    answers: dict[int, int] = {}
    register_answers(registry, {"HTTP": answers, "other": {}})
    assert values(registry)["polymq_http_requests_total"] == []
    answers.update({404: 1, 200: 7})
    assert values(registry)["polymq_http_requests_total"] == [
        ({"listener": "HTTP", "status": "200"}, 7),
        ({"listener": "HTTP", "status": "404"}, 1),
    ]


ANY_PORT = TcpAddress("127.0.0.1", 0)
PAGE = Path(__file__).parents[3] / "docs" / "METRICS.md"


def test_the_page_lists_every_metric(tmp_path: Path) -> None:
    nsq = NsqSettings(tcp=ANY_PORT, http=ANY_PORT, lookup_tcp=ANY_PORT, lookup_http=ANY_PORT, e2e_processing_latency_percentiles=(0.5,))
    nats = NatsSettings(client=ANY_PORT)
    phpmq = PhpmqSettings(tcp=ANY_PORT)
    node = Node(Settings(server=ServerSettings(data=tmp_path / "data", http=ANY_PORT), nsq=nsq, nats=nats, phpmq=phpmq))
    mounts = mount_all(node, backlog=5)
    try:
        page = b"".join(render(node.broker.statistics, TEXT)).decode()
    finally:
        for mount in mounts:
            mount.listener.close()
        node.close()
    there = {(name, text) for name, text in re.findall(r"^# HELP (\S+) (.*)$", page, re.MULTILINE)}
    listed = {(name, text) for name, text in re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)}
    assert listed == there
