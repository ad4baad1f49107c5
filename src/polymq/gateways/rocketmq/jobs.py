"""What takes more than one turn, because it is much or because the disk has to be read: done in steps, a few in each turn.

A job belongs to a connection and ends with it. The broker calls `show` in each turn, behind the commit.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from polymq.rocketmq_limits import JOBS_MAX, JOBS_NS_PER_TURN_MAX, JOBS_PER_CONNECTION_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.rocketmq.client import RocketmqClient

__all__ = ["Job", "Jobs"]

log = logging.getLogger(__name__)


class Job(Protocol):
    """Something that goes on by a step at a time."""

    @property
    def client(self) -> RocketmqClient: ...
    @property
    def waits(self) -> bool:
        """Whether the last step has found that the disk has to be read: the next turn with news tries again."""

    def step(self) -> bool:
        """Do some of it; True when it is done."""


class Jobs:
    """The jobs of all connections, in turn; a feeder."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._jobs: dict[Job, None] = {}
        self._counts: dict[RocketmqClient, int] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def is_busy(self) -> bool:
        """Whether some job could go on at once."""
        return any(not job.waits and not job.client.is_full for job in self._jobs)

    def begin(self, job: Job) -> bool:
        """Take a job on, and do its first step if its connection has not had enough yet; False if there are too many."""
        count = self._counts.get(job.client, 0)
        if len(self._jobs) >= JOBS_MAX or count >= JOBS_PER_CONNECTION_MAX:
            return False
        if job.client.is_spent or not job.step():
            self._jobs[job] = None
            self._counts[job.client] = count + 1
        return True

    def drop(self, client: RocketmqClient) -> None:
        """Forget the jobs of a connection that has ended."""
        if self._counts.pop(client, 0):
            for job in [job for job in self._jobs if job.client is client]:
                del self._jobs[job]

    def note(self) -> None:
        """Nothing that is appended concerns a job."""

    def show(self) -> None:
        """Let each job do a step, as long as there is time; who had none comes first in the next turn."""
        ends_ns = self._monotonic_ns() + JOBS_NS_PER_TURN_MAX
        for job in list(self._jobs):
            if job.client.is_full or job not in self._jobs:
                continue
            del self._jobs[job]
            if job.client.carry_on(job.step):
                self._forget(job)
            elif not job.client.gone:
                self._jobs[job] = None
            if self._monotonic_ns() >= ends_ns:
                return

    def _forget(self, job: Job) -> None:
        count = self._counts.get(job.client, 0) - 1
        if count > 0:
            self._counts[job.client] = count
        else:
            self._counts.pop(job.client, None)
