"""What an executor gives of pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.spark.losses import DataLoss
from polymq.spark.spooled.reading import read_pieces
from polymq.spool import folder
from tests.unit.spark.spooled.test_planning import parse, planner
from tests.unit.spool.spools import filled

if TYPE_CHECKING:
    from pathlib import Path


def test_pieces_are_read_in_order_and_a_dropped_segment_is_a_loss(tmp_path: Path) -> None:
    filled(tmp_path, [[b"%d" % n * 20] for n in range(100)])
    options = parse(tmp_path, columns="offset")
    (pieces,) = planner(tmp_path, streaming=False, startingOffsets='{"spool": {"0": 3}}').plan_batch()
    assert len(pieces) > 1
    rows = [row["offset"] for batch in read_pieces(pieces, options) for row in batch.to_pylist()]
    assert rows == list(range(3, 100))
    (tmp_path / folder.segment_name(pieces[0].base)).unlink()
    with pytest.raises(DataLoss, match="has been dropped"):
        list(read_pieces(pieces, options))
    with pytest.warns(RuntimeWarning, match="has been dropped"):
        batches = list(read_pieces(pieces, parse(tmp_path, columns="offset", failOnDataLoss="false")))
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == list(range(pieces[1].first, 100))
