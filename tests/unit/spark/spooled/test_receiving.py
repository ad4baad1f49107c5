"""The thread that receives, over a spooler of the test's own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from polymq.errors import StoreFailed
from polymq.spark.spooled.options import Options
from polymq.spark.spooled.receiving import Receiving
from polymq.spool.report import Report
from tests.unit.spool.spools import filled

if TYPE_CHECKING:
    from pathlib import Path


class FakeSpooler:
    """Waits to be stopped, or fails."""

    failure: Exception | None = None
    recovers_at_once = True
    made = 0

    def __init__(self, _path: Path, _feed: Any, _settings: Any) -> None:
        FakeSpooler.made += 1
        self._stopped = threading.Event()
        self.report = Report("nsq", "", lambda: 0.0)
        self.report.is_recovered = FakeSpooler.recovers_at_once and FakeSpooler.failure is None

    def run_in_thread(self) -> None:
        if FakeSpooler.failure is not None:
            raise FakeSpooler.failure
        self._stopped.wait(20)

    def stop(self) -> None:
        self._stopped.set()


def receiving(path: Path, **more: Any) -> Receiving:
    given = {"servers": "h:1", "subscribe": "t", "channel": "c", "spoolLocation": str(path), "availableNowPauseMs": "1000"}
    return Receiving(Options.parse("nsq", given, streaming=True), spooler=FakeSpooler, **more)


@pytest.fixture(autouse=True)
def fresh() -> None:
    FakeSpooler.failure = None
    FakeSpooler.recovers_at_once = True
    FakeSpooler.made = 0


def test_it_is_started_once_and_drained_after_a_pause(tmp_path: Path) -> None:
    now = [0.0]
    quiet_at = [2.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        spooler = made._spooler
        if spooler is not None and now[0] >= quiet_at[0] and spooler.report.quiet_since is None:
            spooler.report.quiet_since = now[0]

    filled(tmp_path, [[b"before"]])
    made = receiving(tmp_path, sleep=sleep, monotonic=lambda: now[0])
    made.ensure()
    made.ensure()
    assert FakeSpooler.made == 1
    made.drain()
    assert 3.0 <= now[0] < 3.2
    assert made._thread is not None
    assert not made._thread.is_alive()


def test_a_broker_that_never_pauses_does_not_hold_a_run_up(tmp_path: Path) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    filled(tmp_path, [[b"before"]])
    made = receiving(tmp_path, sleep=sleep, monotonic=lambda: now[0])
    made.drain()
    assert 60.0 <= now[0] < 61.0


def test_what_it_fails_with_is_raised(tmp_path: Path) -> None:
    FakeSpooler.failure = StoreFailed("why")
    made = receiving(tmp_path)
    with pytest.raises(StoreFailed, match="why"):
        made.ensure()
    with pytest.raises(StoreFailed, match="receiving has ended: why"):
        made.ensure()


def test_it_waits_until_the_spool_is_recovered_whatever_the_files_say(tmp_path: Path) -> None:
    FakeSpooler.recovers_at_once = False
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        assert made._spooler is not None
        made._spooler.report.is_recovered = now[0] >= recovered_at

    # A position that was written before the power went says nothing.
    filled(tmp_path, [[b"before"]])
    made = receiving(tmp_path, sleep=sleep, monotonic=lambda: now[0])
    recovered_at = 1000.0
    with pytest.raises(StoreFailed, match="could not be looked at within 60 s"):
        made.ensure()
    assert 60.0 <= now[0] < 61.0
    recovered_at = 70.0
    made.ensure()
    assert 70.0 <= now[0] < 71.0
    assert FakeSpooler.made == 1
    made._stop()
