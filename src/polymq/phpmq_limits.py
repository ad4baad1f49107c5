"""The limits of PHPMQ, with their reasons: what `limits.py` is to everything, and under the same rules."""

from __future__ import annotations

from typing import Final

from polymq.limits import (
    MESSAGE_SIZE_BYTES_MAX,
    NAME_SIZE_BYTES_MAX,
    PENDING_INPUT_SIZE_BYTES_MAX,
)

__all__ = [
    "COMMANDS_PER_TURN_MAX",
    "COMMAND_LINE_SIZE_BYTES_MAX",
    "CONTENT_SIZE_BYTES_MAX",
    "EVENTS_PER_STEP_MAX",
    "HEAD_SIZE_BYTES",
    "ID_SIZE_BYTES_MAX",
    "LISTED_MESSAGES_MAX",
    "LISTED_QUEUES_MAX",
    "MESSAGE_HEAD_SIZE_BYTES",
    "MESSAGE_OVERHEAD_BYTES_MAX",
    "NUMBER_SIZE_BYTES_MAX",
    "QUEUES_KNOWN_MAX",
    "QUEUES_MADE_PER_TURN_MAX",
    "QUEUE_SIZE_BYTES_MAX",
    "RUN_SIZE_BYTES_MAX",
    "TTL_S_MAX",
    "WINDOW_MAX",
]

# The two heads of the wire: "H" with 2 + 3 + 2 digits, "P" with 2 + 29 digits.
MESSAGE_HEAD_SIZE_BYTES: Final = 8
HEAD_SIZE_BYTES: Final = 32
# A queue is a topic, and a topic's name has at most so many bytes.
QUEUE_SIZE_BYTES_MAX: Final = NAME_SIZE_BYTES_MAX
# An id has 32 bytes. Others are somebody else's and are ignored, up to here; nobody has longer ones.
ID_SIZE_BYTES_MAX: Final = 255
# A TTL or a count: what 63 bits can have, and no more digits than PHP's integers.
NUMBER_SIZE_BYTES_MAX: Final = 19
# The content of one message. The whole message has to fit what may wait of one connection's input.
CONTENT_SIZE_BYTES_MAX: Final = MESSAGE_SIZE_BYTES_MAX
MESSAGE_OVERHEAD_BYTES_MAX: Final = (
    MESSAGE_HEAD_SIZE_BYTES + 3 * HEAD_SIZE_BYTES + QUEUE_SIZE_BYTES_MAX + ID_SIZE_BYTES_MAX + NUMBER_SIZE_BYTES_MAX
)
# Messages of one event are appended as one batch: so large that its costs do not count, so small that readers get on.
RUN_SIZE_BYTES_MAX: Final = 1024 * 1024
# Ten years in seconds. Beyond it a TTL is a mistake, and i64 nanoseconds would not be far.
TTL_S_MAX: Final = 3650 * 86_400
# Messages that one consumer may have out, at 7 bytes each here; the reference server has no limit, and nobody asks for more.
WINDOW_MAX: Final = 1_000_000
# Names of queues that a connection is known to use: anybody may name any number of them.
QUEUES_KNOWN_MAX: Final = 1024
# Queues that one connection makes in a turn, at a quarter of a millisecond each; and events of it that are decoded before it is
# seen how many it has made, so that it makes twice as many at the most.
QUEUES_MADE_PER_TURN_MAX: Final = 32
EVENTS_PER_STEP_MAX: Final = 32
# A line of the maintenance console: the longest name, and a command.
COMMAND_LINE_SIZE_BYTES_MAX: Final = 1024
# Commands of one console that are carried out in a turn: each may look at a thousand queues.
COMMANDS_PER_TURN_MAX: Final = 16
# What one command shows: a screen or a few; a millisecond or a few.
LISTED_MESSAGES_MAX: Final = 250
LISTED_QUEUES_MAX: Final = 1000

assert CONTENT_SIZE_BYTES_MAX + MESSAGE_OVERHEAD_BYTES_MAX <= PENDING_INPUT_SIZE_BYTES_MAX
assert TTL_S_MAX * 1_000_000_000 < 1 << 62
assert COMMAND_LINE_SIZE_BYTES_MAX >= QUEUE_SIZE_BYTES_MAX + 32
