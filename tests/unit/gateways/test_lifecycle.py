from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.gateways.effects import SetTimer, TimerName
from polymq.gateways.lifecycle import Liveness, Sign

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect


class Clock:
    now_ns = 1000

    def monotonic_ns(self) -> int:
        return self.now_ns


def started(interval_ns: int) -> tuple[Clock, Liveness, dict[TimerName, int | None]]:
    clock = Clock()
    liveness = Liveness(clock.monotonic_ns)
    effects: list[Effect] = []
    liveness.start(interval_ns, effects)
    return clock, liveness, timers(effects)


def timers(effects: list[Effect]) -> dict[TimerName, int | None]:
    assert all(isinstance(effect, SetTimer) for effect in effects)
    return {effect.name: effect.due_ns for effect in effects if isinstance(effect, SetTimer)}


def test_it_sets_both_timers() -> None:
    _, liveness, due = started(100)
    assert due == {TimerName.HEARTBEAT: 1100, TimerName.READ_DEADLINE: 1200}
    assert liveness.interval_ns == 100


def test_no_interval_means_no_timers() -> None:
    clock, liveness, due = started(0)
    assert due == {TimerName.HEARTBEAT: None, TimerName.READ_DEADLINE: None}
    clock.now_ns = 5000
    assert liveness.timer(TimerName.HEARTBEAT, []) is Sign.NOTHING
    assert liveness.timer(TimerName.READ_DEADLINE, []) is Sign.NOTHING


def test_heartbeats_do_not_drift_and_are_not_made_up_for() -> None:
    clock, liveness, _ = started(100)
    for late, expected in ((1109, 1200), (1200, 1300), (1555, 1600)):
        clock.now_ns = late
        effects: list[Effect] = []
        assert liveness.timer(TimerName.HEARTBEAT, effects) is Sign.BEAT
        assert timers(effects) == {TimerName.HEARTBEAT: expected}


def test_two_intervals_of_silence_are_too_many() -> None:
    clock, liveness, _ = started(100)
    clock.now_ns = 1150
    liveness.heard(clock.monotonic_ns())
    clock.now_ns = 1200
    effects: list[Effect] = []
    assert liveness.timer(TimerName.READ_DEADLINE, effects) is Sign.NOTHING
    assert timers(effects) == {TimerName.READ_DEADLINE: 1350}
    clock.now_ns = 1350
    assert liveness.timer(TimerName.READ_DEADLINE, []) is Sign.SILENCE


def test_other_timers_mean_nothing_here() -> None:
    _, liveness, _ = started(100)
    assert liveness.timer(TimerName.FLUSH, []) is Sign.NOTHING
