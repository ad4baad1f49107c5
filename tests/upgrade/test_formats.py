"""Folders of every released format are read by this version: nothing in them is lost, nothing settled comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from polymq.store.store import FORMAT

from .story import ORDERS, RICH, SECOND_NS, SETTLED, Process

FORMATS = sorted(Path(__file__).parent.glob("format-*"))


def test_there_is_a_folder_for_every_format() -> None:
    assert [folder.name for folder in FORMATS] == ["format-1", "format-2"]


@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: folder.name)
def test_a_folder_of_an_earlier_format_is_taken_over(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "data")
    for _ in range(2):
        process = Process(tmp_path / "data")
        assert process.session.topic_names() == ["backlog", "orders", "rich"]
        orders = process.session.topic("orders")
        assert orders is not None
        groups = {group.name: group for group in orders.groups}
        assert groups["audit"].paused
        assert (groups["audit"].depth, groups["billing"].depth) == (20, 20 - SETTLED - 1)
        assert (groups["billing"].deferred, groups["billing"].scheduled) == (1, 1)
        assert process.session.committed("orders", "reader")[1] == 3
        backlog = process.session.topic("backlog")
        assert backlog is not None
        assert (backlog.paused, backlog.held) == (True, 2)
        process.stop()
    process = Process(tmp_path / "data")
    billing = process.consume("orders", "billing", 100)
    assert len(billing.messages) == 20 - SETTLED - 1
    process.clock.now_ns += 10 * SECOND_NS
    process.turn()
    assert len(billing.messages) == 20 - SETTLED
    assert billing.messages[-1][1] == 2
    process.clock.now_ns += 10 * SECOND_NS
    process.turn()
    bodies = [message.body for message, _attempts in billing.messages]
    assert bodies[-1] == b"later"
    assert len(set(bodies)) == len(bodies)
    assert set(bodies) < {*ORDERS, b"later"}
    ((rich, _attempts),) = process.consume("rich", "g", 1).messages
    assert rich == RICH
    process.session.pause_topic("backlog", paused=False)
    assert [message.body for message, _attempts in process.consume("backlog", "g", 5).messages] == [b"waits", b"second life"]
    process.stop()


@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: folder.name)
def test_a_folder_that_was_taken_over_says_so_to_earlier_versions(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "data")
    assert (tmp_path / "data" / "FORMAT").read_text() == f"polymq data folder, {folder.name.replace('-', ' ')}\n"
    Process(tmp_path / "data").store.close(clean=False)
    assert (tmp_path / "data" / "FORMAT").read_bytes() == FORMAT
