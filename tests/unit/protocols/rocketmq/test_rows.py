"""The shared room grows without moving what was handed out, and does not stay large."""

from __future__ import annotations

import pytest

from polymq.protocols.rocketmq import rows
from polymq.protocols.rocketmq.events import COLUMNS
from polymq.protocols.rocketmq.rows import EXTRAS_KEPT_SIZE_BYTES_MAX
from tests.unit.protocols.nsq.streams import interpreted

plain = interpreted("polymq.protocols.rocketmq.rows")
both = pytest.mark.parametrize("module", [rows, plain], ids=["as built", "interpreted"])


@both
def test_rows_grow(module: object) -> None:
    room = module.Rows()  # type: ignore[attr-defined]
    first = room.numbers_view
    capacity = room.capacity
    assert len(first) == COLUMNS * capacity
    first[0], first[COLUMNS * capacity - 1] = 7, 9
    room.reserve_rows(capacity - 1)
    assert room.numbers_view is first
    room.reserve_rows(capacity)
    assert room.capacity > capacity
    assert (room.numbers_view[0], room.numbers_view[COLUMNS * capacity - 1]) == (7, 9)
    assert first[0] == 7


@both
def test_extras_grow_and_shrink(module: object) -> None:
    room = module.Rows()  # type: ignore[attr-defined]
    first = room.extras_view
    first[0] = 5
    room.reserve_extras(1, len(first) - 1)
    assert room.extras_view is first
    room.reserve_extras(1, 2 * EXTRAS_KEPT_SIZE_BYTES_MAX)
    assert room.room >= 2 * EXTRAS_KEPT_SIZE_BYTES_MAX
    assert room.extras_view[0] == 5
    room.start()
    assert room.room < EXTRAS_KEPT_SIZE_BYTES_MAX
