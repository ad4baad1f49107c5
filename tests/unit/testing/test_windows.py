"""Tests of what is known of windows: a dispatch that needs a free slot confirms a settle, and what is confirmed stays settled."""

import pytest

from polymq.testing.clock import FakeClock
from polymq.testing.copies import Copies
from polymq.testing.ledger import Ledger
from polymq.testing.promises import PromiseBrokenError
from polymq.testing.windows import Settle, Window, Windows

SECOND = 1_000_000_000


def body(serial: int) -> bytes:
    return b"%08d" % serial


def message_id(serial: int) -> bytes:
    return b"%032x" % serial


class Stage:
    """Nine messages in the queue `q`, and consumers with windows. The first process has run for 10 s."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ledger = Ledger(self.clock)
        self.ledger.started()
        self.clock.advance(10 * SECOND)
        self.windows = Windows(self.ledger, Copies(self.ledger))
        for publication in self.ledger.announces("sender", "q", [(serial, body(serial)) for serial in range(1, 10)]):
            self.ledger.acknowledged(publication)

    def consumer(self, size: int = 2, name: str = "taker") -> Window:
        return self.windows.consumes(name, "q", size)

    def dispatch(self, window: Window, *serials: int, lifetime_s: int | None = None, copy: int | None = None) -> None:
        for serial in serials:
            found = message_id(serial if copy is None else copy)
            self.windows.dispatched(window, found, self.ledger.publications[serial], lifetime_s)

    def settle(self, window: Window, serial: int, how: Settle = Settle.DONE, *, lifetime_s: int = 0) -> None:
        self.windows.settles(window, message_id(serial), how, lifetime_s=lifetime_s)

    def kill(self, *windows: Window, power_loss: bool = False) -> None:
        for window in windows:
            self.windows.ended(window)
        self.windows.stopped()
        self.ledger.stopped()
        if power_loss:
            self.windows.power_lost(self.ledger.power_lost())
        self.ledger.started()

    def owed(self) -> list[int]:
        return [each.serial for each in self.windows.owed("q")]


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.mark.parametrize("how", [Settle.DONE, Settle.DEAD])
def test_what_is_settled_and_confirmed_may_not_come_back(stage: Stage, how: Settle) -> None:
    first = stage.consumer()
    stage.dispatch(first, 1, 2)
    stage.settle(first, 1, how)
    stage.dispatch(first, 3)  # in the slot of the first
    assert stage.windows.settled == 1
    stage.kill(first)
    with pytest.raises(PromiseBrokenError, match="message 1 of q was settled and came back"):
        stage.dispatch(stage.consumer(), 1)


def test_what_is_settled_and_not_confirmed_may_come_back(stage: Stage) -> None:
    first = stage.consumer()
    stage.dispatch(first, 1)
    stage.settle(first, 1)
    assert 1 not in stage.owed()
    stage.dispatch(first, 2)  # in the slot that was free anyway
    stage.kill(first)
    stage.dispatch(stage.consumer(), 1)
    assert 1 in stage.owed()


def test_settles_are_confirmed_in_their_order(stage: Stage) -> None:
    first = stage.consumer()
    stage.dispatch(first, 1, 2)
    stage.settle(first, 2)
    stage.settle(first, 1)
    stage.dispatch(first, 3)
    stage.kill(first)
    second = stage.consumer()
    stage.dispatch(second, 1)
    with pytest.raises(PromiseBrokenError, match="message 2 of q was settled"):
        stage.dispatch(second, 2)


def test_more_than_the_window_is_noticed(stage: Stage) -> None:
    first = stage.consumer()
    with pytest.raises(PromiseBrokenError, match="has 3 messages of a window of 2"):
        stage.dispatch(first, 1, 2, 3)


def test_a_message_that_somebody_has_may_not_come_to_another(stage: Stage) -> None:
    first, second = stage.consumer(name="first"), stage.consumer(name="second")
    stage.dispatch(first, 1)
    with pytest.raises(PromiseBrokenError, match="came to second while first has it"):
        stage.dispatch(second, 1)
    stage.windows.ended(first)
    stage.dispatch(second, 1)


def test_a_message_put_back_must_come_again(stage: Stage) -> None:
    first = stage.consumer()
    stage.dispatch(first, *range(1, 3))
    stage.settle(first, 1)
    stage.settle(first, 2, Settle.AGAIN)
    assert stage.owed() == list(range(2, 10))
    stage.dispatch(first, 2, copy=100)
    stage.windows.settles(first, message_id(100), Settle.DONE)
    assert stage.owed() == list(range(3, 10))


def test_a_message_put_back_makes_one_settle_less_certain(stage: Stage) -> None:
    first = stage.consumer()
    stage.dispatch(first, 1, 2)
    stage.settle(first, 1)
    stage.settle(first, 2, Settle.AGAIN)
    stage.dispatch(first, 3)
    assert stage.windows.settled == 0
    stage.dispatch(first, 4)
    assert stage.windows.settled == 1


def test_nothing_is_counted_after_a_second_request(stage: Stage) -> None:
    first = stage.consumer()
    stage.dispatch(first, 1, 2)
    stage.windows.consumes_anew(first, 1)
    stage.dispatch(first, 1, 2, 3, 4)
    assert not first.held
    assert stage.windows.settled == 0


def test_what_a_process_sent_that_is_gone_counts_for_nothing(stage: Stage) -> None:
    first = stage.consumer(size=1)
    stage.windows.stopped()
    stage.ledger.stopped()
    stage.dispatch(first, 1, 2)
    assert not first.held


@pytest.mark.parametrize(("given", "waited_s", "shown"), [(60, 0, 60), (60, 10, 50), (60, 10, 60), (0, 10, 0)])
def test_a_lifetime_counts_down(stage: Stage, given: int, waited_s: int, shown: int) -> None:
    stage.windows.lives(1, given)
    stage.clock.advance(waited_s * SECOND)
    stage.dispatch(stage.consumer(), 1, lifetime_s=shown)


@pytest.mark.parametrize("shown", [0, 60])
def test_a_message_put_back_has_its_old_lifetime_or_the_new_one(stage: Stage, shown: int) -> None:
    first = stage.consumer()
    stage.dispatch(first, 1)
    stage.settle(first, 1, Settle.AGAIN, lifetime_s=60)
    stage.dispatch(first, 1, copy=100, lifetime_s=shown)


@pytest.mark.parametrize(("given", "waited_s", "shown"), [(60, 10, 49), (60, 0, 62), (60, 0, 0), (0, 0, 60)])
def test_a_wrong_lifetime_is_noticed(stage: Stage, given: int, waited_s: int, shown: int) -> None:
    stage.windows.lives(1, given)
    stage.clock.advance(waited_s * SECOND)
    with pytest.raises(PromiseBrokenError, match="s to live, and was given"):
        stage.dispatch(stage.consumer(), 1, lifetime_s=shown)


def test_what_has_ended_is_not_owed(stage: Stage) -> None:
    stage.windows.lives(1, 10)
    assert 1 in stage.owed()
    stage.clock.advance(10 * SECOND)
    assert 1 not in stage.owed()


def test_a_loss_of_power_takes_only_what_was_not_synced(stage: Stage) -> None:
    first = stage.consumer(size=1)
    stage.dispatch(first, 1)
    stage.settle(first, 1)
    stage.dispatch(first, 2)
    stage.clock.advance(3 * SECOND)
    stage.settle(first, 2)
    stage.dispatch(first, 3)
    stage.kill(first, power_loss=True)
    second = stage.consumer()
    stage.dispatch(second, 2)
    with pytest.raises(PromiseBrokenError, match="message 1 of q was settled"):
        stage.dispatch(second, 1)


@pytest.mark.parametrize(("given", "most"), [((), 1), ((0, 60), 1), ((60,), 1), ((60, 2, 3600), 3)])
def test_who_puts_back_for_longer_has_it_shown_again(stage: Stage, given: tuple[int, ...], most: int) -> None:
    for lifetime_s in given:
        stage.windows.lives(1, lifetime_s)
    assert stage.windows.shown_max(1) == most
