"""The thread that receives inside a query's own process: for small use, one life with the query. Read next: `polymq/spool/spooler.py`."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from polymq.errors import PolyMQError, StoreFailed
from polymq.spool.spooler import Spooler

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.spark.spooled.options import Options

__all__ = ["Receiving"]

_POLL_SECONDS: Final = 0.02
_STOP_SECONDS_MAX: Final = 20.0
# For the lock of a query that has just been stopped, and for the newest file to be looked at, and written anew after a crash.
_START_SECONDS_MAX: Final = 60.0


class Receiving:
    """Starts a spooler in a thread of this process when it is first asked for, and says what became of it.

    Spark ends the process without a word when the query is stopped; the spool's lock goes with it, and what was not
    acknowledged comes again.
    """

    def __init__(
        self,
        options: Options,
        *,
        spooler: Callable[..., Any] = Spooler,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        assert options.feed is not None
        self._options = options
        self._make = spooler
        self._sleep = sleep
        self._monotonic = monotonic
        self._spooler: Spooler | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def ensure(self) -> None:
        """Have it running, and the spool recovered: from then on its files say all that is durable. Raises what it ended with."""
        self.check()
        if self._thread is None:
            self._spooler = self._make(self._options.location, self._options.feed, self._options.settings)
            self._thread = threading.Thread(target=self._run, args=(self._spooler,), name="polymq spooler", daemon=True)
            self._thread.start()
        self._wait_for_recovery()

    def _wait_for_recovery(self) -> None:
        assert self._spooler is not None
        deadline = self._monotonic() + _START_SECONDS_MAX
        while not self._spooler.report.is_recovered:
            if self._failure is not None:
                raise self._failure
            if self._monotonic() >= deadline:
                raise StoreFailed(f"the spool in {self._options.location} could not be looked at within {_START_SECONDS_MAX:.0f} s")
            self._sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise what the spooler ended with, if it has."""
        if self._failure is not None:
            raise StoreFailed(f"receiving has ended: {self._failure}") from self._failure

    def drain(self) -> None:
        """Receive until the broker has given nothing for the wanted pause, or for as long as is allowed; then receive no more."""
        self.ensure()
        assert self._spooler is not None
        deadline = self._monotonic() + self._options.drain_seconds_max
        while self._monotonic() < deadline:
            self.check()
            quiet = self._spooler.report.quiet_since
            if quiet is not None and self._monotonic() - quiet >= self._options.pause_seconds:
                break
            self._sleep(_POLL_SECONDS)
        self._stop()
        self.check()

    def _stop(self) -> None:
        assert self._spooler is not None
        assert self._thread is not None
        self._spooler.stop()
        self._thread.join(_STOP_SECONDS_MAX)

    def _run(self, spooler: Spooler) -> None:
        try:
            spooler.run_in_thread()
        except PolyMQError as error:
            self._failure = error
        except BaseException as error:
            self._failure = error
            raise
