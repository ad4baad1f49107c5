"""Files as tables have them: described by their footers; what a killed writer left is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from polymq.spark.pipeline.catalog import Catalog
from polymq.spark.pipeline.tables import described, discard_strays, folder_of
from tests.unit.spark.pipeline.archives import BEGIN_US, bronze_file, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    found = Catalog(tmp_path)
    yield found
    found.close()


def test_a_file_is_described_by_its_footer_and_its_folders(catalog: Catalog) -> None:
    entry = bronze_file(catalog, range(5, 8), topic="a%2Fb")
    assert (entry.topic, entry.date, entry.rows, entry.first_offset, entry.last_offset) == ("a/b", "2026-05-01", 3, 5, 7)
    assert (entry.first_us, entry.last_us) == (BEGIN_US + 5_000_000, BEGIN_US + 7_000_000)
    assert entry.size_bytes == (catalog.storage / entry.path).stat().st_size


def test_a_file_without_times_and_offsets_has_none(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", pa.table({"n": [1]}))
    entry = described(path, "silver/a%2Fb", "silver/a%252Fb/date=2026-05-01/x.parquet", schema=3)
    assert (entry.topic, entry.schema, entry.first_us, entry.first_offset) == ("a%2Fb", 3, None, None)
    nulls = write(tmp_path / "y.parquet", pa.table({"offset": pa.array([None], pa.int64())}))
    assert described(nulls, "bronze", "bronze/y.parquet").first_offset is None


@pytest.mark.parametrize(
    ("name", "folder"),
    [("bronze", "bronze"), ("silver/orders", "silver/orders"), ("silver/a/../b", "silver/a%2F..%2Fb"), ("silver/..", "silver/%2E%2E")],
)
def test_the_folder_of_a_table_is_below_the_storage_whatever_a_topic_is_called(name: str, folder: str) -> None:
    assert folder_of(name) == folder


def test_what_a_killed_writer_left_is_removed(catalog: Catalog) -> None:
    kept = bronze_file(catalog, range(3))
    stray = write(catalog.storage / "bronze/topic=a/date=2026-05-01/stray.parquet", pa.table({"n": [1]}))
    staged = write(catalog.storage / "_staging/x/y.parquet", pa.table({"n": [1]}))
    assert discard_strays(catalog) == 1
    assert not stray.exists()
    assert not staged.exists()
    assert (catalog.storage / kept.path).exists()
