"""Which names topics and groups have in RocketMQ, what they are called in the core, and how tags are hashed.

RocketMQ spells topics with letters, digits and `%|_-`. A topic of the core has its name there, but for other ASCII characters: these are
`%` and two upper-case hexadecimal digits (`a.b` is `a%2Eb`). So every name in RocketMQ stands for one topic of the core; one
in the core that is too long, or not ASCII, has none.

Source: RocketMQ 4.9.8, TopicValidator, MixAll, MessageExtBrokerInner.
"""

from __future__ import annotations

import re
from typing import Final

from polymq.rocketmq_limits import GROUP_SIZE_BYTES_MAX, TOPIC_SIZE_BYTES_MAX

__all__ = [
    "AUTO_CREATE_TOPIC",
    "DEAD_LETTER_PREFIX",
    "INNER_PRODUCER_GROUP",
    "NOT_TO_BE_SENT_TO",
    "RETRY_PREFIX",
    "SCHEDULE_TOPIC",
    "SYSTEM_TOPICS",
    "dead_letter_topic",
    "group_of",
    "group_problem",
    "is_dead_letter_topic",
    "is_retry_topic",
    "is_system_topic",
    "is_valid_group",
    "is_valid_topic",
    "retry_topic",
    "send_problem",
    "tag_hash",
    "tag_hash_bytes",
    "to_core",
    "to_topic",
    "topic_problem",
]

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_" + 4 * "X"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
NOT_TO_BE_SENT_TO: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)

_PATTERN: Final = "^[%|a-zA-Z0-9_-]+$"
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_SPELT: Final = frozenset("%|_-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
# The escapes of all ASCII characters that cannot be spelt.
_ESCAPED: Final = "|".join(f"{code:02X}" for code in range(128) if chr(code) not in _SPELT)
# What the core spells as an escape is written with a `25` (of `%`) more than it has already.
_ESCAPE: Final = re.compile(rf"%((?:25)*)({_ESCAPED})")
_TO_WRITE: Final = re.compile(rf"[^%|a-zA-Z0-9_-]|%(?=(?:25)*(?:{_ESCAPED}))")


def topic_problem(topic: str) -> str | None:
    """Say what a real broker says of a name that no topic can have; None if one can."""
    if not topic.strip():
        return "The specified topic is blank."
    if _NAME.fullmatch(topic) is None:
        return f"The specified topic contains illegal characters, allowing only {_PATTERN}"
    if len(topic) > TOPIC_SIZE_BYTES_MAX:
        return "The specified topic is longer than topic max length."
    return None


def group_problem(group: str) -> str | None:
    """Say what is wrong with a group's name; None if nothing is."""
    if not group.strip():
        return "the specified group is blank"
    if _NAME.fullmatch(group) is None:
        return f"the specified group[{group}] contains illegal characters, allowing only {_PATTERN}"
    if len(group) > GROUP_SIZE_BYTES_MAX:
        return "the specified group is longer than group max length"
    return None


def send_problem(topic: str) -> str | None:
    """Say what a real broker says of a topic that is not for clients to send to (NO_PERMISSION); None if it is."""
    return f"Sending message to topic[{topic}] is forbidden." if topic in NOT_TO_BE_SENT_TO else None


def is_valid_topic(topic: str) -> bool:
    """Say whether a topic may be called that."""
    return topic_problem(topic) is None


def is_valid_group(group: str) -> bool:
    """Say whether a group may be called that."""
    return group_problem(group) is None


def is_system_topic(topic: str) -> bool:
    """Say whether a topic is the broker's own: clients may not create or delete it."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def retry_topic(group: str) -> str:
    """Name the topic of what a group has sent back."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Name the topic of what a group has given up."""
    return DEAD_LETTER_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    """Say whether a topic is some group's for what it sent back."""
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter_topic(topic: str) -> bool:
    """Say whether a topic is some group's for what it gave up."""
    return topic.startswith(DEAD_LETTER_PREFIX)


def group_of(topic: str) -> str | None:
    """Name the group whose retry or dead-letter topic this is; None if it is neither."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return None


def to_topic(core_name: str) -> str | None:
    """Name a topic of the core as RocketMQ can spell it; None if it cannot: not ASCII, or too long."""
    prefix, rest = _cut_prefix(core_name)
    if not core_name.isascii():
        return None
    topic = prefix + _TO_WRITE.sub(_escape, rest)
    # What looks like a retry topic only when it is written is none.
    if not topic or len(topic) > TOPIC_SIZE_BYTES_MAX or _cut_prefix(topic)[0] != prefix:
        return None
    return topic


def to_core(topic: str) -> str:
    """Name the topic of the core that a valid name in RocketMQ stands for."""
    prefix, rest = _cut_prefix(topic)
    return prefix + _ESCAPE.sub(_unescape, rest)


def _cut_prefix(name: str) -> tuple[str, str]:
    """Part a retry or dead-letter topic from its group, so that no escape begins in the one and ends in the other."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _escape(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def _unescape(found: re.Match[str]) -> str:
    return "%" + found[1][2:] + found[2] if found[1] else chr(int(found[2], 16))


def tag_hash(tags: str) -> int:
    """Hash a message's tags as the real broker does: Java's String.hashCode, a number of 32 bits with a sign; 0 for none."""
    code = 0
    units = tags.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code - (code >> 31 << 32)


def tag_hash_bytes(tags: bytes) -> int:
    """Do the same for tags in UTF-8; what is none counts as Java reads it."""
    return tag_hash(tags.decode("utf-8", "replace"))
