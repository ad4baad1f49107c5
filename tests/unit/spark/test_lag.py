"""How far a query is behind, from what its progress says. tests/spark has Spark call the listener."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from polymq.spark.lag import Lag, LagListener, lag_of


@pytest.mark.parametrize(
    ("latest", "end", "expected"),
    [
        ({"a": {"0": {"offset": 9, "log": 1}, "1": {"offset": 4, "log": 2}}}, {"a": {"0": {"offset": 5, "log": 1}}}, {"a": 8}),
        ({"a": {"n/0": {"offset": 9, "log": 1}}}, {"a": {"n/0": {"offset": 9, "log": 1}}}, {"a": 0}),
        ({"a": {"0": {"offset": 9, "log": 3}}}, {"a": {"0": {"offset": 50, "log": 1}}}, {"a": 9}),
        ({"a": {"0": {"offset": 9, "log": 1}}}, {"a": {"0": {"offset": 50, "log": 1}}}, {"a": 0}),
        ({"a": {"broker": {"0": 7, "1": 8}}, "b": {"0": 3}}, {"a": {"broker": {"0": 7, "1": 6}}}, {"a": 2, "b": 3}),
        ({"position": 5}, {"position": 3}, {}),
        ({"a": {"0": "x"}}, None, {"a": 0}),
        (7, None, {}),
        (None, {"a": {"0": 1}}, {}),
    ],
)
def test_what_lies_between_two_offsets(latest: object, end: object, expected: dict[str, int]) -> None:
    assert lag_of(json.dumps(latest), json.dumps(end)) == expected


def test_what_is_no_json_says_nothing() -> None:
    assert lag_of("{", "{}") == lag_of(None, None) == {}


def event(name: str | None, latest: int, end: int, run: str = "r1") -> Any:
    def offset(value: int) -> str:
        return json.dumps({"orders": {"0": {"offset": value, "log": 1}}})

    sources = [SimpleNamespace(latestOffset=offset(latest), endOffset=offset(end)), SimpleNamespace(latestOffset=None, endOffset="4")]
    return SimpleNamespace(progress=SimpleNamespace(name=name, id="i1", runId=run, batchId=3, sources=sources), runId=run)


def test_a_listener_keeps_the_latest_of_each_query(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Lag] = []
    listener = LagListener(told.append)
    assert repr(listener) == "<LagListener nothing running>"
    with caplog.at_level("INFO"):
        for latest in (20, 30):
            listener.onQueryProgress(event("archive", latest, 10))
    listener.onQueryProgress(event(None, 5, 5, "r2"))
    assert [lag.total for lag in told] == [10, 20, 0]
    assert listener.lags == {"archive": Lag("archive", 3, {"orders": 20}), "i1": Lag("i1", 3, {"orders": 0})}
    assert repr(listener) == "<LagListener archive 20, i1 0>"
    assert "archive is 20 records behind after batch 3" in caplog.text
    listener.onQueryTerminated(event("archive", 0, 0))
    assert set(listener.lags) == {"i1"}


def test_queries_over_other_sources_are_none_of_ours() -> None:
    listener = LagListener()
    other = event("x", 1, 1)
    other.progress.sources = other.progress.sources[1:]
    listener.onQueryStarted(other)
    listener.onQueryProgress(other)
    listener.onQueryTerminated(other)
    assert listener.lags == {}
