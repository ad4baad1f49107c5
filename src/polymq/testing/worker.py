"""The worker port without threads: when a job runs, and when its end is noticed, is drawn from the seed.

Jobs of one lane run in order, lanes are independent, as with the real one. A job does its work at one moment between
its submission and its end, so what was written after that moment is not covered by a sync that ends later. Whoever
drives the run calls `run` when `wakes_at_ns` has come; `run_completions` belongs to the store.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from polymq.store.workers import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.testing.clock import FakeClock

__all__ = ["FakeWorker"]


@dataclass(slots=True)
class _Job:
    job: Callable[[], object]
    done: Callable[[object], None]
    runs_at_ns: int
    ends_at_ns: int
    ran: bool = False
    result: object = None


class FakeWorker:
    """Runs jobs on the caller's thread at moments of the seed's choice, each within `delay_ns_max` of the one before."""

    __slots__ = ("_clock", "_free_at_ns", "_lanes", "_random", "delay_ns_max")

    def __init__(self, clock: FakeClock, random: Random | int = 0, *, delay_ns_max: int = 0) -> None:
        self._clock = clock
        self._random = Random(random) if isinstance(random, int) else random
        self._lanes: dict[Lane, deque[_Job]] = {lane: deque() for lane in Lane}
        self._free_at_ns = dict.fromkeys(Lane, 0)
        self.delay_ns_max = delay_ns_max

    @property
    def wakes_at_ns(self) -> int | None:
        """When the next job runs or ends."""
        heads = [lane[0] for lane in self._lanes.values() if lane]
        return min((job.ends_at_ns if job.ran else job.runs_at_ns for job in heads), default=None)

    @property
    def ended(self) -> bool:
        """Whether `run_completions` would have something to do."""
        now_ns = self._clock.monotonic_ns()
        return any(lane[0].ends_at_ns <= now_ns for lane in self._lanes.values() if lane)

    def submit(self, job: Callable[[], object], done: Callable[[object], None], *, lane: Lane = Lane.SYNC) -> None:
        """See `store.workers.Worker`."""
        starts_at_ns = max(self._clock.monotonic_ns(), self._free_at_ns[lane])
        spans = sorted(self._random.randrange(self.delay_ns_max + 1) for _ in range(2))
        self._free_at_ns[lane] = starts_at_ns + spans[1]
        self._lanes[lane].append(_Job(job, done, starts_at_ns + spans[0], starts_at_ns + spans[1]))

    def run(self) -> None:
        """Let the jobs do their work whose moment has come."""
        now_ns = self._clock.monotonic_ns()
        for lane in self._lanes.values():
            for task in lane:
                if task.runs_at_ns > now_ns:
                    break
                if not task.ran:
                    _run(task)

    def run_completions(self) -> int:
        """See `store.workers.Worker`."""
        self.run()
        now_ns = self._clock.monotonic_ns()
        count = 0
        for lane in self._lanes.values():
            while lane and lane[0].ran and lane[0].ends_at_ns <= now_ns:
                task = lane.popleft()
                count += 1
                task.done(task.result)
        return count

    def drain(self) -> None:
        """See `store.workers.Worker`: time passes until nothing is left."""
        while any(self._lanes.values()):
            if not self.run_completions():
                at_ns = self.wakes_at_ns
                assert at_ns is not None
                self._clock.advance_to(at_ns)

    def close(self) -> None:
        """See `store.workers.Worker`: a job that has begun ends, the others never run."""
        now_ns = self._clock.monotonic_ns()
        for lane in self._lanes.values():
            if lane and not lane[0].ran and lane[0].runs_at_ns <= now_ns:
                _run(lane[0])
            lane.clear()


def _run(task: _Job) -> None:
    """Run a job; an exception is its result. A simulated kill is none: it ends the process."""
    task.ran = True
    try:
        task.result = task.job()
    except Exception as error:  # handed to `done`, as the real worker does
        task.result = error
