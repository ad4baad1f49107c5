"""Runs are read by their columns, in both builds, and the order of one queue's is made once."""

from __future__ import annotations

from array import array

import pytest

from polymq.protocols.rocketmq import sends
from polymq.rocketmq_limits import SENDS_PER_FEED_MAX
from tests.unit.protocols.nsq.streams import interpreted

plain = interpreted("polymq.protocols.rocketmq.sends")
both = pytest.mark.parametrize("module", [sends, plain], ids=["as built", "interpreted"])
NAMES = ("OPAQUE", "FLAGS", "TOPIC", "QUEUE_ID", "BODY_AT", "BODY_SIZE", "EXTRA_AT", "EXTRA_SIZE", "GENERIC_SIZE", "QUEUES")


@both
def test_rows_are_read_by_their_columns(module: object) -> None:
    assert [getattr(module, name) for name in NAMES] == list(range(sends.COLUMNS))
    rows = memoryview(array("i", [0] * sends.COLUMNS + [9, 1, 1, 3, 1, 4, 2, 2, 0, 6]))
    view, extras, topics = memoryview(b"-body"), memoryview(bytearray(b"--xy")), ["T", "U"]
    for run in (
        module.Sends(view, rows, extras, topics, first=1, count=1, size_bytes=23),  # type: ignore[attr-defined]
        module.run_of(view, rows, extras, topics, view, rows, extras, 1, 1, 23),  # type: ignore[attr-defined]
    ):
        assert (run.first, run.count, run.size_bytes) == (1, 1, 23)
        assert (run.topic(1), run.number(1, sends.QUEUE_ID), run.body(1), run.extra(1)) == ("U", 3, b"body", b"xy")
        assert run.number(1, sends.QUEUES) == 6
        assert list(run.numbers) == list(rows)


@both
def test_orders(module: object) -> None:
    orders = module.Orders()  # type: ignore[attr-defined]
    assert list(orders.view) == list(range(SENDS_PER_FEED_MAX))
    assert list(orders.numbers_of(orders.view)[:3]) == [0, 1, 2]
    assert list(orders.numbers_of(memoryview(array("i", [7, 5])))) == [7, 5]
