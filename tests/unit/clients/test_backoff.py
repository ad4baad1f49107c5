from __future__ import annotations

import pytest

from polymq.clients.backoff import Backoff


def test_waits_double_up_to_the_largest_and_begin_again() -> None:
    backoff = Backoff(1.0, 5.0, lambda: 0.5)
    assert [backoff.next_seconds() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.succeeded()
    assert backoff.next_seconds() == 1


def test_jitter_spreads_half_to_one_and_a_half() -> None:
    assert Backoff(2.0, 2.0, lambda: 0.0).next_seconds() == 1
    assert Backoff(2.0, 2.0, lambda: 0.999).next_seconds() == pytest.approx(2.998)


@pytest.mark.parametrize("waits", [(0, 1), (2, 1)])
def test_waits_make_sense(waits: tuple[float, float]) -> None:
    with pytest.raises(AssertionError):
        Backoff(*waits, lambda: 0.5)
