"""Writing to several connections at once: a second thread sends while the broker's own does, and both end together.

All of a send's time is spent in the kernel, which copies, and needs no lock of Python's. Where one read of large messages goes
to many, sending is most of the turn. The turn stays what it is: nothing else happens before all has been sent.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from polymq.server.connection import ConnectionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.server.connection import Connection
    from polymq.server.ports import Stream

__all__ = ["CREW_SIZE_BYTES_MIN", "Crew", "Job", "send_views"]

log = logging.getLogger(__name__)

# A job below this is done before another thread has woken up.
CREW_SIZE_BYTES_MIN: Final = 128 * 1024


def send_views(stream: Stream, views: Sequence[memoryview]) -> int:
    """Send one after the other until the peer takes no more; say how much that was. Raises what `send` does if it was nothing."""
    sent = 0
    for view in views:
        try:
            done = stream.send(view)
        except BlockingIOError:
            if not sent:
                raise
            break
        sent += done
        if done < len(view):
            break
    return sent


class Job:
    """What is to be sent on one connection. Afterwards `sent` says how much of it was, or `error` why nothing."""

    __slots__ = ("error", "sent", "stream", "views")

    def __init__(self, stream: Stream, views: list[memoryview]) -> None:
        self.stream = stream
        self.views = views
        self.sent = 0
        self.error: OSError | None = None

    def result(self) -> int:
        """Say how much was sent; raises what `send` has raised."""
        if self.error is not None:
            raise self.error
        return self.sent

    def run(self) -> None:
        """Send."""
        try:
            self.sent = send_views(self.stream, self.views)
        except OSError as error:
            self.error = error
        except Exception:  # whatever it is: somebody waits for the end of this
            log.exception("what was to be sent is lost: internal error")
            self.error = OSError(errno.EIO, "internal error")
        finally:
            self.views.clear()


class Crew:
    """The broker's thread and one more. The latter is started when it is first needed, and never holds up the end of the process."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._jobs: deque[Job] = deque()
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._finished: SimpleQueue[Job] = SimpleQueue()

    def send_large(self, connections: list[Connection]) -> dict[Connection, Job]:
        """Write to those for whom much waits, if they are several; say what has been done. The others are left to the caller."""
        jobs = {}
        for connection in connections:
            outbox = connection.outbox
            large = outbox.ready_size_bytes >= max(CREW_SIZE_BYTES_MIN, outbox.hold_below)
            if large and connection.wire is None and connection.state < ConnectionState.LINGERING:
                jobs[connection] = Job(connection.stream, outbox.views())
        if len(jobs) < 2:
            return {}
        self.run(list(jobs.values()))
        return jobs

    def run(self, jobs: Sequence[Job]) -> None:
        """Do all jobs, in no order; return when the last one is done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._help, name="polymq-crew", daemon=True)
            self._thread.start()
        self._jobs.extend(jobs)
        self._calls.put(None)
        helped = len(jobs)
        while (job := self._next()) is not None:
            job.run()
            helped -= 1
        for _ in range(helped):
            self._finished.get()

    def _next(self) -> Job | None:
        try:
            return self._jobs.popleft()
        except IndexError:
            return None

    def _help(self) -> None:
        while True:
            self._calls.get()
            while (job := self._next()) is not None:
                job.run()
                self._finished.put(job)
