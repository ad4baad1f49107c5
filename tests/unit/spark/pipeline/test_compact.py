"""Small files: which are put together, that nothing is lost by it, and what becomes of old ones."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polymq.spark.pipeline import compact, config
from polymq.spark.pipeline.catalog import BRONZE, Catalog, Entry
from polymq.spark.pipeline.tables import described
from tests.unit.spark.pipeline.archives import bronze_file, write

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = dataclasses.replace(config.parse("", Path("/x")), files_min=2, decode="none")
DAY_NS = 86400 * 10**9
NOW_NS = round(datetime(2026, 5, 10, 6, tzinfo=UTC).timestamp()) * 10**9


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    found = Catalog(tmp_path)
    yield found
    found.close()


def entry(
    path: str, size: int = 10, *, topic: str = "a", date: str = "2026-05-01", schema: int = 0, added: int = 1, rows: int = 1
) -> Entry:
    return Entry(BRONZE, path, rows, size, topic=topic, date=date, schema=schema, added=added)


def planned(entries: list[Entry], *, files_min: int = 2, size_bytes: int = 100, through: int = 9) -> list[str]:
    sets = compact.plan(entries, files_min=files_min, size_bytes=size_bytes, through=through)
    return ["".join(each.path for each in members) for members in sets]


def test_neighbours_of_one_topic_day_and_schema_are_put_together() -> None:
    entries = [entry("a"), entry("b", topic="b"), entry("c"), entry("d", date="2026-05-02"), entry("e", topic="b"), entry("f", schema=1)]
    assert planned(entries) == ["ac", "be"]


def test_the_order_in_which_they_came_is_kept() -> None:
    assert planned([entry("a", added=3), entry("b", added=1), entry("c", added=2)]) == ["bca"]


def test_few_files_large_files_and_new_files_are_left_alone() -> None:
    assert planned([entry("a"), entry("b")], files_min=3) == []
    assert planned([entry("a", 50), entry("b", 60), entry("c")]) == []
    assert planned([entry("a"), entry("b"), entry("c", added=10)]) == ["ab"]


def test_a_set_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned([entry(name, 40) for name in "abcde"]) == ["ab", "cd"]
    # A full one is put together however few files it has.
    assert planned([entry(name, 40) for name in "abc"], files_min=8) == ["ab"]
    monkeypatch.setattr(compact, "_ROWS_MAX", 30)
    assert planned([entry(name, rows=10) for name in "abcde"]) == ["abc", "de"]


def test_nothing_is_lost_and_offsets_are_in_order(catalog: Catalog) -> None:
    late = bronze_file(catalog, range(5, 9))
    early = bronze_file(catalog, range(5))
    other = bronze_file(catalog, range(3), partition=1)
    outcome = compact.compact(catalog, SETTINGS, NOW_NS)
    assert (outcome.before, outcome.after) == (3, 1)
    (made,) = catalog.files(BRONZE)
    assert (made.rows, made.topic, made.date, made.is_rewritten, made.first_offset, made.last_offset) == (
        12,
        "orders",
        "2026-05-01",
        True,
        0,
        8,
    )
    rows = pq.ParquetFile(catalog.storage / made.path).read().to_pylist()
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [
        *((0, offset, b"%d" % offset) for offset in range(9)),
        *((1, offset, b"%d" % offset) for offset in range(3)),
    ]
    # Once more is nothing more.
    assert compact.compact(catalog, SETTINGS, NOW_NS).before == 0
    for each in (late, early, other):
        assert (catalog.storage / each.path).exists()


def test_tables_by_day_alone_are_put_together_as_well(catalog: Catalog) -> None:
    statistics_files(catalog, 3)
    assert compact.compact(catalog, SETTINGS, NOW_NS).before == 3
    (made,) = catalog.files("statistics")
    assert (made.rows, made.path.startswith("statistics/date=2026-05-01/compacted-")) == (3, True)


def test_what_silver_has_still_to_read_is_left_alone(catalog: Catalog) -> None:
    settings = dataclasses.replace(SETTINGS, decode="json")
    for number in range(4):
        bronze_file(catalog, range(number * 10, number * 10 + 10))
    catalog.commit(at_ns=1, positions={"silver/orders": 2})
    assert compact.compact(catalog, settings, NOW_NS).before == 2
    assert [each.first_offset for each in catalog.files(BRONZE, after=2, original=True)] == [20, 30]
    catalog.commit(at_ns=1, positions={"silver/orders": catalog.version()})
    assert compact.compact(catalog, settings, NOW_NS).before == 3


def statistics_files(catalog: Catalog, count: int) -> list[Path]:
    """Add so many files of statistics, each of a version of its own."""
    paths = []
    for number in range(count):
        target = f"statistics/date=2026-05-01/{number}.parquet"
        catalog.commit(at_ns=1, add=[described(write(catalog.storage / target, pa.table({"n": [number]})), "statistics", target)])
        paths.append(catalog.storage / target)
    return paths


def test_what_gold_has_still_to_see_is_left_alone(catalog: Catalog) -> None:
    for number in range(4):
        bronze_file(catalog, range(number * 10, number * 10 + 10))
    statistics_files(catalog, 3)
    catalog.commit(at_ns=1, positions={"gold": 2})
    assert compact.compact(catalog, SETTINGS, NOW_NS).before == 2
    # Of what is new to gold, everything is as it came: its days are known by that.
    new = [each for name in (BRONZE, "statistics") for each in catalog.files(name, after=2) if not each.is_rewritten]
    assert len(new) == 2 + 3
    catalog.commit(at_ns=1, positions={"gold": catalog.version()})
    assert compact.compact(catalog, SETTINGS, NOW_NS).before == 3 + 3


def test_silver_does_not_wait_for_gold(catalog: Catalog) -> None:
    for number in range(2):
        target = f"silver/orders/date=2026-05-01/{number}.parquet"
        catalog.commit(at_ns=1, add=[described(write(catalog.storage / target, pa.table({"n": [number]})), "silver/orders", target)])
    catalog.commit(at_ns=1, positions={"gold": 0})
    assert compact.compact(catalog, SETTINGS, NOW_NS).before == 2


def test_what_is_put_together_fits_in_memory_without_its_compression(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        bronze_file(catalog, range(number * 1000, number * 1000 + 1000))
    large = bronze_file(catalog, range(5000, 9000))
    footers = [pq.read_metadata(catalog.storage / each.path).row_group(0).total_byte_size for each in catalog.files(BRONZE)]
    monkeypatch.setattr(compact, "UNPACKED_BYTES_MAX", footers[0] * 5 // 2)
    outcome = compact.compact(catalog, SETTINGS, NOW_NS)
    assert (outcome.before, outcome.after) == (4, 2)
    assert sorted(each.rows for each in catalog.files(BRONZE)) == [1000, 2000, 2000, 4000]
    assert large.path in {each.path for each in catalog.files(BRONZE)}


def test_what_cannot_be_put_together_is_noted_and_the_rest_is(catalog: Catalog) -> None:
    broken = [bronze_file(catalog, range(number, number + 1), topic="broken") for number in range(2)]
    for number in range(2):
        bronze_file(catalog, range(number, number + 1), topic="whole")
    statistics_files(catalog, 2)
    content = (catalog.storage / broken[1].path).read_bytes()
    (catalog.storage / broken[1].path).write_bytes(b"nothing")
    outcome = compact.compact(catalog, SETTINGS, NOW_NS)
    assert (outcome.before, outcome.after, len(outcome.failed)) == (4, 2, 1)
    assert "topic=broken" in catalog.notes()[compact.NOTE]
    assert len(catalog.files(BRONZE, topic="broken")) == 2
    (catalog.storage / broken[1].path).write_bytes(content)
    assert compact.compact(catalog, SETTINGS, NOW_NS).failed == []
    assert catalog.notes() == {}


def test_what_could_not_be_written_leaves_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        bronze_file(catalog, range(number, number + 1))

    def write_half(_: pa.Table, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", write_half)
    assert "disk full" in compact.compact(catalog, SETTINGS, NOW_NS).failed[0]
    assert {str(path.relative_to(catalog.storage)) for path in catalog.storage.rglob("*.parquet")} == catalog.paths()


def test_what_was_replaced_stays_for_those_who_read_it(catalog: Catalog) -> None:
    files = [bronze_file(catalog, range(number, number + 1)) for number in range(2)]
    compact.compact(catalog, SETTINGS, NOW_NS)
    assert compact.sweep(catalog, NOW_NS + compact.GRACE_SECONDS * 10**9) == 0
    assert compact.sweep(catalog, NOW_NS + compact.GRACE_SECONDS * 10**9 + 1) == 2
    assert not any((catalog.storage / each.path).exists() for each in files)
    assert len(catalog.paths()) == 1


def test_first_date() -> None:
    assert compact.first_date(0, NOW_NS) < "1970"
    assert compact.first_date(86400, NOW_NS) == "2026-05-09"


def test_days_that_ended_too_long_ago_go(catalog: Catalog) -> None:
    bronze_file(catalog, range(3))
    keep = dict.fromkeys(SETTINGS.retention, 0.0)
    assert compact.expire(catalog, SETTINGS, NOW_NS) == 0
    assert compact.expire(catalog, dataclasses.replace(SETTINGS, retention=keep | {"bronze": 9 * 86400.0}), NOW_NS) == 0
    assert compact.expire(catalog, dataclasses.replace(SETTINGS, retention=keep | {"bronze": 8 * 86400.0}), NOW_NS) == 1
    assert catalog.files(BRONZE) == []


def test_what_is_too_old_is_kept_for_who_has_still_to_read_it(catalog: Catalog) -> None:
    bronze_file(catalog, range(3))
    settings = dataclasses.replace(SETTINGS, decode="json", retention=dict.fromkeys(SETTINGS.retention, 86400.0))
    catalog.commit(at_ns=1, positions={"silver/orders": 0})
    assert compact.expire(catalog, settings, NOW_NS) == 0
    catalog.commit(at_ns=1, positions={"silver/orders": 1})
    assert compact.expire(catalog, settings, NOW_NS) == 1


def test_a_topic_can_be_decoded_anew(catalog: Catalog) -> None:
    silver = Entry("silver/orders", "silver/orders/x.parquet", 1, 1, topic="orders")
    quarantine = Entry("quarantine", "quarantine/x.parquet", 1, 1, topic="orders")
    other = Entry("quarantine", "quarantine/y.parquet", 1, 1, topic="other")
    catalog.commit(at_ns=1, add=[silver, quarantine, other], positions={"silver/orders": 5})
    assert compact.rebuild(catalog, "orders", 2) == 2
    assert (catalog.position("silver/orders"), list(catalog.tables())) == (-1, ["quarantine"])
