"""Every limit that RocketMQ's part of polymq keeps, with its reason: `limits.py` for that one protocol."""

from __future__ import annotations

from typing import Final

from polymq.limits import BATCH_SIZE_BYTES_MAX, MESSAGE_SIZE_BYTES_MAX, OFFSET_BITS, PARTITION_BITS, PENDING_INPUT_SIZE_BYTES_MAX

__all__ = [
    "FRAME_SIZE_BYTES_MAX",
    "GROUP_SIZE_BYTES_MAX",
    "HEADER_SIZE_BYTES_MAX",
    "JSON_BODY_SIZE_BYTES_MAX",
    "JSON_DEPTH_MAX",
    "JSON_VALUES_MAX",
    "MESSAGE_COUNT_PER_BATCH_MAX",
    "MESSAGE_COUNT_PER_PULL_MAX",
    "PHYSICAL_OFFSET_BITS",
    "PROPERTIES_SIZE_BYTES_MAX",
    "PULL_SIZE_BYTES_MAX",
    "RECORD_SIZE_BYTES_MAX",
    "REQUESTS_PER_FEED_MAX",
    "SENDS_PER_FEED_MAX",
    "TOPICS_REMEMBERED_MAX",
    "TOPIC_SIZE_BYTES_MAX",
]

# com.rocketmq.remoting.frameMaxLength: what every real peer takes. It counts all of the frame but its first four bytes.
FRAME_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
# A real peer knows no limit but the frame's. The largest header that makes sense holds 32 KiB of properties, six bytes for each
# where JSON escapes it; and a megabyte of JSON takes 10 ms to read, during which nobody else is served.
HEADER_SIZE_BYTES_MAX: Final = 1024 * 1024
# Heartbeats and their like: a client with 1,000 groups says 500 KB. Read in one piece, so they hold up everybody.
JSON_BODY_SIZE_BYTES_MAX: Final = 1024 * 1024
# The deepest body of a real peer has 7 levels.
JSON_DEPTH_MAX: Final = 64
# Each is a Python object of 50 to 100 bytes: a body of empty lists would be a hundred times its size.
JSON_VALUES_MAX: Final = 200_000

# As RocketMQ has them. A stored message keeps a topic's size in a byte with a sign, and that of properties in two of them.
TOPIC_SIZE_BYTES_MAX: Final = 127
PROPERTIES_SIZE_BYTES_MAX: Final = 32767
# The retry topic of a group, `%RETRY%` and its name, must be possible, too.
GROUP_SIZE_BYTES_MAX: Final = 120

# A frame with one message as large as may be must fit what a client takes: larger ones, of other protocols, are passed over.
RECORD_SIZE_BYTES_MAX: Final = FRAME_SIZE_BYTES_MAX - 64 * 1024
# 4 MiB of messages without bodies are 200,000; a real client puts at most some thousands into one.
MESSAGE_COUNT_PER_BATCH_MAX: Final = 65_536
# maxTransferCountOnMessageInMemory and maxTransferBytesOnMessageInMemory of RocketMQ 4.9.8.
MESSAGE_COUNT_PER_PULL_MAX: Final = 32
PULL_SIZE_BYTES_MAX: Final = 256 * 1024

# What one feed decodes before the gateway acts on it: columns of 40 bytes for each send, an object for each other request.
SENDS_PER_FEED_MAX: Final = 4096
REQUESTS_PER_FEED_MAX: Final = 128
# A decoder remembers the topics that its client sends to, and forgets all of them when there are more.
TOPICS_REMEMBERED_MAX: Final = 1024

# A message's physical offset is its partition's number and the lower bits of its offset. JavaScript's numbers hold 53 bits.
# So a message is found again as long as its partition keeps fewer than 2,147,483,648 behind it.
PHYSICAL_OFFSET_BITS: Final = 53 - PARTITION_BITS

assert 24 <= PHYSICAL_OFFSET_BITS <= OFFSET_BITS
assert FRAME_SIZE_BYTES_MAX <= PENDING_INPUT_SIZE_BYTES_MAX
assert HEADER_SIZE_BYTES_MAX > 6 * PROPERTIES_SIZE_BYTES_MAX
assert FRAME_SIZE_BYTES_MAX < BATCH_SIZE_BYTES_MAX or RECORD_SIZE_BYTES_MAX > MESSAGE_SIZE_BYTES_MAX
assert len("%RETRY%") + GROUP_SIZE_BYTES_MAX <= TOPIC_SIZE_BYTES_MAX
