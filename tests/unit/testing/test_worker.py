"""Tests of the worker without threads: order, moments, exceptions, and the end."""

from collections.abc import Callable

import pytest

from polymq.store.workers import Lane
from polymq.testing.clock import FakeClock
from polymq.testing.disk import SimulatedKill
from polymq.testing.worker import FakeWorker

SLOW_NS = 1_000_000


def test_without_delays_a_job_runs_and_ends_at_the_next_poll() -> None:
    worker, ended = FakeWorker(FakeClock()), list[object]()
    worker.submit(lambda: 7, ended.append)
    assert ended == []
    assert worker.run_completions() == 1
    assert ended == [7]


def test_an_exception_is_a_result() -> None:
    worker, ended = FakeWorker(FakeClock()), list[object]()
    worker.submit(lambda: 1 // 0, ended.append)
    worker.run_completions()
    assert isinstance(ended[0], ZeroDivisionError)


def test_a_kill_is_not() -> None:
    def die() -> None:
        raise SimulatedKill

    worker = FakeWorker(FakeClock())
    worker.submit(die, lambda _: None)
    with pytest.raises(SimulatedKill):
        worker.run()


@pytest.mark.parametrize("seed", range(10))
def test_jobs_of_a_lane_run_and_end_in_order_each_at_its_moment(seed: int) -> None:
    clock = FakeClock()
    worker = FakeWorker(clock, seed, delay_ns_max=SLOW_NS)
    events: list[tuple[str, int, int]] = []

    def note(kind: str, number: int) -> Callable[..., None]:
        return lambda *_: events.append((kind, number, clock.monotonic_ns()))

    for number in range(5):
        worker.submit(note("run", number), note("end", number))
    while (at_ns := worker.wakes_at_ns) is not None:
        clock.advance_to(at_ns)
        worker.run()
        if worker.ended:
            worker.run_completions()
    assert [number for kind, number, _ in events if kind == "run"] == list(range(5))
    assert [number for kind, number, _ in events if kind == "end"] == list(range(5))
    moments = {(kind, number): at_ns for kind, number, at_ns in events}
    assert any(moments["run", number] < moments["end", number] for number in range(5))


def test_lanes_do_not_wait_for_each_other() -> None:
    clock = FakeClock()
    worker, ended = FakeWorker(clock, 3, delay_ns_max=SLOW_NS), list[str]()
    for _ in range(20):
        worker.submit(lambda: None, lambda _: ended.append("sync"), lane=Lane.SYNC)
    worker.submit(lambda: None, lambda _: ended.append("read"), lane=Lane.READ)
    clock.advance(2 * SLOW_NS)
    worker.run_completions()
    assert "read" in ended
    assert len(ended) < 21


def test_drain_lets_time_pass_until_nothing_is_left() -> None:
    clock = FakeClock()
    before_ns = clock.monotonic_ns()
    worker, ended = FakeWorker(clock, 3, delay_ns_max=SLOW_NS), list[int]()

    def chain(_: object) -> None:
        ended.append(1)
        if len(ended) < 3:
            worker.submit(lambda: None, chain)

    worker.submit(lambda: None, chain)
    worker.drain()
    assert len(ended) == 3
    assert clock.monotonic_ns() > before_ns


def test_close_forgets_what_has_not_begun() -> None:
    ran: list[int] = []
    worker = FakeWorker(FakeClock())
    worker.submit(lambda: ran.append(1), lambda _: ran.append(2))
    worker.submit(lambda: ran.append(3), lambda _: ran.append(4))
    worker.close()
    assert worker.run_completions() == 0
    assert ran == [1]
