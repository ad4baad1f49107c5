from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.config_sections import ServerSettings, Settings, StoreSettings
from polymq.config_values import DiskShare
from polymq.core.access import ANONYMOUS
from polymq.errors import StoreFailed
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


def test_settings_reach_their_parts() -> None:
    chosen = Settings(
        server=ServerSettings(on_disconnect="requeue"),
        store=StoreSettings(
            durability="fsync", sync_interval_ns=500, retention_age_ns=7, retention_size=DiskShare(percent=20), free_space=DiskShare(10)
        ),
    )
    store = store_settings(chosen, disk_bytes=100 * GIB, descriptors=20_000)
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
    kept = [store_settings(chosen, disk_bytes=GIB, descriptors=count).open_segments_max for count in (1024, 20_000, 1_000_000)]
    assert kept == [192, 2500, 4000]


@pytest.mark.parametrize("wanted", [1, 100, 12_000, 1_000_000])
@pytest.mark.parametrize("descriptors", [20, 64, 256, 1024, 2200, 4096, 13_000, 20_000, 65_536, 1_048_576])
def test_connections_and_segments_leave_descriptors_for_the_rest(wanted: int, descriptors: int) -> None:
    chosen = Settings(server=ServerSettings(connections_max=wanted))
    count = connections_max(chosen, descriptors=descriptors)
    assert 1 <= count <= wanted
    assert count == wanted or count >= descriptors // 2 - 1
    segments = store_settings(chosen, disk_bytes=GIB, descriptors=descriptors).open_segments_max
    assert segments >= 1
    assert descriptors - count - 2 * segments >= min(descriptors // 8, 300)
