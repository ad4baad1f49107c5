"""What is in a table that a streaming query has written, and whether it is what was published: read without Spark.

Files that lie in the folder count for nothing: a task that was killed leaves some behind. What counts is Spark's own list of
committed batches, `_spark_metadata`: a file for each batch, and now and then one (`N.compact`) that sums up all before it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["committed_files", "committed_rows", "faults", "numbers_of"]

_LIST: Final = "_spark_metadata"
_COMPACT: Final = ".compact"
_SHOWN_MAX: Final = 10


def committed_files(table: Path) -> list[Path]:
    """List the files that belong to the table; none while no batch is committed."""
    batches: dict[int, Path] = {}
    compact = -1
    for each in (table / _LIST).glob("[0-9]*"):
        number = int(each.name.removesuffix(_COMPACT))
        if each.name.endswith(_COMPACT):
            compact = max(compact, number)
        if number not in batches or each.name.endswith(_COMPACT):
            batches[number] = each
    paths = [path for number in sorted(batches) if number >= compact for path in _files_of(batches[number])]
    return [table / path.name for path in paths]


def _files_of(batch: Path) -> list[Path]:
    version, *lines = batch.read_text(encoding="utf-8").splitlines()
    if version != "v1":
        raise ValueError(f"{batch} is of the unknown version {version!r}")
    entries = [json.loads(line) for line in lines]
    return [Path(unquote(urlparse(each["path"]).path)) for each in entries if each["action"] == "add"]


def committed_rows(table: Path, columns: list[str]) -> pa.Table:
    """Read some columns of the whole table."""
    files = committed_files(table)
    return pa.concat_tables([pq.ParquetFile(each).read(columns=columns) for each in files]) if files else pa.table({})


def numbers_of(values: pa.ChunkedArray) -> Any:
    """Take out of each body the number that it begins with: what comes before the first blank."""
    texts = pc.list_element(pc.split_pattern(values.cast(pa.string()), " "), 0)
    return texts.cast(pa.int64()).to_numpy()


def faults(
    rows: pa.Table, *, value: str, sent: Collection[int], acknowledged: Collection[int], ends: Mapping[tuple[str, int], int]
) -> list[str]:
    """Say what is wrong with a table, as lines for people; nothing if it is right.

    `rows` have topic, partition, offset and the column `value`. No number was sent twice, so none may be there twice; all that are
    acknowledged have to be. `ends` are the lengths of the logs: each offset has to be there once, whoever published it.
    """
    if not rows.num_rows:
        return [f"the table is empty, and {len(acknowledged)} messages are acknowledged"] if acknowledged else []
    numbers, counts = np.unique(numbers_of(rows[value]), return_counts=True)
    found = set(numbers.tolist())
    lost = sorted(set(acknowledged) - found)
    unknown = sorted(found - set(sent))
    lines = [
        _line("acknowledged and not in the table", lost),
        _line("more than once in the table", numbers[counts > 1].tolist()),
        _line("in the table, and never sent", unknown),
    ]
    places = dict.fromkeys(ends, np.zeros(0, np.int64))
    for topic, partition in {*zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)}:
        chosen = pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition))
        places[topic, partition] = np.sort(rows.filter(chosen)["offset"].to_numpy())
    for (topic, partition), offsets in sorted(places.items()):
        end = ends.get((topic, partition), 0)
        if not np.array_equal(offsets, np.arange(end)):
            lines.append(f"{topic}/{partition}: {len(offsets)} rows, {len(np.unique(offsets))} of them different, of {end} offsets")
    return [line for line in lines if line]


def _line(what: str, numbers: list[int]) -> str:
    return f"{len(numbers)} {what}: {', '.join(map(str, numbers[:_SHOWN_MAX]))}" if numbers else ""
