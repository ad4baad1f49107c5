"""The port to background work: jobs that may block (sync, read-ahead, zeroing) run elsewhere, their ends come back.

A job touches nothing that the loop's thread owns: it gets values, opens files by path, and returns values. `done` runs
on the loop's thread, inside `run_completions`, so it may touch everything. Three implementations: threads, inline for
tests and tools, and the simulator's, which lets a job's end come whenever the seed says.
"""

from __future__ import annotations

import enum
import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["InlineWorker", "Lane", "ThreadWorker", "Worker"]


class Lane(enum.Enum):
    """Which queue a job waits in: jobs of one lane run in order, those of different lanes do not hold each other up."""

    SYNC = "sync"
    READ = "read"
    PREPARE = "prepare"


class Worker(Protocol):
    """Runs jobs somewhere else."""

    def submit(self, job: Callable[[], object], done: Callable[[object], None], *, lane: Lane = Lane.SYNC) -> None:
        """Run `job` elsewhere, then call `done` with its result, or with the exception that it raised."""

    def run_completions(self) -> int:
        """Call `done` for every job that has ended; return how many there were."""

    def drain(self) -> None:
        """Wait until no job is left, and run the completions, those of jobs that completions submit included."""

    def close(self) -> None:
        """Wait for the job that each lane is at, forget the others, run no completion."""


def _run(job: Callable[[], object]) -> object:
    """Run a job; an exception is a result, too: it belongs to whoever submitted it."""
    try:
        return job()
    except Exception as error:  # handed to `done`, which translates it
        return error


class InlineWorker:
    """Runs a job at the moment it is submitted; its completion waits for `run_completions` as everywhere."""

    def __init__(self) -> None:
        self._ended: deque[tuple[Callable[[object], None], object]] = deque()

    def submit(self, job: Callable[[], object], done: Callable[[object], None], *, lane: Lane = Lane.SYNC) -> None:
        """See `Worker`."""
        self._ended.append((done, _run(job)))

    def run_completions(self) -> int:
        """See `Worker`."""
        count = len(self._ended)
        for _ in range(count):
            done, result = self._ended.popleft()
            done(result)
        return count

    def drain(self) -> None:
        """See `Worker`."""
        while self.run_completions():
            pass

    def close(self) -> None:
        """See `Worker`."""
        self._ended.clear()


class ThreadWorker:
    """One thread per lane, started when the lane gets its first job.

    `wake_up` is called from those threads whenever a job has ended: it must be safe to call from anywhere (an event
    loop's `call_soon_threadsafe`, a byte into a pipe) and cheap; the loop's thread then calls `run_completions`.
    """

    def __init__(self, wake_up: Callable[[], object]) -> None:
        self._wake_up = wake_up
        self._lanes: dict[Lane, queue.SimpleQueue[tuple[Callable[[], object], Callable[[object], None]] | None]] = {}
        self._threads: list[threading.Thread] = []
        # deque.append and popleft are atomic: the only thing that the threads and the loop share.
        self._ended: deque[tuple[Callable[[object], None], object]] = deque()
        self._pending = 0
        self._progress = threading.Event()
        self._closing = False

    def submit(self, job: Callable[[], object], done: Callable[[object], None], *, lane: Lane = Lane.SYNC) -> None:
        """See `Worker`."""
        jobs = self._lanes.get(lane)
        if jobs is None:
            jobs = self._lanes[lane] = queue.SimpleQueue()
            thread = threading.Thread(target=self._work, args=(jobs,), name=f"polymq-{lane.value}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._pending += 1
        jobs.put((job, done))

    def _work(self, jobs: queue.SimpleQueue[tuple[Callable[[], object], Callable[[object], None]] | None]) -> None:
        """Be one lane's thread."""
        while (task := jobs.get()) is not None:
            if self._closing:
                continue
            job, done = task
            self._ended.append((done, _run(job)))
            self._progress.set()
            self._wake_up()

    def run_completions(self) -> int:
        """See `Worker`."""
        count = 0
        while self._ended:
            done, result = self._ended.popleft()
            self._pending -= 1
            count += 1
            done(result)
        return count

    def drain(self) -> None:
        """See `Worker`."""
        while self._pending:
            # Cleared before looking: a job that ends in between sets it again.
            self._progress.clear()
            if not self.run_completions():
                self._progress.wait()

    def close(self) -> None:
        """See `Worker`."""
        self._closing = True
        for jobs in self._lanes.values():
            jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._ended.clear()
        self._pending = 0
