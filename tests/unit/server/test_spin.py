from __future__ import annotations

from polymq.server.spin import SpinPolicy, SpinSettings

SETTINGS = SpinSettings(spin_ns=60_000, wake_ns=60_000)


def taught(*gaps_ns: int, slept: bool = True) -> SpinPolicy:
    policy = SpinPolicy(SETTINGS)
    for gap_ns in gaps_ns:
        policy.observe(gap_ns, spun=False, slept=slept)
    return policy


def test_it_does_not_spin_at_first() -> None:
    assert SpinPolicy(SETTINGS).budget_ns() == 0


def test_short_gaps_make_it_spin() -> None:
    assert taught(*[100_000] * 8).budget_ns() == 60_000


def test_a_gap_that_was_slept_through_includes_the_wake_up() -> None:
    assert taught(*[100_000] * 20, slept=False).budget_ns() == 0


def test_evenly_spaced_traffic_does_not_make_it_spin() -> None:
    assert taught(*[500_000] * 1000).budget_ns() == 0


def test_it_gives_up_within_a_few_misses() -> None:
    policy = taught(*[20_000] * 100)
    spins = 0
    while policy.budget_ns():
        policy.observe(500_000, spun=True, slept=True)
        spins += 1
    assert spins <= 4


def test_a_spin_that_was_followed_by_sleep_is_a_miss_however_short_the_gap() -> None:
    policy = taught(*[100_000] * 100)
    for _ in range(3):
        policy.observe(100_000, spun=True, slept=True)
    assert policy.budget_ns() == 0


def test_it_keeps_spinning_while_spins_pay() -> None:
    policy = taught(*[100_000] * 8)
    for _ in range(100):
        policy.observe(20_000, spun=True, slept=False)
        assert policy.budget_ns()


def test_a_pause_now_and_then_does_not_stop_it() -> None:
    policy = taught(*[20_000] * 100)
    for _ in range(100):
        policy.observe(10_000_000, spun=True, slept=True)
        for _ in range(9):
            assert policy.budget_ns()
            policy.observe(20_000, spun=True, slept=False)


def test_it_can_be_switched_off() -> None:
    policy = SpinPolicy(SpinSettings(spin_ns=0))
    for _ in range(100):
        policy.observe(1_000, spun=False, slept=True)
    assert policy.budget_ns() == 0
