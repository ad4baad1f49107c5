from __future__ import annotations

import pytest

from polymq.gateways.nats.monitoring_format import duration, json, number, rfc3339, text, uptime

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (-1, "0s"),
        (0, "0s"),
        (59, "59s"),
        (60, "1m0s"),
        (3599, "59m59s"),
        (3600, "1h0m0s"),
        (86400 + 61, "1d0h1m1s"),
        (366 * 86400, "1y1d0h0m0s"),
    ],
)
def test_uptime(seconds: int, wanted: str) -> None:
    assert uptime(seconds * SECOND_NS) == wanted


@pytest.mark.parametrize(
    ("ns", "wanted"),
    [
        (0, "0s"),
        (7, "7ns"),
        (1_000, "1µs"),
        (272_500, "272.5µs"),
        (1_618_654, "1.618654ms"),
        (1_500_000_000, "1.5s"),
        (2_000_000_000, "2s"),
    ],
)
def test_duration(ns: int, wanted: str) -> None:
    assert duration(ns) == wanted


@pytest.mark.parametrize(
    ("ns", "wanted"), [(0, "1970-01-01T00:00:00Z"), (1_500_000_000, "1970-01-01T00:00:01.5Z"), (123, "1970-01-01T00:00:00.000000123Z")]
)
def test_rfc3339(ns: int, wanted: str) -> None:
    assert rfc3339(ns) == wanted


def test_text_that_is_none() -> None:
    assert text(b"a\xffb") == "a\ufffdb"
    assert text("\ud800") == "\ufffd" * 3
    assert json({"a": "<&>\u2028"}, indented=False) == b'{"a":"\\u003c\\u0026\\u003e\\u2028"}'


def test_numbers_without_a_fraction() -> None:
    assert (number(2.0), number(0.5)) == (2, 0.5)
    assert isinstance(number(2.0), int)
