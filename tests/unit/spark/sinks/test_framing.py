from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from polymq import limits
from polymq.clients.prepared import EXPIRES, LATER
from polymq.spark.sinks import framing as framing_module
from polymq.spark.sinks.columns import Taken, table_of
from polymq.spark.sinks.framing import Framing
from polymq.wire.crc import crc32c
from polymq.wire.records import check, parse_header, read_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.clients.prepared import Frame

NOW_NS = 1_800_000_000_000_000_000
COUNTS = {"t": 3, "u": 1, "v": 256}


class Requests:
    """Takes requests apart again."""

    def __init__(self) -> None:
        self.sent: list[list[Frame]] = []
        self.asked: list[str] = []
        self.framing = Framing(self._partitions, lambda frames: self.sent.append(list(frames)))

    def _partitions(self, topics: Sequence[str]) -> dict[str, int]:
        self.asked += topics
        return {topic: COUNTS[topic] for topic in topics}

    def take(self, **columns: Any) -> None:
        batch = pa.RecordBatch.from_pydict(columns)
        self.framing.add(table_of(batch, Taken(tuple(columns)), "t", NOW_NS))

    def rows(self) -> dict[tuple[str, int, int], list[bytes]]:
        self.framing.finish()
        found: dict[tuple[str, int, int], list[bytes]] = {}
        for topic, partition, flags, data in (frame for frames in self.sent for frame in frames):
            assert check(data, 0, len(data)) is None
            header = parse_header(data, 0)
            bodies = [message.body for message in read_messages(data, 0, 0, 0, header.count, len(data))]
            found.setdefault((topic, partition, flags), []).extend(bodies)
        return found


def test_rows_without_a_key_go_anywhere_together() -> None:
    requests = Requests()
    requests.take(value=["a", "b"])
    requests.take(value=["c"])
    assert requests.rows() == {("t", -1, 0): [b"a", b"b", b"c"]}
    assert requests.asked == []
    assert requests.framing.rows == 3


def test_rows_go_by_topic_partition_key_and_time_and_stay_in_order() -> None:
    requests = Requests()
    topics, keys = ["t", "u", "v"] * 40, [f"k{row % 7}" if row % 5 else None for row in range(120)]
    values = [str(row) for row in range(120)]
    partitions = [0 if row % 11 == 0 else None for row in range(120)]
    delays = [1000 if row % 13 == 0 else 0 for row in range(120)]
    requests.take(value=values, topic=topics, key=keys, partition=pa.array(partitions, pa.int32()), delay_ms=delays)
    wanted: dict[tuple[str, int, int], list[bytes]] = {}
    for value, topic, key, partition, delay in zip(values, topics, keys, partitions, delays, strict=True):
        place = partition if partition is not None else -1 if key is None else crc32c(key.encode()) % COUNTS[topic]
        wanted.setdefault((topic, place, LATER if delay else 0), []).append(value.encode())
    assert requests.rows() == wanted
    assert sorted(requests.asked) == ["t", "u", "v"]


def test_batches_and_requests_have_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing_module, "_REQUEST_SIZE_BYTES", 600_000)
    requests = Requests()
    values = [b"%07d" % row + b"x" * 993 for row in range(1500)]
    requests.take(value=values, ttl_seconds=[60] * 1500)
    assert requests.rows() == {("t", -1, EXPIRES): values}
    sizes = [len(frame[3]) for frames in requests.sent for frame in frames]
    assert all(limits.BATCH_SIZE_BYTES_TARGET <= size < limits.BATCH_SIZE_BYTES_TARGET + 2000 for size in sizes[:-1])
    assert [len(frames) for frames in requests.sent] == [3, 3]


def test_a_large_row_is_taken_and_one_that_is_too_large_refused() -> None:
    requests = Requests()
    requests.take(value=[b"x" * limits.MESSAGE_SIZE_BYTES_MAX, b"y"])
    assert [len(body) for body in requests.rows()["t", -1, 0]] == [limits.MESSAGE_SIZE_BYTES_MAX, 1]
    with pytest.raises(ValueError, match="8388609 bytes"):
        requests.take(value=[b"x" * (limits.MESSAGE_SIZE_BYTES_MAX + 1)])
    with pytest.raises(ValueError, match="too large for a message"):
        requests.take(value=[b"x"], key=[b"k" * (1 << 24)])


def test_many_targets_are_not_kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing_module, "_OPEN_MAX", 4)
    requests = Requests()
    requests.take(value=[str(row) for row in range(20)], partition=list(range(20)), topic=["v"] * 20)
    assert requests.rows() == {("v", row, 0): [str(row).encode()] for row in range(20)}


@pytest.mark.parametrize("columns", [{"topic": [""]}, {"partition": [3]}, {"partition": [-1]}])
def test_places_that_are_none_are_refused(columns: dict[str, list[Any]]) -> None:
    with pytest.raises(ValueError, match="a row has"):
        Requests().take(value=["a"], **columns)
