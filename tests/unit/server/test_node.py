from __future__ import annotations

import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from polymq.config_sections import NsqSettings, ServerSettings, Settings, StoreSettings
from polymq.config_values import DiskShare
from polymq.core.access import ANONYMOUS
from polymq.errors import ConfigError, StoreFailed
from polymq.protocols.http.client import Question
from polymq.server import node as node_module
from polymq.server.node import Node, connections_max, core_settings, store_settings
from polymq.wire.slices import MessageBatch

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


def settings(folder: Path) -> Settings:
    return Settings(server=ServerSettings(data=folder / "data"))


def test_a_node_keeps_what_was_published(tmp_path: Path) -> None:
    node = Node(settings(tmp_path))
    node.broker.session(ANONYMOUS).publish("topic", MessageBatch.of([b"one", b"two"]), origin=1)
    node.close()
    again = Node(settings(tmp_path))
    view = again.broker.session(ANONYMOUS).topic("topic")
    assert view is not None
    assert view.message_count == 0, "counters start anew"
    assert again.broker.session(ANONYMOUS).log("topic", 0).end == 2
    again.close()


def test_a_data_folder_is_one_processes(tmp_path: Path) -> None:
    node = Node(settings(tmp_path))
    with pytest.raises(StoreFailed, match="in use by another process"):
        Node(settings(tmp_path))
    node.close()


def test_a_data_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(OSError):
        Node(settings(tmp_path))


@pytest.mark.parametrize("address", ["https://auth.invalid/", "auth.invalid:81"])
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_roots_that_cannot_be_read_are_found_at_the_start(tmp_path: Path, address: str, content: str | None) -> None:
    roots = tmp_path / "roots.pem"
    if content is not None:
        roots.write_text(content)
    nsq = NsqSettings(tls_root_ca_file=str(roots), auth_http_addresses=(address,))
    with pytest.raises(ConfigError, match=r"nsq\.tls_root_ca_file: "):
        Node(replace(settings(tmp_path), nsq=nsq))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("addresses", "at_the_start"), [((), 0), (("auth.invalid:81",), 0), (("a:1", "https://auth.invalid/"), 1)])
def test_certificates_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...], at_the_start: int) -> None:
    made: list[NsqSettings] = []

    def context(section: NsqSettings) -> ssl.SSLContext:
        made.append(section)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr(node_module, "client_context", context)
    node = Node(replace(settings(tmp_path), nsq=NsqSettings(auth_http_addresses=addresses)))
    assert len(made) == at_the_start
    for outside in (node.outside, node.directories_outside):
        outside.ask(Question("https://127.0.0.1:1/", 10**9, 10**9), lambda _answer: None).cancel()
    assert len(made) == 1
    node.close()


def test_settings_reach_their_parts() -> None:
    chosen = Settings(
        server=ServerSettings(on_disconnect="requeue"),
        store=StoreSettings(
            durability="fsync", sync_interval_ns=500, retention_age_ns=7, retention_size=DiskShare(percent=20), free_space=DiskShare(10)
        ),
    )
    store = store_settings(chosen, disk_bytes=100 * GIB, descriptors=20_000, memory=8 * GIB)
    assert store.hot_size_bytes == GIB // 2
    assert store_settings(chosen, disk_bytes=GIB, descriptors=20_000, memory=GIB).hot_size_bytes == GIB // 4
    assert store.sync_interval_ns == 250
    assert store.free_bytes_min == 10
    core = core_settings(chosen, disk_bytes=100 * GIB)
    assert core.sync
    assert core.requeue_on_close
    assert not core_settings(Settings(), disk_bytes=100 * GIB).requeue_on_close
    assert core.retention_age_ns == 7
    assert core.retention_disk_share == pytest.approx(0.2)
    assert not core_settings(Settings(), disk_bytes=100 * GIB).sync


def test_segments_get_half_of_the_descriptors_that_connections_leave() -> None:
    chosen = Settings(server=ServerSettings(connections_max=10_000))
    kept = [store_settings(chosen, disk_bytes=GIB, descriptors=count, memory=GIB).open_segments_max for count in (1024, 20_000, 1_000_000)]
    assert kept == [192, 2500, 4000]


@pytest.mark.parametrize("wanted", [1, 100, 12_000, 1_000_000])
@pytest.mark.parametrize("descriptors", [20, 64, 256, 1024, 2200, 4096, 13_000, 20_000, 65_536, 1_048_576])
def test_connections_and_segments_leave_descriptors_for_the_rest(wanted: int, descriptors: int) -> None:
    chosen = Settings(server=ServerSettings(connections_max=wanted))
    count = connections_max(chosen, descriptors=descriptors)
    assert 1 <= count <= wanted
    assert count == wanted or count >= descriptors // 2 - 1
    segments = store_settings(chosen, disk_bytes=GIB, descriptors=descriptors, memory=GIB).open_segments_max
    assert segments >= 1
    assert descriptors - count - 2 * segments >= min(descriptors // 8, 300)
