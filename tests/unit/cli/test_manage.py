"""What the commands for topics and channels share, where their own tests do not get to."""

from __future__ import annotations

import pytest

from polymq.cli.manage import _coarse, parse_ms
from polymq.errors import ConfigError

SECOND_NS = 10**9


@pytest.mark.parametrize(("text", "found"), [(None, None), ("off", 0), ("0s", 0), ("1ms", 1), ("1h30m", 5_400_000), ("1.5s", 1500)])
def test_durations_are_milliseconds(text: str | None, found: int | None) -> None:
    assert parse_ms("--ttl", text) == found


@pytest.mark.parametrize("text", ["", "5", "-1s", "1us"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match=f"^--ttl '{text}': "):
        parse_ms("--ttl", text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "now"), (0, "now"), (0.9, "now"), (59, "59s"), (60, "1m"), (3_661, "1h1m"), (86_400 + 59, "1d"), (86_400 * 30 - 1, "29d23h")],
)
def test_times_to_come_are_said_to_two_units(seconds: float, text: str) -> None:
    assert _coarse(int(seconds * SECOND_NS)) == text
