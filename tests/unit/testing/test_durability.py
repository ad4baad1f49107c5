"""Tests of what a power loss may take."""

import pytest

from polymq.limits import SYNC_INTERVAL_NS
from polymq.testing.clock import FakeClock
from polymq.testing.durability import JOURNAL, Durability, Place

LOG, SCHEDULE, OTHER = Place(0, "t"), Place(1, "t", schedule=True), Place(2, "t")
MS = 1_000_000


def durability_after(*lives_ns: int) -> tuple[FakeClock, Durability]:
    """Processes that ran for so long, one after the other; the last one runs on."""
    clock = FakeClock(monotonic_ns=1000 * SYNC_INTERVAL_NS)
    durability = Durability(clock, slack_ns=100 * MS)
    for number, life_ns in enumerate(lives_ns):
        if number:
            durability.stopped(clean=False)
        durability.started()
        clock.advance(life_ns)
    return clock, durability


def test_the_last_second_and_what_a_slow_disk_takes_longer_is_not_safe() -> None:
    clock, durability = durability_after(5 * SYNC_INTERVAL_NS)
    now_ns = clock.monotonic_ns()
    durability.stopped(clean=False)
    loss = durability.power_lost()
    assert loss.until_ns == now_ns - SYNC_INTERVAL_NS - 100 * MS
    assert loss.journal_keeps(loss.until_ns)
    assert not loss.journal_keeps(loss.until_ns + 1)
    assert not loss.log_keeps("t", 0, loss.until_ns + 1)


def test_a_process_that_ran_for_less_leaves_in_question_what_the_one_before_it_did_last() -> None:
    clock, durability = durability_after(5 * SYNC_INTERVAL_NS, SYNC_INTERVAL_NS // 2)
    first_end_ns = clock.monotonic_ns() - SYNC_INTERVAL_NS // 2
    durability.stopped(clean=False)
    assert durability.power_lost().until_ns == first_end_ns - SYNC_INTERVAL_NS - 100 * MS


def test_an_orderly_stop_makes_everything_safe() -> None:
    clock, durability = durability_after(SYNC_INTERVAL_NS)
    durability.stopped(clean=True)
    assert durability.power_lost().until_ns == clock.monotonic_ns()


@pytest.mark.parametrize("place", [LOG, SCHEDULE, JOURNAL])
def test_a_failed_sync_leaves_in_doubt_one_place_since_the_last_good_sync(place: Place) -> None:
    clock, durability = durability_after(5 * SYNC_INTERVAL_NS)
    failed_ns = clock.monotonic_ns()
    durability.failed(place, "sync")
    clock.advance(5 * SYNC_INTERVAL_NS)
    durability.stopped(clean=False)
    loss = durability.power_lost()

    def keeps(at_ns: int) -> list[bool]:
        return [
            loss.journal_keeps(at_ns),
            loss.log_keeps("t", 0, at_ns),
            loss.log_keeps("t", 2, at_ns),
            loss.log_keeps("t", None, at_ns),
            loss.log_keeps("t", None, at_ns, schedule=True),
            loss.log_keeps("other", None, at_ns),
        ]

    lost = {JOURNAL: [0], LOG: [1, 3], SCHEDULE: [4]}[place]
    expected = [index not in lost for index in range(6)]
    assert keeps(failed_ns) == keeps(failed_ns - SYNC_INTERVAL_NS) == keeps(failed_ns + 100 * MS) == expected
    assert all(keeps(failed_ns - 2 * SYNC_INTERVAL_NS))
    assert all(keeps(failed_ns + 101 * MS))


@pytest.mark.parametrize(("again", "kept"), [(None, True), ("write", False), ("sync", False)])
def test_a_later_process_writes_it_again_if_the_disk_lets_it(again: str | None, kept: bool) -> None:
    clock, durability = durability_after(5 * SYNC_INTERVAL_NS)
    promised_ns = clock.monotonic_ns()
    durability.failed(LOG, "sync")
    durability.failed(OTHER, "sync")
    durability.stopped(clean=False)
    durability.started()
    if again is not None:
        durability.failed(LOG, again)
    clock.advance(5 * SYNC_INTERVAL_NS)
    durability.stopped(clean=False)
    loss = durability.power_lost()
    assert loss.log_keeps("t", 0, promised_ns) is kept
    assert loss.log_keeps("t", 2, promised_ns)


def test_a_failed_write_leaves_in_doubt_what_the_process_before_had_not_synced() -> None:
    clock, durability = durability_after(5 * SYNC_INTERVAL_NS, 0)
    end_ns = clock.monotonic_ns()
    durability.failed(LOG, "write")
    clock.advance(5 * SYNC_INTERVAL_NS)
    durability.stopped(clean=False)
    loss = durability.power_lost()
    safe_ns = end_ns - SYNC_INTERVAL_NS - 100 * MS
    assert loss.log_keeps("t", 0, safe_ns - 1)
    assert not loss.log_keeps("t", 0, safe_ns)
    assert not loss.log_keeps("t", 0, end_ns)
    assert loss.log_keeps("t", 0, end_ns + 101 * MS)
    assert loss.log_keeps("t", 2, end_ns)


def test_a_failed_write_long_after_the_start_leaves_nothing_in_doubt() -> None:
    clock, durability = durability_after(5 * SYNC_INTERVAL_NS, 2 * SYNC_INTERVAL_NS)
    end_ns = clock.monotonic_ns()
    durability.failed(LOG, "write")
    clock.advance(5 * SYNC_INTERVAL_NS)
    durability.stopped(clean=False)
    assert durability.power_lost().log_keeps("t", 0, end_ns)
