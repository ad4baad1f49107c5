"""Values as Go writes them."""

from __future__ import annotations

import json

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


def test_times() -> None:
    assert http_format.rfc3339(1_795_219_465_999_999_999) == "2026-11-21T00:04:25Z"


def test_json_is_escaped_as_go_does() -> None:
    assert http_format.json({"a": '<&>\u2028\u2029"\\'}) == b'{"a":"\\u003c\\u0026\\u003e\\u2028\\u2029\\"\\\\"}'


@given(st.recursive(st.none() | st.booleans() | st.text(st.characters(codec="utf-8")), st.lists))
def test_escaped_json_means_the_same(value: object) -> None:
    assert json.loads(http_format.json(value)) == value
