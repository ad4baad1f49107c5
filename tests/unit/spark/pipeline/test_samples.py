"""Samples of a broker's statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from polymq.clients.log import Family
from polymq.spark.pipeline.catalog import Catalog
from polymq.spark.pipeline.samples import sample, stage_sample

if TYPE_CHECKING:
    from pathlib import Path

GROUP = {"namespace": "", "topic": "orders", "group": "billing"}
FAMILIES = [
    Family("polymq_topics", "gauge", "", (({}, 3.0),)),
    Family("polymq_group_settled_total", "counter", "", ((GROUP, 7.0), ({}, 100.0))),
    Family("polymq_group_depth_messages", "gauge", "", ((GROUP, 2.0), ({**GROUP, "group": "other"}, 5.0))),
    Family(
        "polymq_group_latency_seconds",
        "gauge",
        "",
        (({**GROUP, "quantile": "0.99"}, 0.5), ({**GROUP, "quantile": "1"}, 9.0), ({**GROUP, "quantile": "?"}, 9.0)),
    ),
    Family("process_start_time_seconds", "gauge", "", (({}, 1234.5),)),
]
AT_NS = 1_777_000_000_000_000_000


def test_each_group_is_a_row_and_what_is_not_told_is_null() -> None:
    first, second = sample(FAMILIES, AT_NS).to_pylist()
    assert (first["topic"], first["group"], first["settled"], first["depth"], first["latency_p99"]) == ("orders", "billing", 7.0, 2.0, 0.5)
    assert (first["latency_p50"], first["requeues"], first["started_at"]) == (None, None, 1234.5)
    assert (second["group"], second["settled"], second["depth"]) == ("other", None, 5.0)
    assert first["sampled_at"].timestamp() == AT_NS / 1e9


def test_a_sample_is_a_file_of_its_day(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    (entry,) = stage_sample(catalog, sample(FAMILIES, AT_NS), AT_NS)
    assert (entry.name, entry.rows, entry.date) == ("statistics", 2, "2026-04-24")
    assert pq.ParquetFile(tmp_path / entry.path).metadata.num_rows == 2
    assert stage_sample(catalog, sample([], AT_NS), AT_NS) == []
    catalog.close()
