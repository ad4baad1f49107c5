"""Losses that a query is told of, and pauses between attempts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from polymq.errors import DeadlineExceeded
from polymq.spark.losses import DataLoss, Patience, report_loss


def test_pauses_grow_until_the_time_is_over() -> None:
    slept: list[float] = []
    each = Patience(4.0, slept.append, lambda: sum(slept))
    with pytest.raises(DeadlineExceeded, match="away, after 4 s"):
        for _ in range(100):
            each.pause("away")
    assert slept == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    each.renew()
    each.pause("away")
    assert slept[-1] == 0.05


def test_a_loss_fails_a_query_unless_it_is_to_go_on() -> None:
    with pytest.raises(DataLoss, match=r"a/0 is gone\. Some records cannot be read any more; set failOnDataLoss to false"):
        report_loss("a/0 is gone", SimpleNamespace(fail_on_data_loss=True))
    with pytest.warns(RuntimeWarning, match="a/0 is gone"):
        report_loss("a/0 is gone", SimpleNamespace(fail_on_data_loss=False), "messages")
