"""The catalog: changes as a whole, what is seen when, one writer."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from polymq.errors import ConfigError, StoreFailed
from polymq.spark.pipeline import catalog as module
from polymq.spark.pipeline.catalog import Catalog, Entry, Progress, gold_table, locked, silver_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    found = Catalog(tmp_path / "archive")
    yield found
    found.close()


def entry(path: str, name: str = "bronze", topic: str = "a", **values: object) -> Entry:
    return Entry(name, path, 10, 100, topic=topic, **values)  # type: ignore[arg-type]


def paths(entries: list[Entry]) -> list[str]:
    return [each.path for each in entries]


def test_a_change_is_seen_as_a_whole_with_its_position(catalog: Catalog) -> None:
    assert (catalog.version(), catalog.position("q")) == (0, -1)
    version = catalog.commit(at_ns=1, add=[entry("x"), entry("y", topic="b")], positions={"q": 7})
    assert (catalog.version(), catalog.position("q")) == (version, 7)
    assert paths(catalog.files("bronze")) == ["x", "y"]
    assert paths(catalog.files("bronze", topic="b")) == ["y"]
    assert catalog.tables() == {"bronze": (2, 20, 200)}
    assert catalog.topics("bronze") == ["a", "b"]
    assert catalog.paths() == {"x", "y"}


def test_a_change_that_fails_changes_nothing(catalog: Catalog) -> None:
    catalog.commit(at_ns=1, add=[entry("x")])
    with pytest.raises(StoreFailed, match="UNIQUE"):
        catalog.commit(at_ns=2, add=[entry("y"), entry("x")], remove=["x"], positions={"q": 1})
    assert (paths(catalog.files("bronze")), catalog.position("q")) == (["x"], -1)
    with pytest.raises(TypeError):
        catalog.commit(at_ns=2, add=[None])  # type: ignore[list-item]
    catalog.commit(at_ns=3, add=[entry("z")])
    assert paths(catalog.files("bronze")) == ["x", "z"]


def test_files_are_read_as_they_came_after_they_were_put_together(catalog: Catalog) -> None:
    first = catalog.commit(at_ns=1, add=[entry("x")])
    second = catalog.commit(at_ns=1, add=[entry("y")])
    catalog.commit(at_ns=5, add=[entry("xy", is_rewritten=True)], remove=["x", "y"])
    assert paths(catalog.files("bronze")) == ["xy"]
    assert paths(catalog.files("bronze", original=True)) == ["x", "y"]
    assert paths(catalog.files("bronze", original=True, after=first)) == ["y"]
    assert paths(catalog.files("bronze", original=True, through=first)) == ["x"]
    assert catalog.files("bronze", original=True)[1].added == second
    assert catalog.removed_before(5) == []
    assert catalog.removed_before(6) == ["x", "y"]
    catalog.forget(["x", "y", "xy"])
    assert catalog.paths() == {"xy"}


def test_progress_has_a_limit(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROGRESS_MAX", 3)
    for number in range(5):
        catalog.note_progress(Progress(number, number, 1, 1))
    assert [each.batch for each in catalog.progress()] == [2, 3, 4]


def test_notes_are_kept_until_they_are_taken_back(catalog: Catalog) -> None:
    catalog.note("silver", "x" * 5000)
    assert catalog.notes() == {"silver": "x" * 2000}
    catalog.note("silver", "")
    assert catalog.notes() == {}


def test_it_is_still_there_when_it_is_opened_again(tmp_path: Path) -> None:
    first = Catalog(tmp_path)
    first.commit(at_ns=1, add=[entry("x")])
    second = Catalog(tmp_path)
    assert paths(second.files("bronze")) == ["x"]
    first.close()
    second.close()


def test_what_is_no_catalog_is_told(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreFailed, match="cannot be used"):
        Catalog(tmp_path)


def test_a_catalog_that_breaks_is_told(catalog: Catalog) -> None:
    other = sqlite3.connect(catalog.storage / "catalog.sqlite")
    other.execute("drop table files")
    other.commit()
    other.close()
    with pytest.raises(StoreFailed, match="cannot be read"):
        catalog.files("bronze")


def test_there_is_one_writer(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ConfigError, match="another process"), locked(tmp_path):
        raise AssertionError
    with locked(tmp_path):
        pass


def test_names_of_tables() -> None:
    assert (silver_table("a.b"), gold_table("traffic")) == ("silver/a.b", "gold/traffic")
