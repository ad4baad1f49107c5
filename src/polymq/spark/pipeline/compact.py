"""Small files put together, and old ones removed: plans as pure functions, and their execution without Spark.

Of bronze, only what silver has decoded is touched: silver reads each file once, as it came. Gold finds by new files which days have
changed, so what it has not seen stays as it came, too. What was replaced stays on the disk for
`GRACE_SECONDS`, for queries that are reading it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polymq.spark.pipeline.catalog import BRONZE, GOLD, QUARANTINE, STATISTICS, gold_table, silver_table
from polymq.spark.pipeline.config import GOLD_TABLES
from polymq.spark.pipeline.registry import Registry
from polymq.spark.pipeline.tables import described, folder_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from polymq.spark.pipeline.catalog import Catalog, Entry
    from polymq.spark.pipeline.config import PipelineConfig

__all__ = ["Outcome", "compact", "expire", "expired", "first_date", "plan", "rebuild", "sweep"]

GRACE_SECONDS: Final = 3600
# So many rows, and so many bytes as they are without compression, are in memory at a time, of files that are put together.
_ROWS_MAX: Final = 2_000_000
UNPACKED_BYTES_MAX: Final = 512 * 1024 * 1024
_ROW_GROUP_ROWS: Final = 200_000
_NS: Final = 10**9
# The note of what could not be put together.
NOTE: Final = "compaction of files"
_EVER: Final = "0000-00-00"


@dataclass(slots=True)
class Outcome:
    """What was done: files before and after, files that were too old, files removed from the disk; and what could not be put together."""

    before: int = 0
    after: int = 0
    expired: int = 0
    swept: int = 0
    failed: list[str] = field(default_factory=list)


def plan(entries: Sequence[Entry], *, files_min: int, size_bytes: int, through: int) -> list[list[Entry]]:
    """Say which files are put together: neighbours of one topic, day and schema, each less than half of `size_bytes`, `size_bytes` in all at most.

    Only those of versions up to `through`; a set has `files_min` files or more, so that a file is not written again for every new one.
    """
    small = [each for each in entries if each.added <= through and each.size_bytes < size_bytes // 2]
    sets: list[list[Entry]] = []
    ordered = sorted(small, key=lambda each: (each.topic, each.date, each.schema, each.added, each.path))
    for _, members in groupby(ordered, key=lambda each: (each.topic, each.date, each.schema)):
        run: list[Entry] = []
        for each in [*members, None]:
            is_full = each is not None and (
                sum(one.size_bytes for one in run) + each.size_bytes > size_bytes or sum(one.rows for one in run) + each.rows > _ROWS_MAX
            )
            if each is None or is_full:
                # A full set is worth it however few files it has: they will not fit together better.
                if len(run) >= (2 if is_full else files_min):
                    sets.append(run)
                run = []
            if each is not None:
                run.append(each)
    return sets


def first_date(retention_seconds: float, now_ns: int) -> str:
    """Give the first date that is kept; all dates come behind it if everything is."""
    if not retention_seconds:
        return _EVER
    return f"{datetime.fromtimestamp(now_ns / _NS - retention_seconds, UTC):%Y-%m-%d}"


def expired(entries: Sequence[Entry], *, retention_seconds: float, now_ns: int, through: int) -> list[Entry]:
    """Say which files are too old: of days that have ended so long ago, and which nobody has still to read."""
    begin = first_date(retention_seconds, now_ns)
    return [each for each in entries if each.date and each.date < begin and each.added <= through]


def compact(catalog: Catalog, config: PipelineConfig, now_ns: int) -> Outcome:
    """Put the small files of all tables together. What cannot be is left as it is, and noted."""
    outcome = Outcome()
    newest = catalog.version()
    for name in sorted(catalog.tables()):
        if name.startswith("gold/"):
            continue  # has one file a day
        through = min(_decoded_through(catalog, config) if name == BRONZE else newest, _aggregated_through(catalog, name))
        sets = plan(catalog.files(name), files_min=config.files_min, size_bytes=config.file_size_bytes, through=through)
        for number, planned in enumerate(sets):
            label = f"compacted-{now_ns}-{newest:012d}-{number:05d}"
            try:
                for part, members in enumerate(_held(catalog, planned)):
                    _exchange(catalog, members, f"{label}-{part}.parquet", now_ns)
                    outcome.before += len(members)
                    outcome.after += 1
            except (pa.ArrowException, OSError, MemoryError) as error:
                outcome.failed.append(f"{name}, {len(planned)} files from {planned[0].path} on: {str(error)[:200]}")
    catalog.note(NOTE, "; ".join(outcome.failed))
    return outcome


def expire(catalog: Catalog, config: PipelineConfig, now_ns: int) -> int:
    """Take what is too old out of the tables; tells how many files."""
    newest = catalog.version()
    kept = {BRONZE: BRONZE, QUARANTINE: QUARANTINE, STATISTICS: STATISTICS} | {gold_table(name): "gold" for name in GOLD_TABLES}
    gone: list[Entry] = []
    for name in catalog.tables():
        rule = "silver" if name.startswith("silver/") else kept.get(name)
        if rule is not None:
            through = _decoded_through(catalog, config) if name == BRONZE else newest
            gone += expired(catalog.files(name), retention_seconds=config.retention[rule], now_ns=now_ns, through=through)
    if gone:
        catalog.commit(at_ns=now_ns, remove=[each.path for each in gone])
    return len(gone)


def sweep(catalog: Catalog, now_ns: int, grace_seconds: float = GRACE_SECONDS) -> int:
    """Remove from the disk what has been out of use for `grace_seconds`; tells how many files."""
    paths = catalog.removed_before(now_ns - round(grace_seconds * _NS))
    for path in paths:
        (catalog.storage / path).unlink(missing_ok=True)
    catalog.forget(paths)
    return len(paths)


def rebuild(catalog: Catalog, topic: str, now_ns: int) -> int:
    """Forget a topic's silver, quarantine and schema, so that the next step decodes all of its bronze again; tells how many files go."""
    gone = [*catalog.files(silver_table(topic)), *catalog.files(QUARANTINE, topic=topic)]
    catalog.commit(at_ns=now_ns, remove=[each.path for each in gone], positions={silver_table(topic): -1})
    Registry(catalog.storage / "schemas").forget(topic)
    return len(gone)


def _decoded_through(catalog: Catalog, config: PipelineConfig) -> int:
    """Tell through which version of bronze every topic has been decoded; one that never was begins with what there is then."""
    topics = [topic for topic in catalog.topics(BRONZE) if config.decoding_of(topic) != "none"]
    positions = [catalog.position(silver_table(topic)) for topic in topics]
    # Files of a version behind a topic's position may belong to other topics alone.
    newest = {topic: max((each.added for each in catalog.files(BRONZE, topic=topic, original=True)), default=0) for topic in topics}
    behind = [at for topic, at in zip(topics, positions, strict=True) if 0 <= at < newest[topic]]
    return min(behind, default=catalog.version())


def _aggregated_through(catalog: Catalog, name: str) -> int:
    """Tell through which version of a table gold has come. One that never did begins with what there is then; of silver it takes no days."""
    position = catalog.position(GOLD)
    return position if position >= 0 and name in (BRONZE, QUARANTINE, STATISTICS) else catalog.version()


def _held(catalog: Catalog, members: Sequence[Entry]) -> list[list[Entry]]:
    """Cut a set so that each part fits in memory, by what the files' footers say; a file that is half of that is left alone."""
    parts: list[list[Entry]] = [[]]
    held = 0
    for each in members:
        metadata = pq.read_metadata(catalog.storage / each.path)
        size = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
        if size > UNPACKED_BYTES_MAX // 2:
            continue
        if held + size > UNPACKED_BYTES_MAX:
            parts.append([])
            held = 0
        parts[-1].append(each)
        held += size
    return [part for part in parts if len(part) > 1]


def _exchange(catalog: Catalog, members: Sequence[Entry], label: str, now_ns: int) -> None:
    """Write files as one, and have the catalog name it in their place."""
    first = members[0]
    folders = [f"{key}={value}" for key, value in _parts(first).items()]
    target = "/".join([folder_of(first.name), *folders, label])
    path = catalog.storage / target
    path.parent.mkdir(parents=True, exist_ok=True)
    _put_together(catalog, members, path)
    entry = described(path, first.name, target, schema=first.schema, is_rewritten=True)
    assert entry.rows == sum(each.rows for each in members)
    catalog.commit(at_ns=now_ns, add=[entry], remove=[each.path for each in members])


def _put_together(catalog: Catalog, members: Sequence[Entry], path: Path) -> None:
    """Write the rows of files as one, in the order of their offsets where they have such."""
    rows = pa.concat_tables([pq.ParquetFile(catalog.storage / each.path).read() for each in members], promote_options="default")
    if "offset" in rows.column_names and "partition" in rows.column_names:
        rows = rows.take(
            pc.sort_indices(rows.select(["partition", "offset"]), sort_keys=[("partition", "ascending"), ("offset", "ascending")])
        )
    beside = path.with_name(f"_{path.name}")
    try:
        pq.write_table(rows, beside, row_group_size=_ROW_GROUP_ROWS, compression="zstd")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _parts(entry: Entry) -> dict[str, str]:
    """Read the names of an entry's folders, as they are spelt on the disk."""
    return dict(part.split("=", 1) for part in entry.path.split("/")[:-1] if "=" in part)
