from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polymq.gateways.rocketmq.jobs import Jobs
from polymq.rocketmq_limits import JOBS_NS_PER_TURN_MAX, JOBS_PER_CONNECTION_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

PER_TURN = 4


class Clock:
    """Time, in which each step takes a part of what there is in a turn."""

    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


class Client:
    """As much of a connection as jobs look at."""

    def __init__(self) -> None:
        self.is_full = self.is_spent = False
        self.gone = False

    def carry_on(self, step: Callable[[], bool]) -> bool:
        return step()


class Job:
    def __init__(self, client: Any, steps: int, clock: Clock | None = None) -> None:
        self.client = client
        self.left = steps
        self.waits = False
        self.clock = clock

    def step(self) -> bool:
        if self.clock is not None:
            self.clock.now_ns += JOBS_NS_PER_TURN_MAX // PER_TURN
        if not self.waits:
            self.left -= 1
        return self.left <= 0


def made_jobs() -> Jobs:
    return Jobs(Clock().monotonic_ns)


def test_a_job_of_one_step_is_done_at_once() -> None:
    jobs = made_jobs()
    assert jobs.begin(Job(Client(), 1))
    assert len(jobs) == 0


def test_as_many_steps_a_turn_as_there_is_time_for_and_everybody_in_turn() -> None:
    clock, client = Clock(), Client()
    jobs = Jobs(clock.monotonic_ns)
    made = [Job(client, 3, clock) for _ in range(2 * PER_TURN)]
    assert all(jobs.begin(job) for job in made)
    assert jobs.is_busy
    jobs.show()
    assert [job.left for job in made] == [1] * PER_TURN + [2] * PER_TURN
    jobs.show()
    assert {job.left for job in made} == {1}
    jobs.show()
    jobs.show()
    assert len(jobs) == 0
    assert not jobs.is_busy


def test_what_is_too_much_costs_no_step() -> None:
    jobs, client = made_jobs(), Client()
    assert all(jobs.begin(Job(client, 2)) for _ in range(JOBS_PER_CONNECTION_MAX))
    late = Job(client, 2)
    assert not jobs.begin(late)
    assert late.left == 2


def test_who_has_had_enough_begins_later() -> None:
    jobs, client = made_jobs(), Client()
    client.is_spent = True
    job = Job(client, 1)
    assert jobs.begin(job)
    assert (job.left, len(jobs)) == (1, 1)
    jobs.show()
    assert (job.left, len(jobs)) == (0, 0)


def test_who_waits_for_the_disk_or_for_room_makes_nobody_busy() -> None:
    jobs = made_jobs()
    waiting, full = Job(Client(), 3), Job(Client(), 3)
    assert jobs.begin(waiting)
    assert jobs.begin(full)
    waiting.waits = full.client.is_full = True
    assert not jobs.is_busy
    jobs.show()
    assert (waiting.left, full.left) == (2, 2)
    waiting.waits = full.client.is_full = False
    jobs.show()
    assert (waiting.left, full.left) == (1, 1)


def test_jobs_end_with_their_connection() -> None:
    jobs, client, other = made_jobs(), Client(), Client()
    mine, theirs = Job(client, 3), Job(other, 3)
    jobs.begin(mine)
    jobs.begin(theirs)
    client.gone = True
    jobs.drop(client)  # type: ignore[arg-type]
    assert len(jobs) == 1
    jobs.show()
    assert (mine.left, theirs.left) == (2, 1)
