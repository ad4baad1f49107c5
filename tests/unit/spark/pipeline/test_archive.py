"""A storage folder is begun or refused: nothing is removed that may be an archive or somebody else's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from polymq.errors import ConfigError, StoreFailed
from polymq.spark.pipeline import archive, compact
from polymq.spark.pipeline.catalog import CATALOG_FILE, Catalog
from tests.unit.spark.pipeline.archives import bronze_file, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = pa.table({"n": [1]})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    found = Catalog(tmp_path)
    yield found
    found.close()


def checkpoint(storage: Path, committed: int) -> None:
    folder = storage / archive.CHECKPOINT_FOLDER
    (folder / "commits").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": "q1"}))
    for number in range(committed + 1):
        (folder / "commits" / str(number)).touch()
        (folder / "commits" / f".{number}.crc").touch()


def lose_catalog(catalog: Catalog) -> Catalog:
    """Have the catalog be a new one."""
    catalog.close()
    for path in catalog.storage.glob(f"{CATALOG_FILE}*"):
        path.unlink()
    return Catalog(catalog.storage)


@pytest.mark.parametrize("committed", [-1, 3])
def test_files_outlive_a_catalog_that_was_lost(catalog: Catalog, committed: int) -> None:
    archive.begin(catalog, 1)
    kept = catalog.storage / bronze_file(catalog, range(3)).path
    checkpoint(catalog.storage, committed)
    new = lose_catalog(catalog)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"lost.*nothing was removed.*storage = "):
            archive.begin(new, 1)
        # What another command notes does not make it the catalog of these files.
        compact.rebuild(new, "orders", 1)
    assert kept.exists()
    new.close()


def test_a_catalog_that_is_older_than_its_checkpoint_is_refused(catalog: Catalog) -> None:
    checkpoint(catalog.storage, 3)
    catalog.commit(at_ns=1, positions={archive.bronze_writer("q1"): 2})
    stray = write(catalog.storage / "bronze/topic=a/date=2026-05-01/q1-3.parquet", ROWS)
    bronze_file(catalog, range(3))
    with pytest.raises(ConfigError, match="has batches through 3, it through 2"):
        archive.begin(catalog, 1)
    assert stray.exists()
    catalog.commit(at_ns=1, positions={archive.bronze_writer("q1"): 3})
    archive.begin(catalog, 1)
    assert not stray.exists()


@pytest.mark.parametrize("path", ["gold/mine.parquet", "bronze/a/b.parquet", "_staging/notes.txt"])
def test_a_folder_of_somebody_else_is_refused(catalog: Catalog, path: str) -> None:
    theirs = write(catalog.storage / path, ROWS)
    with pytest.raises(ConfigError, match="somebody else"):
        archive.begin(catalog, 1)
    assert theirs.exists()


def test_what_the_first_batch_left_when_it_was_killed_is_removed(catalog: Catalog) -> None:
    archive.begin(catalog, 1)
    checkpoint(catalog.storage, -1)
    stray = write(catalog.storage / "bronze/topic=a/date=2026-05-01/q1-0.parquet", ROWS)
    archive.begin(catalog, 1)
    assert not stray.exists()


def test_an_archive_of_an_earlier_version_goes_on(catalog: Catalog) -> None:
    checkpoint(catalog.storage, 0)
    kept = bronze_file(catalog, range(3))
    catalog.commit(at_ns=1, positions={archive.bronze_writer("q1"): 0})
    archive.begin(catalog, 1)
    assert (catalog.storage / kept.path).exists()


def test_without_its_checkpoint_nothing_is_begun_and_nothing_removed(catalog: Catalog) -> None:
    bronze_file(catalog, range(3))
    stray = write(catalog.storage / "bronze/topic=a/date=2026-05-01/stray.parquet", ROWS)
    with pytest.raises(ConfigError, match="_checkpoint is gone"):
        archive.begin(catalog, 1)
    assert stray.exists()


def test_a_checkpoint_that_says_nothing_is_an_error(catalog: Catalog) -> None:
    checkpoint(catalog.storage, 0)
    (catalog.storage / archive.CHECKPOINT_FOLDER / "metadata").write_text("{}")
    with pytest.raises(StoreFailed, match="cannot be read"):
        archive.begin(catalog, 1)
