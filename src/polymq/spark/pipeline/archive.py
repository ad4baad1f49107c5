"""Tells whether a storage folder may be written on: whether its catalog, its checkpoint and its files belong together.

What the catalog does not know is removed when a run begins, so a catalog that was lost, or put back from an old copy, or a folder
of somebody else's is refused before that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError, StoreFailed
from polymq.spark.pipeline.catalog import BRONZE, CATALOG_FILE
from polymq.spark.pipeline.tables import STAGING, TABLE_FOLDERS, discard_strays

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.spark.pipeline.catalog import Catalog

__all__ = ["CHECKPOINT_FOLDER", "begin", "bronze_writer", "query_id"]

CHECKPOINT_FOLDER: Final = "_checkpoint"
# The position of this name says that this catalog has begun with folders in which nothing was.
_BEGUN: Final = "archive"


def bronze_writer(query: str) -> str:
    """Name the position of a query's bronze."""
    return f"bronze/{query}"


def begin(catalog: Catalog, now_ns: int) -> None:
    """Begin a run of the one writer: remove what writers that were killed have left. Raises ConfigError if that may be an archive itself."""
    is_begun = catalog.position(_BEGUN) >= 0
    wrong = _lost_checkpoint(catalog) or _lost_catalog(catalog) or ("" if is_begun else _unknown(catalog))
    if wrong:
        raise ConfigError([f"{wrong}; nothing was removed. Put back what belongs there, or begin another archive: storage = …"])
    if not is_begun:
        catalog.commit(at_ns=now_ns, positions={_BEGUN: 1})
    discard_strays(catalog)


def _lost_checkpoint(catalog: Catalog) -> str:
    """Say what is wrong with the checkpoint: without it, everything would be taken in a second time."""
    checkpoint = catalog.storage / CHECKPOINT_FOLDER
    is_wrong = not (checkpoint / "metadata").exists() and BRONZE in catalog.tables()
    return f"{checkpoint} is gone, which says how far {catalog.storage} is" if is_wrong else ""


def _lost_catalog(catalog: Catalog) -> str:
    """Say what is wrong with the catalog: Spark notes a batch as done only after the catalog has, and does not bring it again."""
    checkpoint = catalog.storage / CHECKPOINT_FOLDER
    committed = _last_committed(checkpoint)
    if committed < 0:
        return ""
    known = catalog.position(bronze_writer(query_id(checkpoint)))
    file = catalog.storage / CATALOG_FILE
    return (
        f"{file} was lost, or is an old one: {checkpoint} has batches through {committed}, it through {known}" if known < committed else ""
    )


def query_id(checkpoint: Path) -> str:
    """Read the id that Spark gives a query for as long as its checkpoint lives. Batches are numbered within it."""
    try:
        text = (checkpoint / "metadata").read_text(encoding="utf-8")
        return str(json.loads(text)["id"])
    except (OSError, ValueError, KeyError) as error:
        raise StoreFailed(f"{checkpoint / 'metadata'} cannot be read: {error}") from error


def _last_committed(checkpoint: Path) -> int:
    """Tell the last batch that Spark believes to be done; -1 for none."""
    return max((int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdecimal()), default=-1)


def _unknown(catalog: Catalog) -> str:
    """Say what is wrong with files in the folders of a catalog that knows none."""
    found = None if catalog.paths() else _first_file(catalog.storage)
    if found is None:
        return ""
    return f"{catalog.storage / CATALOG_FILE} is new, but there is {found}: the catalog was lost, or the folder is somebody else's"


def _first_file(storage: Path) -> Path | None:
    """Find a file that would be removed as unknown."""
    for folder in TABLE_FOLDERS:
        found = next((storage / folder).rglob("*.parquet"), None)
        if found is not None:
            return found
    return next((path for path in (storage / STAGING).rglob("*") if path.is_file()), None)
