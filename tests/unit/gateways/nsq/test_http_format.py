"""Values as Go writes them."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.gateways.nsq import http_format

MS = 1_000_000
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1100, "1.1µs"),
        (250 * MS, "250ms"),
        (2_200_000, "2.2ms"),
        (SECOND, "1s"),
        (61 * SECOND, "1m1s"),
        (433_313_506_835, "7m13.313506835s"),
        (3600 * SECOND, "1h0m0s"),
        (100 * 3600 * SECOND + 5 * MS, "100h0m0.005s"),
    ],
)
def test_durations(ns: int, text: str) -> None:
    assert http_format.duration(ns) == text


@pytest.mark.parametrize(("ns", "text"), [(0, "0.0ns"), (1000, "1000.0ns"), (1500, "1.5us"), (2_550_000, "2.5ms"), (3_200_000_000, "3.2s")])
def test_short_durations(ns: int, text: str) -> None:
    assert http_format.short_duration(ns) == text


# Zones as POSIX writes them, west of Greenwich first: the machine's own must not matter.
@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC0", "2026-11-21T00:04:25Z"),
        ("GMT0BST,M3.5.0/1,M10.5.0", "2026-11-21T00:04:25Z"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "2026-11-21T01:04:25+01:00"),
        ("EST5EDT,M3.2.0,M11.1.0", "2026-11-20T19:04:25-05:00"),
        ("<+0545>-5:45", "2026-11-21T05:49:25+05:45"),
        ("<-0930>9:30", "2026-11-20T14:34:25-09:30"),
        ("LMT-0:19:32", "2026-11-21T00:23:57+00:19"),
        ("LMT0:25:21", "2026-11-20T23:39:04-00:25"),
    ],
)
def test_times_are_local_with_their_offset(zone: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        assert http_format.rfc3339(1_795_219_465_999_999_999) == text
    time.tzset()


def test_json_is_escaped_as_go_does() -> None:
    assert http_format.json({"a": '<&>\u2028\u2029"\\'}) == b'{"a":"\\u003c\\u0026\\u003e\\u2028\\u2029\\"\\\\"}'


@given(st.recursive(st.none() | st.booleans() | st.text(st.characters(codec="utf-8")), st.lists))
def test_escaped_json_means_the_same(value: object) -> None:
    assert json.loads(http_format.json(value)) == value
