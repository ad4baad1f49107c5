from __future__ import annotations

from typing import Any

import pytest

from polymq.protocols.nats import rows
from polymq.wire.live import COLUMNS
from tests.unit.protocols.nsq.streams import interpreted

plain = interpreted("polymq.protocols.nats.rows")


@pytest.mark.parametrize("module", [rows, plain])
def test_growing_keeps_what_is_used_and_what_was_handed_out(module: Any) -> None:
    room = module.Rows()
    first = room.capacity
    before = room.view
    room.numbers[COLUMNS * 2 - 1] = 7
    room.numbers[COLUMNS * 2] = 8
    room.grow(2)
    assert room.capacity == 2 * first
    assert len(room.view) == 2 * first * COLUMNS
    assert (room.view[COLUMNS * 2 - 1], room.view[COLUMNS * 2]) == (7, 0)
    room.numbers[0] = 9
    assert (before[0], before[COLUMNS * 2]) == (0, 8)


def test_a_huge_feed_does_not_keep_its_room() -> None:
    room = rows.Rows()
    first = room.capacity
    room.allocate(rows.CAPACITY_KEPT_MAX)
    room.start()
    assert room.capacity == rows.CAPACITY_KEPT_MAX
    room.allocate(rows.CAPACITY_KEPT_MAX + 1)
    room.start()
    assert room.capacity == first


def test_the_decoders_share_one() -> None:
    assert isinstance(rows.ROWS, rows.Rows)
