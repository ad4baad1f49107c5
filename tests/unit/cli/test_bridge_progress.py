"""What `polymq bridge` says of how far it is."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import pytest

from polymq.cli import bridge_progress
from polymq.cli.bridge_progress import Progress, summary
from polymq.clients.bridge_ends import Tally


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_last_seconds() -> None:
    tally, clock = Tally(), Clock()
    progress = Progress(tally, lambda: 5, clock)
    assert progress.line() == "moved 0 · 0/s · 5 to be read"
    for _ in range(100):
        clock.now += 1
        tally.moved += 10
        line = progress.line()
    assert line == "moved 1,000 · 10/s · 5 to be read"
    for _ in range(10):
        clock.now += 1
        line = progress.line()
    assert line == "moved 1,000 · 0/s · 5 to be read"


def test_a_line_comes_now_and_then_and_only_with_news(capsys: pytest.CaptureFixture[str]) -> None:
    tally, clock = Tally(), Clock()
    progress = Progress(tally, lambda: None, clock)
    for _ in range(40):
        clock.now += 1
        progress.show_line()
    assert capsys.readouterr().err.count("moved 0") == 1
    tally.moved = 3
    progress.show_line()
    assert capsys.readouterr().err.startswith("bridge: moved 3 ")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_it_is_shown_until_it_is_cancelled(is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bridge_progress, "_SHOW_SECONDS", 0.0)
    monkeypatch.setattr(bridge_progress, "_LINE_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)

    async def go() -> None:
        showing = asyncio.create_task(Progress(Tally(moved=7), lambda: None).show())
        for _ in range(5):
            await asyncio.sleep(0)
        showing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await showing

    asyncio.run(go())
    assert "moved 7" in capsys.readouterr().err


def test_a_summary_names_what_is_not_as_it_was() -> None:
    assert summary(Tally(), 1.0) == "moved 0 messages in 1.0 s"
    assert summary(Tally(moved=1), 0.5) == "moved 1 message in 0.5 s, 2/s"
    assert summary(Tally(moved=10), 4.0, idle_seconds=2.0) == "moved 10 messages in 4.0 s, 5/s"
    tally = Tally(4, 4, 1, 2, 3, 5, Counter(key=2, header=1))
    assert Progress(tally, lambda: None, Clock()).line() == "moved 4 · 0/s · 1 refused · 2 expired · 3 gone · 5 sent again"
    assert summary(tally, 2.0) == (
        "moved 4 messages in 2.0 s, 2/s; 1 refused and left out; 2 expired on the way; 3 gone before they were read;"
        " 5 sent again, which may be there several times; not carried by the target's protocol: 1 × header, 2 × key"
    )
