"""The table of client libraries: what a run found is what it says, whatever that is."""

from __future__ import annotations

import pytest

from tests.interop.client_table import COLUMNS, Outcomes, Row, page
from tests.interop.conftest import ROWS

ALL = Row("all", "all 1.0")
SOME = Row("some", "some 2.0", cannot={"tls": "it is old", "publish snappy": "only so far"}, remarks={"": "a remark", "deflate": "slow"})


def outcomes(*rows: Row, failed: tuple[str, str] = ("", "")) -> Outcomes:
    """Everything tried, and all well but one."""
    found = Outcomes()
    for row in rows:
        for column in COLUMNS:
            if not row.why_not(column):
                found.note(row.name, column, "a test", passed=(row.name, column) != failed)
                found.note(row.name, column, "another", passed=True)
    return found


def line(text: str, title: str) -> list[str]:
    (found,) = [each for each in text.splitlines() if each.startswith(f"| {title}")]
    return [cell.strip() for cell in found.strip("|").split("|")[1:]]


def test_what_is_found_is_what_is_written() -> None:
    text = page([ALL, SOME], outcomes(ALL, SOME))
    assert line(text, "all") == ["yes"] * len(COLUMNS)
    assert line(text, "some 2.0 (1)") == ["yes", "– (2)", "consuming (3)", "yes (4)", "– (2)", "– (2)", "yes", "yes"]
    assert text.splitlines()[-4:] == ["1. A remark.", "2. It is old.", "3. Only so far.", "4. Slow."]


def test_one_failure_is_enough() -> None:
    text = page([ALL, SOME], outcomes(ALL, SOME, failed=("all", "auth")))
    assert line(text, "all").count("**fails**") == 1
    assert text != page([ALL, SOME], outcomes(ALL, SOME))


def test_what_was_not_tried_is_missing() -> None:
    found = outcomes(SOME)
    assert found.missing([SOME]) == []
    assert found.missing([ALL, SOME]) == [f"all: {column}" for column in COLUMNS]


def test_of_a_test_that_is_tried_again_the_last_outcome_counts() -> None:
    found = Outcomes()
    for test, passed in [("first", True), ("second", False), ("second", True)]:
        found.note("all", "plain", test, passed=passed)
    assert found.found("all", "plain")
    found.note("all", "plain", "first", passed=False)
    assert not found.found("all", "plain")


def test_only_known_columns_count() -> None:
    with pytest.raises(AssertionError, match="carrier pigeon"):
        Outcomes().note("all", "carrier pigeon", "a test", passed=True)


def test_every_client_says_why_not() -> None:
    for row in ROWS:
        assert all(reason.strip() for reason in (*row.cannot.values(), *row.remarks.values())), row.name
        assert {name.removeprefix("publish ") for name in row.cannot} <= set(COLUMNS), row.name
