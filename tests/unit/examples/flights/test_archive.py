from __future__ import annotations

import json

from examples.flights.archive import archived_offset


def test_progress_tells_how_far_the_archive_is() -> None:
    end = {"flights": {"0": {"offset": 5, "epoch": 1, "log": 1}, "1": {"offset": 7, "epoch": 1, "log": 2}}}
    assert archived_offset(None) == 0
    assert archived_offset({"sources": [{"endOffset": None}]}) == 0
    assert archived_offset({"sources": [{"endOffset": end}]}) == 12
    assert archived_offset({"sources": [{"endOffset": json.dumps(end)}]}) == 12
