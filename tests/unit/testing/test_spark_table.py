"""The judge of what Spark has written sees what is lost, what is there twice, and what does not belong to the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.crash.spark_table import committed_files, committed_rows, faults

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENDS = {("a", 0): 3, ("a", 1): 2}
# Number, partition, offset.
RIGHT = [(10, 0, 0), (11, 0, 1), (13, 0, 2), (12, 1, 0), (15, 1, 1)]
SENT = range(10, 17)
ACKNOWLEDGED = {10, 11, 12, 13}


def table(rows: Sequence[tuple[int, int, int]]) -> pa.Table:
    """A table of topic `a`."""
    arrays = {
        "topic": pa.array(["a"] * len(rows), pa.string()),
        "partition": pa.array([row[1] for row in rows], pa.int32()),
        "offset": pa.array([row[2] for row in rows], pa.int64()),
        "value": pa.array([b"%d of ours" % row[0] for row in rows], pa.binary()),
    }
    return pa.table(arrays)


def found(rows: Sequence[tuple[int, int, int]]) -> list[str]:
    return faults(table(rows), value="value", sent=SENT, acknowledged=ACKNOWLEDGED, ends=ENDS)


def test_what_is_acknowledged_and_may_be_what_is_in_doubt_is_right() -> None:
    assert found(RIGHT) == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        pytest.param(RIGHT[1:], ["1 acknowledged and not in the table: 10", "a/0: 2 rows, 2 of them different, of 3 offsets"], id="lost"),
        pytest.param(
            [*RIGHT, RIGHT[0]], ["1 more than once in the table: 10", "a/0: 4 rows, 3 of them different, of 3 offsets"], id="twice"
        ),
        pytest.param([*RIGHT[:4], (99, 1, 1)], ["1 in the table, and never sent: 99"], id="unknown"),
        pytest.param(RIGHT[:4], ["a/1: 1 rows, 1 of them different, of 2 offsets"], id="in the log, and in doubt"),
        pytest.param([*RIGHT, (16, 2, 0)], ["a/2: 1 rows, 1 of them different, of 0 offsets"], id="of no log"),
        pytest.param([*RIGHT[:4], (15, 1, 5)], ["a/1: 2 rows, 2 of them different, of 2 offsets"], id="another offset"),
        pytest.param([], ["the table is empty, and 4 messages are acknowledged"], id="empty"),
    ],
)
def test_what_is_wrong_is_said(rows: list[tuple[int, int, int]], said: list[str]) -> None:
    assert found(rows) == said


def test_a_partition_that_is_wholly_missing_is_said() -> None:
    assert found([row for row in RIGHT if row[1] == 0])[-1] == "a/1: 0 rows, 0 of them different, of 2 offsets"


def entries(*names: str, version: str = "v1") -> str:
    return "\n".join([version, *(json.dumps({"path": f"file:///somewhere/{name}", "action": "add"}) for name in names)])


def test_only_what_spark_has_committed_is_read(tmp_path: Path) -> None:
    assert committed_files(tmp_path) == []
    assert committed_rows(tmp_path, ["offset"]).num_rows == 0
    listed = tmp_path / "_spark_metadata"
    listed.mkdir()
    for number, name in enumerate(["first", "second of two", "third", "left behind"]):
        pq.write_table(table([(10 + number, 0, number)]), tmp_path / name)
    # The sum of the batches 0 and 1 stands for them; a name has its blanks as URLs have them.
    listed.joinpath("0").write_text(entries("first"))
    listed.joinpath("1").write_text(entries("second%20of%20two"))
    listed.joinpath("1.compact").write_text(entries("first", "second%20of%20two"))
    listed.joinpath("2").write_text(entries("third"))
    listed.joinpath(".3.tmp").write_text(entries("left behind"))
    assert [each.name for each in committed_files(tmp_path)] == ["first", "second of two", "third"]
    assert committed_rows(tmp_path, ["offset"])["offset"].to_pylist() == [0, 1, 2]


def test_a_list_of_another_version_is_not_guessed_at(tmp_path: Path) -> None:
    listed = tmp_path / "_spark_metadata"
    listed.mkdir()
    listed.joinpath("0").write_text(entries("first", version="v2"))
    with pytest.raises(ValueError, match="unknown version 'v2'"):
        committed_files(tmp_path)
