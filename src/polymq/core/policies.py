"""What can be chosen about one topic or one group, as frozen values; journaled, so that it outlives the process.

The defaults are what a topic or group without a policy does, and cost nothing per message. Who carries a policy out:
`retiring.py` (too old, too often, too many), `lanes.py` (one by one for each key), `work_group.py` (the rest).
"""

from __future__ import annotations

import enum
import re
from dataclasses import asdict, dataclass
from typing import Any, Final

from polymq import limits
from polymq.errors import Refusal, RefusalCode
from polymq.wire.crc import crc32c

__all__ = ["NO_GROUP_POLICY", "NO_TOPIC_POLICY", "Expired", "Full", "GroupPolicy", "TopicPolicy", "dead_letter_name"]

_DEAD: Final = ".dead"
_NOT_PLAIN: Final = re.compile(r"[^.a-zA-Z0-9_-]")


class Expired(enum.Enum):
    """What becomes of a message that is older than its topic allows."""

    DROP = "drop"
    DEAD_LETTER = "dead-letter"


class Full(enum.Enum):
    """What becomes of a publish to a topic that holds as much as it may."""

    REJECT = "reject"
    DROP_OLDEST = "drop-oldest"


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """Choices about a work group.

    max_attempts:     a message that would be delivered once more than this goes to the dead-letter topic; 0: never
    dead_letter:      the name of that topic; empty: `dead_letter_name`
    ordered:          of the messages with the same key one is out at a time, in the order of the log
    requeue_on_close: what a consumer holds waits for another as soon as it leaves, not when its leases end; None: as the
                      broker's settings say
    """

    max_attempts: int = 0
    dead_letter: str = ""
    ordered: bool = False
    requeue_on_close: bool | None = None

    def check(self, topic: str) -> None:
        """Raise Refusal if it cannot be."""
        if not 0 <= self.max_attempts < limits.ATTEMPTS_MAX:
            raise Refusal(RefusalCode.POLICY_INVALID, f"max_attempts is between 0 and {limits.ATTEMPTS_MAX - 1}")
        if len(self.dead_letter.encode()) > limits.NAME_SIZE_BYTES_MAX:
            raise Refusal(RefusalCode.POLICY_INVALID, "the name of the dead-letter topic is too long")
        if self.dead_letter == topic:
            raise Refusal(RefusalCode.POLICY_INVALID, "a topic cannot be the dead-letter topic of its own group")

    def fields(self) -> dict[str, Any]:
        """Give what differs from the default, for the journal."""
        return {name: value for name, value in asdict(self).items() if value != getattr(NO_GROUP_POLICY, name)}

    @classmethod
    def of(cls, fields: dict[str, Any]) -> GroupPolicy:
        """Read what `fields` gave."""
        return cls(**fields) if fields else NO_GROUP_POLICY


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """Choices about a topic.

    ttl_ns:       a message older than this, counted from its append, is not delivered any more; 0: any age
    expired:      what becomes of it
    messages_max: so many messages may be unfinished (waiting, out or deferred, in the group that has most); 0: any number
    bytes_max:    about so many bytes of them, by the mean size of what the log holds; 0: any number
    full:         what happens then
    """

    ttl_ns: int = 0
    expired: Expired = Expired.DROP
    messages_max: int = 0
    bytes_max: int = 0
    full: Full = Full.REJECT

    @property
    def bounded(self) -> bool:
        """Whether there is a limit to what may be unfinished."""
        return bool(self.messages_max or self.bytes_max)

    def check(self) -> None:
        """Raise Refusal if it cannot be."""
        for name in ("ttl_ns", "messages_max", "bytes_max"):
            if not 0 <= getattr(self, name) <= limits.TIME_NS_MAX:
                raise Refusal(RefusalCode.POLICY_INVALID, f"{name} is negative or too large")

    def fields(self) -> dict[str, Any]:
        """Give what differs from the default, for the journal."""
        values = {name: value for name, value in asdict(self).items() if value != getattr(NO_TOPIC_POLICY, name)}
        return {name: value.value if isinstance(value, enum.Enum) else value for name, value in values.items()}

    @classmethod
    def of(cls, fields: dict[str, Any]) -> TopicPolicy:
        """Read what `fields` gave."""
        read = dict(fields)
        if "expired" in read:
            read["expired"] = Expired(read["expired"])
        if "full" in read:
            read["full"] = Full(read["full"])
        return cls(**read) if read else NO_TOPIC_POLICY


NO_GROUP_POLICY: Final = GroupPolicy()
NO_TOPIC_POLICY: Final = TopicPolicy()


def dead_letter_name(topic: str, group: str) -> str:
    """Name the topic for what a group could not deliver: `<topic>.<group>.dead`, in characters that everybody can spell.

    A name that is too long, or has other characters, is cut and told from others by its checksum:
    `<what is left>-<8 hexadecimal digits>.dead`, at most `limits.DEAD_LETTER_NAME_SIZE_MAX` characters.
    """
    whole = f"{topic}.{group}"
    plain = _NOT_PLAIN.sub("_", whole)
    if plain == whole and len(plain) + len(_DEAD) <= limits.DEAD_LETTER_NAME_SIZE_MAX:
        return plain + _DEAD
    mark = f"-{crc32c(whole.encode()):08x}{_DEAD}"
    return plain[: limits.DEAD_LETTER_NAME_SIZE_MAX - len(mark)] + mark
