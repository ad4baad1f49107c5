"""Background work: jobs run in a few threads, their results come back in a turn of the broker's own thread.

For what blocks: syncs, reads from the disk, zeroing the next segment. Nothing else in the server has threads.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ThreadWorker"]

# A sync may take long; reads of old data and the zeroing of segments must not queue behind it.
_THREADS: Final = 4


class ThreadWorker:
    """The `Worker` port over threads. `fileno()` becomes readable when results wait; `drain()` hands them out."""

    def __init__(self, *, threads: int = _THREADS) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], object], Callable[[object], None]] | None] = queue.SimpleQueue()
        self._results: deque[tuple[Callable[[object], None], object]] = deque()  # append and popleft are atomic
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._threads = [threading.Thread(target=self._run, name=f"worker-{i}", daemon=True) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def fileno(self) -> int:
        """Return the descriptor that tells of results, for the poller."""
        return self._event

    def submit(self, job: Callable[[], object], done: Callable[[object], None]) -> None:
        """Run `job()` in a thread, then have `drain()` call `done` with its result or its exception."""
        self._jobs.put((job, done))

    def drain(self) -> None:
        """Hand out the results that have come in."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return
        while self._results:
            done, result = self._results.popleft()
            done(result)

    def close(self) -> None:
        """Wait for the jobs that were submitted; their results are handed out by one more `drain()`, here."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self.drain()
        os.close(self._event)

    def _run(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done = entry
            try:
                result = job()
            except Exception as error:  # whatever it is, it belongs to whoever submitted the job
                result = error
            self._results.append((done, result))
            os.eventfd_write(self._event, 1)
