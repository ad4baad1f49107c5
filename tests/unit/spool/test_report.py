"""What a spooler says about itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from polymq.errors import StoreFull
from polymq.spool.report import Report
from polymq.store.files import RealFiles
from tests.unit.spool.spools import portion, writer

if TYPE_CHECKING:
    from pathlib import Path


def test_it_counts_and_knows_since_when_nothing_came(tmp_path: Path) -> None:
    now = [100.0]
    report = Report("nsq", "somewhere", lambda: now[0])
    opened = writer(RealFiles(tmp_path))
    opened.open()
    assert report.quiet_since is None
    report.opened()
    assert report.quiet_since == 100.0
    now[0] = 101.0
    some = [portion([b"a", b"b"])]
    report.received(some)
    assert report.quiet_since is None
    opened.append(some)
    report.full(StoreFull("no room"))
    assert json.loads(report.text(opened, 0, 0))["state"] == "full"
    report.stored(some, opened.end)
    assert report.quiet_since == 101.0
    report.rate()
    now[0] = 103.0
    report.stored([portion([b"c"])], 3)
    assert report.rate() == 1.5
    said = json.loads(report.text(opened, 1, 5 * 10**9))
    assert (said["state"], said["received"], said["stored"], said["redelivered"]) == ("receiving", 2, 3, 0)
    assert (said["committed"], said["end"], said["at"], said["trouble"]) == (1, 2, 5.0, "no room")
    opened.close()


def test_an_end_by_a_signal_is_no_trouble() -> None:
    report = Report("nsq", "somewhere", lambda: 0.0)
    report.failed(KeyboardInterrupt())
    assert (report.state, report.trouble_count) == ("stopped", 0)
    report.failed(ValueError("x"))
    assert (report.state, report.trouble) == ("failed", "x")
    report.troubled(ValueError("y"))
    assert (report.state, report.quiet_since) == ("waiting", None)
