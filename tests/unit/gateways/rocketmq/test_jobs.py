from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polymq.gateways.rocketmq.jobs import Jobs
from polymq.rocketmq_limits import JOB_STEPS_PER_TURN_MAX

if TYPE_CHECKING:
    from collections.abc import Callable


class Client:
    """As much of a connection as jobs look at."""

    def __init__(self) -> None:
        self.is_full = False
        self.gone = False

    def carry_on(self, step: Callable[[], bool]) -> bool:
        return step()


class Job:
    def __init__(self, client: Any, steps: int) -> None:
        self.client = client
        self.left = steps
        self.waits = False

    def step(self) -> bool:
        if not self.waits:
            self.left -= 1
        return self.left <= 0


def test_a_job_of_one_step_is_done_at_once() -> None:
    jobs = Jobs()
    assert jobs.begin(Job(Client(), 1))
    assert len(jobs) == 0


def test_so_many_steps_a_turn_and_everybody_in_turn() -> None:
    jobs, client = Jobs(), Client()
    made = [Job(client, 3) for _ in range(2 * JOB_STEPS_PER_TURN_MAX)]
    assert all(jobs.begin(job) for job in made)
    assert jobs.is_busy
    jobs.show()
    assert [job.left for job in made] == [1] * JOB_STEPS_PER_TURN_MAX + [2] * JOB_STEPS_PER_TURN_MAX
    jobs.show()
    assert {job.left for job in made} == {1}
    jobs.show()
    jobs.show()
    assert len(jobs) == 0
    assert not jobs.is_busy


def test_who_waits_for_the_disk_or_for_room_makes_nobody_busy() -> None:
    jobs = Jobs()
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
    jobs, client, other = Jobs(), Client(), Client()
    mine, theirs = Job(client, 3), Job(other, 3)
    jobs.begin(mine)
    jobs.begin(theirs)
    client.gone = True
    jobs.drop(client)  # type: ignore[arg-type]
    assert len(jobs) == 1
    jobs.show()
    assert (mine.left, theirs.left) == (2, 1)
