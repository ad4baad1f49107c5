"""Tests of the clock that moves when it is told to."""

import pytest

from polymq.testing.clock import FakeClock


def test_both_clocks_advance_together() -> None:
    clock = FakeClock(monotonic_ns=5, wall_ns=100)
    clock.advance(7)
    assert (clock.monotonic_ns(), clock.wall_ns()) == (12, 107)


def test_advance_to_never_goes_back() -> None:
    clock = FakeClock(monotonic_ns=50, wall_ns=100)
    clock.advance_to(40)
    clock.advance_to(60)
    assert (clock.monotonic_ns(), clock.wall_ns()) == (60, 110)


def test_only_the_wall_clock_can_be_set() -> None:
    clock = FakeClock(monotonic_ns=50, wall_ns=100)
    clock.step_wall(-30)
    assert (clock.monotonic_ns(), clock.wall_ns()) == (50, 70)


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(AssertionError):
        FakeClock().advance(-1)
