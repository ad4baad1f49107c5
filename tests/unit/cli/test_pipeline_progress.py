"""What `polymq pipeline` shows, and how a range is written."""

from __future__ import annotations

import time

import pytest

from polymq.cli.pipeline_progress import Watch, line_of, range_of
from polymq.errors import ConfigError
from polymq.spark.pipeline.replay import Range


class Seen:
    messages, rate, decoded, lag, failures, last_error = 12345, 10.0, 7, 3, 0, ""


def test_a_line_says_how_far_it_is() -> None:
    seen = Seen()
    assert line_of(seen) == "12,345 archived · 10/s · 7 through silver · lag 3"  # type: ignore[arg-type]
    seen.failures, seen.last_error, seen.lag = 2, "silver: x", None  # type: ignore[assignment]
    assert line_of(seen).endswith("lag unknown · 2 failures, the last: silver: x")  # type: ignore[arg-type]


def test_without_a_terminal_there_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Watch("x") as watch:
        watch.say("a")
        now[0] = 10.0
        watch.say("b")
        watch.say("c")
        now[0] = 25.0
        watch.say("b")
        watch.say("d")
    assert capsys.readouterr().err == "x: b\nx: d\n"


def test_ranges() -> None:
    assert range_of([], None, None, None, []) == Range()
    found = range_of(["a"], "2026-05-01T12:00Z", "2026-05-01T12:00:01+00:00", "5..", [1])
    assert found == Range(("a",), 1777636800000000, 1777636801000000, 5, None, (1,))
    assert range_of([], None, None, "..7", []).last_offset == 7
    ago = range_of([], "2h", None, None, []).begin_us
    assert ago is not None
    assert abs(time.time() - 7200 - ago / 1e6) < 60


@pytest.mark.parametrize(("begin", "offsets"), [("soon", None), (None, "5"), (None, "a..b"), (None, "-1..2")])
def test_ranges_that_make_no_sense(begin: str | None, offsets: str | None) -> None:
    with pytest.raises(ConfigError):
        range_of([], begin, None, offsets, [])
