"""Where the messages of a queue are said to be: what ids and stored messages need to know about it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from polymq.limits import PARTITION_NUMBER_MAX
from polymq.protocols.rocketmq.codes import FLAG_RESPONSE, VERSION, Language
from polymq.rocketmq_limits import TOPIC_SIZE_BYTES_MAX

__all__ = ["REGION_SIZE_BYTES_MAX", "Place"]

# What the answer to a send has room for.
REGION_SIZE_BYTES_MAX: Final = 64
_HOST_SIZE_BYTES: Final = 4
_QUEUE_ID_MAX: Final = 2**31 - 1
_BINARY_HEAD: Final = struct.Struct(">hBhiiii")


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
    # Answers to sends, up to the half of the message's id that is always the same.
    json_head: bytes = field(init=False, repr=False, compare=False)
    binary_head: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert 0 < len(self.topic) <= TOPIC_SIZE_BYTES_MAX
        assert len(self.host) == _HOST_SIZE_BYTES
        assert 0 <= self.queue_id <= _QUEUE_ID_MAX
        assert 0 <= self.partition_number <= PARTITION_NUMBER_MAX
        assert 0 <= self.port < 1 << 16
        assert len(self.region) <= REGION_SIZE_BYTES_MAX
        assert self.region.isalnum()
        address = b"%b" % (self.host + self.port.to_bytes(4, "big")).hex().upper().encode()
        object.__setattr__(self, "json_head", self._json_head(address))
        object.__setattr__(self, "binary_head", self._binary_head(address))

    def _json_head(self, address: bytes) -> bytes:
        head = b'{"code":0,"extFields":{"queueId":"%d","TRACE_ON":"true","MSG_REGION":"%b","msgId":"%b'
        return head % (self.queue_id, self.region, address)

    def _binary_head(self, address: bytes) -> bytes:
        """Write it with opaque and size of the fields 0."""
        head = _BINARY_HEAD.pack(0, Language.PYTHON, VERSION, 0, FLAG_RESPONSE, 0, 0)
        values = ((b"queueId", b"%d" % self.queue_id), (b"TRACE_ON", b"true"), (b"MSG_REGION", self.region))
        fields = b"".join([struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value for name, value in values])
        return head + fields + struct.pack(">h", 5) + b"msgId" + struct.pack(">i", 32) + address
