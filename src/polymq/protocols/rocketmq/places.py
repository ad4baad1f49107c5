"""Where the messages of a queue are said to be: what ids and stored messages need to know about it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """One queue of one topic. Make it once and keep it: it holds for all messages.

    `host` and `port` are the address that clients know the broker by (they dial what an offset id says); `partition_number` is
    the log's number (`Log.number`), `queue_id` the partition's within the topic. `topic` is the name in RocketMQ.
    """

    topic: bytes
    queue_id: int
    partition_number: int
    host: bytes = b"\x7f\0\0\1"
    port: int = 10911
    region: bytes = b"DefaultRegion"

    def __post_init__(self) -> None:
        assert 0 < len(self.topic) <= 127
        assert len(self.host) == 4
        assert 0 <= self.queue_id < 1 << 31
