"""What is sent and what is delivered. A delivered message is settled, or comes again.

Nothing here knows of connections: whoever delivers a message is told what became of it (`Settler`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from polymq.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polymq.clients.rocketmq_routes import MessageQueue

__all__ = ["OutgoingMessage", "RocketMQMessage", "SendResult", "Settler"]

# Properties that fields of OutgoingMessage stand for, or that belong to brokers and clients.
RESERVED: Final = frozenset(
    {
        "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET",
        "ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER",
        "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__SHARDINGKEY",
    }
)  # fmt: skip
_SEPARATORS: Final = ("\x01", "\x02")


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be sent: where to, what, and what is said about it.

    Messages with the same `sharding_key` go to the same queue, in order; which one is the same in Java. `delay_level`
    is 1 to 18 (1 s to 2 h), which every broker knows; `delay_ms` and `deliver_at_ms` want polymq or RocketMQ 5.

    Raises:  LocalProtocolError when two of the delays are given, or when a text cannot be sent.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    sharding_key: str | int | None = None
    delay_level: int = 0
    delay_ms: int = 0
    deliver_at_ms: int = 0
    flag: int = 0
    wait_store: bool = True  # False: the broker may answer before the message is on its disk

    def __post_init__(self) -> None:
        """Refuse what no broker would understand."""
        if min(self.delay_level, self.delay_ms, self.deliver_at_ms) < 0:
            raise LocalProtocolError("a delay is not negative")
        if sum(map(bool, (self.delay_level, self.delay_ms, self.deliver_at_ms))) > 1:
            raise LocalProtocolError("one of delay_level, delay_ms and deliver_at_ms says when a message comes")
        if any(each in RESERVED for each in self.properties):
            raise LocalProtocolError(f"these properties belong to the protocol: {sorted(RESERVED & set(self.properties))}")
        keys = (self.keys,) if isinstance(self.keys, str) else tuple(self.keys)
        texts = [self.tags, *keys, *self.properties, *self.properties.values(), str(self.sharding_key)]
        if any(separator in text for text in texts for separator in _SEPARATORS):
            raise LocalProtocolError("the characters U+0001 and U+0002 separate properties, and cannot be part of any")
        object.__setattr__(self, "keys", keys)

    @property
    def is_delayed(self) -> bool:
        """Whether it comes later than at once."""
        return bool(self.delay_level or self.delay_ms or self.deliver_at_ms)

    def all_properties(self, unique_key: str) -> dict[str, str]:
        """Make the properties that are sent, the order as Java's clients have it."""
        found = dict(self.properties)
        if self.keys:
            found["KEYS"] = " ".join(self.keys)
        if self.delay_level:
            found["DELAY"] = str(self.delay_level)
        if self.delay_ms:
            found["TIMER_DELAY_MS"] = str(self.delay_ms)
        if self.deliver_at_ms:
            found["TIMER_DELIVER_MS"] = str(self.deliver_at_ms)
        if self.sharding_key is not None:
            found["__SHARDINGKEY"] = str(self.sharding_key)
        found["UNIQ_KEY"] = unique_key
        found["WAIT"] = "true" if self.wait_store else "false"
        if self.tags:
            found["TAGS"] = self.tags
        return found


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message is: `id` is its own name, made here, `offset_id` the broker's.

    `is_safe` is False when the broker has it but could not, in time, do all that it is configured to do for it
    (`code` 10 to 12: the disk, or a copy of the broker).
    """

    id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    code: int = 0

    @property
    def is_safe(self) -> bool:
        """Whether the broker did everything."""
        return self.code == 0


class Settler(Protocol):
    """Who is told what becomes of a delivered message."""

    def settle(self, message: RocketMQMessage) -> None:
        """It is done with."""

    def requeue(self, message: RocketMQMessage, delay_level: int) -> None:
        """It is to come again."""

    def let_be(self, message: RocketMQMessage) -> None:
        """It is as if it had not been handed out."""

    def holds(self, message: RocketMQMessage) -> bool:
        """Say whether the message still counts as handed out here."""


class RocketMQMessage:
    """One delivered message.

    `topic` is the one that it was sent to, also when it comes again; `attempts` counts how often it has come, 1 the
    first time. `id` is the name its sender gave it, or the broker's, `offset_id`.
    """

    __slots__ = (
        "_settler",
        "attempts",
        "body",
        "born_ms",
        "flag",
        "given_at",
        "is_settled",
        "keys",
        "offset_id",
        "physical_offset",
        "properties",
        "queue",
        "queue_offset",
        "size",
        "stored_ms",
        "tags",
        "topic",
    )

    def __init__(
        self, topic: str, queue: MessageQueue, queue_offset: int, body: bytes, properties: dict[str, str], settler: Settler | None = None
    ) -> None:
        self.topic = topic
        self.queue = queue
        self.queue_offset = queue_offset
        self.body = body
        self.properties = properties
        self.tags = properties.get("TAGS", "")
        self.keys = tuple(properties.get("KEYS", "").split())
        self.attempts = 1
        self.flag = 0
        self.born_ms = 0
        self.stored_ms = 0
        self.physical_offset = 0
        self.offset_id = ""
        self.size = len(body)
        self.is_settled = False
        self.given_at = 0.0
        self._settler = settler

    def __repr__(self) -> str:
        """Name it; bodies are nobody's business."""
        return f"<message {self.id} of {self.topic}, {self.queue.broker_name} queue {self.queue.queue_id} offset {self.queue_offset}>"

    @property
    def id(self) -> str:
        """The name of the message: the sender's, else the broker's."""
        return self.properties.get("UNIQ_KEY") or self.offset_id

    @property
    def reconsume_times(self) -> int:
        """How often it had come before, as RocketMQ counts."""
        return self.attempts - 1

    @property
    def is_current(self) -> bool:
        """Whether settling still has an effect: its queue is still read here, and it has not been settled or given back."""
        return not self.is_settled and self._settler is not None and self._settler.holds(self)

    def settle(self) -> None:
        """Say that the message is done with; raises LocalProtocolError when it was settled or given back before."""
        self._end().settle(self)

    def requeue(self, delay_level: int = 0) -> None:
        """Have the message come again later; raises as `settle` does.

        The delay is that of the level, 1 to 18; 0 leaves it to the broker, which makes it longer each time, and a
        negative one hands the message to the dead letters at once. Ordered messages wait in their queue, and with them
        all that come behind; broadcast messages do not come again.
        """
        self._end().requeue(self, delay_level)

    def drop(self) -> None:
        """Act as if the message had never been handed out: it is given to the next who asks; raises as `settle` does."""
        self._end().let_be(self)

    def _end(self) -> Settler:
        if self._settler is None:
            raise LocalProtocolError("messages that were polled are committed, not settled")
        if self.is_settled:
            raise LocalProtocolError(f"message {self.id} has been settled or given back before")
        self.is_settled = True
        return self._settler
