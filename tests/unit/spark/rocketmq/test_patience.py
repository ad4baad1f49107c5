"""How long what fails is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.errors import ConnectFailed, Refusal, RefusalCode
from polymq.spark.losses import DataLoss
from polymq.spark.rocketmq import patience
from polymq.spark.rocketmq.options import Options
from polymq.spark.rocketmq.patience import Patience, client_of, is_for_good, report_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE = {"namesrvAddr": "127.0.0.1:1", "subscribe": "orders"}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    before = dict(patience._clients)
    yield
    patience._clients.clear()
    patience._clients.update(before)


def made(seconds: float) -> tuple[Patience, list[float]]:
    slept: list[float] = []
    return Patience(seconds, slept.append, lambda: sum(slept)), slept


def test_work_is_done_again_until_it_works() -> None:
    each, slept = made(4.0)
    failures = [ConnectFailed("a"), Refusal(RefusalCode.LIMIT_REACHED), None]

    def work() -> int:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        return 7

    assert each.until_done(work) == 7
    assert len(slept) == 2


@pytest.mark.parametrize(
    "code", [RefusalCode.FORBIDDEN, RefusalCode.UNAUTHENTICATED, RefusalCode.TOPIC_NOT_FOUND, RefusalCode.GROUP_NOT_FOUND]
)
def test_what_will_never_work_is_not_tried_again(code: RefusalCode) -> None:
    each, slept = made(4.0)

    def work() -> None:
        raise Refusal(code)

    with pytest.raises(Refusal):
        each.until_done(work)
    assert slept == []
    assert not is_for_good(ConnectFailed("x"))


def test_losses_fail_or_warn() -> None:
    with pytest.raises(DataLoss, match="set failOnDataLoss to false"):
        report_loss("orders are gone", Options.parse(BASE, streaming=True))
    with pytest.warns(RuntimeWarning, match="orders are gone"):
        report_loss("orders are gone", Options.parse(BASE | {"failOnDataLoss": "false"}, streaming=True))


def test_a_process_has_one_client_for_each_way_to_a_server() -> None:
    first = client_of(Options.parse(BASE, streaming=True))
    assert client_of(Options.parse(BASE | {"startingOffsets": "earliest"}, streaming=True)) is first
    assert client_of(Options.parse(BASE | {"group": "other"}, streaming=True)) is not first
