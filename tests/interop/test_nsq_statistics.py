"""Statistics that have to be switched on: percentiles of latencies, and what statsd gets by UDP."""

from __future__ import annotations

import re
import socket
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.interop.conftest import chosen_kinds
from tests.interop.raw import Raw
from tests.interop.servers import Running, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 20.0


class Statsd:
    """A UDP socket that takes what statsd would."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(PATIENCE_S)
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"

    def report(self, last: str) -> tuple[dict[str, str], int]:
        """Read packets until one has a line whose name begins with `last`; gives values by name, and the largest packet."""
        lines: dict[str, str] = {}
        largest = 0
        while not any(name.startswith(last) for name in lines):
            packet = self.socket.recv(65536)
            assert packet.endswith(b"\n")
            largest = max(largest, len(packet))
            for line in packet.decode().splitlines():
                name, _, value = line.partition(":")
                lines[name] = value
        return lines, largest


@pytest.fixture
def statsd() -> Iterator[Statsd]:
    receiver = Statsd()
    yield receiver
    receiver.socket.close()


def prefix(server: Running) -> str:
    return "nsq." + server.http.replace(".", "_").replace(":", "_") + "."


def consume(server: Running, topic: str, channel: str) -> None:
    """Finish one message after a while, give one back for later, and keep the connection until it is known."""
    with Raw(server.tcp) as client:
        client.send(f"SUB {topic} {channel}\n".encode())
        assert client.frame() == (0, b"OK")
        client.send(b"RDY 2\n")
        first, second = client.message(), client.message()
        time.sleep(0.2)
        client.send(b"FIN " + first.id + b"\nREQ " + second.id + b" 600000\n")
        deadline = time.monotonic() + PATIENCE_S
        while server.channel(topic, channel)["deferred_count"] != 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)


EXPECTED = {
    "topic.t.message_count": "2|c",
    "topic.t.message_bytes": "6|c",
    "topic.t.depth": "0|g",
    "topic.t.backend_depth": "0|g",
    "topic.t.e2e_processing_latency_100": "<LATENCY>|g",
    "topic.t.e2e_processing_latency_99": "<LATENCY>|g",
    "topic.t.channel.ch.message_count": "2|c",
    "topic.t.channel.ch.depth": "0|g",
    "topic.t.channel.ch.backend_depth": "0|g",
    "topic.t.channel.ch.in_flight_count": "0|g",
    "topic.t.channel.ch.deferred_count": "1|g",
    "topic.t.channel.ch.requeue_count": "1|c",
    "topic.t.channel.ch.timeout_count": "0|c",
    "topic.t.channel.ch.clients": "0|g",
    "topic.t.channel.ch.e2e_processing_latency_100": "<LATENCY>|g",
    "topic.t.channel.ch.e2e_processing_latency_99": "<LATENCY>|g",
}
MEMORY = {
    **{
        f"mem.{name}": "<N>|g"
        for name in (
            "heap_objects",
            "heap_idle_bytes",
            "heap_in_use_bytes",
            "heap_released_bytes",
            "gc_pause_usec_100",
            "gc_pause_usec_99",
            "gc_pause_usec_95",
            "next_gc_bytes",
        )
    },
    "mem.gc_runs": "<N>|c",
}


@pytest.mark.parametrize("kind", chosen_kinds())
def test_statsd_gets_what_nsqd_sends(kind: str, tmp_path: Path, statsd: Statsd) -> None:
    options = {
        "statsd_address": statsd.address,
        "statsd_interval": "1500ms",
        "statsd_udp_packet_size": "200",
        "statsd_exclude_ephemeral": "true",
        "e2e_processing_latency_percentiles": "0.99,1.0",
    }
    with running(kind, tmp_path, options=options) as server:
        # What the test does must fall between two reports.
        statsd.report(f"{prefix(server)}mem.gc_runs")
        for name in ("t", "e%23ephemeral"):
            assert server.request("POST", f"/channel/create?topic={name}&channel=ch")[0] in (200, 404)
            assert server.request("POST", f"/mpub?topic={name}", b"abc\ndef")[0] == 200
        assert server.request("POST", "/channel/create?topic=t&channel=ch")[0] == 200
        consume(server, "t", "ch")
        lines, largest = statsd.report(f"{prefix(server)}mem.gc_runs")
        assert 100 < largest <= 200
        found = {name.removeprefix(prefix(server)): value for name, value in lines.items()}
        latencies = [int(value[:-2]) for name, value in found.items() if "latency" in name]
        assert all(0.2e9 < value < PATIENCE_S * 1e9 for value in latencies), latencies
        masked = {
            name: re.sub(r"\d+", "<LATENCY>" if "latency" in name else "<N>", value) if "latency" in name or "mem." in name else value
            for name, value in found.items()
        }
        assert masked == EXPECTED | MEMORY
        again = {name.removeprefix(prefix(server)): value for name, value in statsd.report(f"{prefix(server)}mem.gc_runs")[0].items()}
        assert again["topic.t.message_count"] == "0|c"
        assert again["topic.t.channel.ch.requeue_count"] == "0|c"
        assert again["topic.t.channel.ch.deferred_count"] == "1|g"


@pytest.mark.parametrize("kind", chosen_kinds())
def test_percentiles_of_latencies(kind: str, tmp_path: Path) -> None:
    options = {"e2e_processing_latency_percentiles": "0.5,1.0", "e2e_processing_latency_window_time": "1m"}
    with running(kind, tmp_path, options=options) as server:
        assert server.request("GET", "/config/e2e_processing_latency_percentiles") == (200, b"[1,0.5]")
        assert server.request("GET", "/config/e2e_processing_latency_window_time") == (200, b"60000000000")
        assert server.request("POST", "/topic/create?topic=t") == (200, b"")
        assert server.topic("t")["e2e_processing_latency"] == {"count": 0, "percentiles": None}
        assert server.request("POST", "/channel/create?topic=t&channel=ch") == (200, b"")
        nothing = {"count": 0, "percentiles": [{"quantile": 1, "value": 0}, {"quantile": 0.5, "value": 0}]}
        assert server.channel("t", "ch")["e2e_processing_latency"] == nothing
        assert server.request("POST", "/mpub?topic=t", b"abc\ndef") == (200, b"OK")
        consume(server, "t", "ch")
        for found in (server.topic("t"), server.channel("t", "ch")):
            latency = found["e2e_processing_latency"]
            assert latency["count"] == 1
            assert [each["quantile"] for each in latency["percentiles"]] == [1, 0.5]
            assert all(0.2e9 < each["value"] < PATIENCE_S * 1e9 for each in latency["percentiles"])
        status, text = server.request("GET", "/stats")
        assert status == 200
        assert re.search(rb"\[t +\] depth: 0 .* e2e%: \S+ms, \S+ms\n", text), text
        status, text = server.request("GET", "/stats?format=json&topic=t")
        assert re.search(rb'"count":1,"percentiles":\[\{"quantile":1,"value":\d+\},\{"quantile":0.5,"value":\d+\}\]', text), text


def test_metrics_of_a_real_process(tmp_path: Path) -> None:
    with running("polymq", tmp_path, options={"e2e_processing_latency_percentiles": "0.99"}) as server:
        assert server.request("POST", "/channel/create?topic=t&channel=ch")[0] == 404
        assert server.request("POST", "/topic/create?topic=t") == (200, b"")
        assert server.request("POST", "/channel/create?topic=t&channel=ch") == (200, b"")
        assert server.request("POST", "/mpub?topic=t", b"abc\ndef") == (200, b"OK")
        consume(server, "t", "ch")
        for accept, reader in (("text/plain", read_text), ("application/openmetrics-text", read_open_metrics)):
            request = urllib.request.Request(f"http://{server.door}/metrics", headers={"Accept": accept})
            with urllib.request.urlopen(request, timeout=10) as response:
                assert response.headers["Content-Type"].startswith(accept)
                text = response.read().decode()
            found = {sample.name: sample for family in reader(text) for sample in family.samples}
            assert found["polymq_topic_messages_total"].value == 2
            assert found["polymq_group_settled_total"].value == 1
            assert found["polymq_group_latency_seconds"].labels == {"namespace": "", "topic": "t", "group": "ch", "quantile": "0.99"}
            assert found["polymq_group_latency_seconds"].value > 0.2
            assert found["polymq_store_written_bytes_total"].value > 0
            assert found["process_resident_memory_bytes"].value > 10 << 20
            assert found["polymq_connections_opened_total"].value >= 4
