from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.config_sections import NsqSettings, ServerSettings, Settings, StoreSettings
from polymq.config_values import TcpAddress
from polymq.server.node import Node
from polymq.server.nsq_parts import nsqd_options, statsd_sender

if TYPE_CHECKING:
    from pathlib import Path


def test_options_have_nsqds_defaults() -> None:
    assert nsqd_options(NsqSettings(), StoreSettings(), broadcast_address="127.0.0.1", http_port=4151) == {
        "sync_every": 2500,
        "sync_timeout": 1_000_000_000,
        "tls_cert": "",
        "tls_key": "",
        "tls_client_auth_policy": "",
        "tls_root_ca_file": "",
        "tls_required": 0,
        "tls_min_version": 0x0301,
        "auth_http_addresses": [],
        "http_client_connect_timeout": 2_000_000_000,
        "http_client_request_timeout": 5_000_000_000,
        "max_channel_consumers": 0,
        "statsd_address": "",
        "statsd_prefix": "nsq.127_0_0_1_4151.",
        "statsd_interval": 60_000_000_000,
        "statsd_mem_stats": True,
        "statsd_udp_packet_size": 508,
        "statsd_exclude_ephemeral": False,
        "e2e_processing_latency_window_time": 600_000_000_000,
        "e2e_processing_latency_percentiles": [],
    }


def test_options_are_those_of_the_section() -> None:
    section = NsqSettings(
        statsd_address=TcpAddress("h", 8125),
        statsd_mem_stats=False,
        e2e_processing_latency_percentiles=(1.0, 0.99),
        max_channel_consumers=3,
    )
    options = nsqd_options(section, StoreSettings(), broadcast_address="h", http_port=1)
    assert options["statsd_address"] == "h:8125"
    assert options["statsd_mem_stats"] is False
    assert str(options["e2e_processing_latency_percentiles"]) == "[1, 0.99]"
    assert options["max_channel_consumers"] == 3


def test_how_often_is_synced_is_told_as_it_is() -> None:
    store = StoreSettings(durability="fsync", sync_interval_ns=500_000_000)
    options = nsqd_options(NsqSettings(), store, broadcast_address="h", http_port=1)
    assert (options["sync_every"], options["sync_timeout"]) == (1, 500_000_000)


def test_who_logs_in_at_an_authentication_server_is_not_shown() -> None:
    section = NsqSettings(auth_http_addresses=("https://user:planted@auth/who", "h:1"))
    assert nsqd_options(section, StoreSettings(), broadcast_address="h", http_port=1)["auth_http_addresses"] == ["https://auth/who", "h:1"]


def test_nothing_is_sent_unless_asked_for(tmp_path: Path) -> None:
    for address in (None, TcpAddress("127.0.0.1", 8125)):
        nsq = NsqSettings(statsd_address=address, e2e_processing_latency_percentiles=(0.5,))
        node = Node(Settings(server=ServerSettings(data=tmp_path / "data"), nsq=nsq))
        try:
            sender = statsd_sender(node, broadcast_address="h", http_port=1)
            assert (sender is None) is (address is None)
            assert node.broker.settings.latency_quantiles == (0.5,)
        finally:
            node.close()
