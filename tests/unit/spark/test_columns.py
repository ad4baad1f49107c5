"""What all sources give: the columns, the choice among them, and batches of them."""

from __future__ import annotations

import pyarrow as pa

from polymq.spark import columns
from polymq.spark.option_values import OptionReader


def test_without_a_choice_all_columns_come() -> None:
    assert columns.chosen(OptionReader({}, {})) == tuple(columns.COLUMNS)


def test_chosen_columns_keep_their_order() -> None:
    names = columns.chosen(OptionReader({"Columns": "offset, value,topic"}, {}))
    assert names == ("value", "topic", "offset")
    assert columns.spark_schema(names) == "value binary, topic string, offset bigint"
    assert columns.arrow_schema(names).names == list(names)


def test_an_unknown_column_is_named() -> None:
    reader = OptionReader({"columns": "value,body"}, {})
    columns.chosen(reader)
    assert reader.problems == [f"columns names body; there are {', '.join(columns.COLUMNS)}"]


def test_what_a_source_does_not_know_is_null_and_headers_are_empty() -> None:
    names = tuple(columns.COLUMNS)
    batch = columns.record_batch(names, 2, {"value": pa.array([b"a", b"b"], pa.binary()), "topic": "orders", "partition": 3})
    first, second = batch.to_pylist()
    assert first == dict.fromkeys(names) | {"value": b"a", "topic": "orders", "partition": 3, "headers": []}
    assert second["value"] == b"b"
    assert batch.schema == columns.arrow_schema(names)
    batch.validate(full=True)
    columns.record_batch(names, 0, {"topic": "orders"}).validate(full=True)
