"""Messages that are to be delivered later: by a level (property DELAY), or at a time of their own (5.x's TIMER_…).

They wait in the core's schedule (ADR 0007) of the very queue that they are for, and are appended to it when they are
due, as they lie there. So they get now what a real broker has given them by then: REAL_TOPIC, REAL_QID and the level.
What the producer is told is the message's place in the schedule, and the queue that it is for, as a real broker does.

Source: RocketMQ 4.9.8, CommitLog.asyncPutMessage, ScheduleMessageService; 5.3.3, HookUtils.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.gateways.rocketmq.answers import Answer, Stumble
from polymq.gateways.rocketmq.sends import Stored, extra_of, send_answer
from polymq.limits import OFFSET_BITS, OFFSET_MAX
from polymq.protocols.rocketmq import properties as names
from polymq.protocols.rocketmq.codes import ResponseCode
from polymq.protocols.rocketmq.ids import physical_offset
from polymq.protocols.rocketmq.stored import ORIGIN_ROCKETMQ, make_message
from polymq.rocketmq_limits import DELAY_LEVELS_MAX, PROPERTIES_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.gateways.rocketmq.sends import Sending

__all__ = ["DEFAULT_LEVELS", "DEFAULT_TIMER_NS_MAX", "Deferred", "Delays", "Illegal", "parse_levels"]

DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DEFAULT_TIMER_NS_MAX: Final = 3 * 24 * 3600 * 1_000_000_000

_NS_PER_MS: Final = 1_000_000
_UNITS_NS: Final = {"s": 1_000_000_000, "m": 60_000_000_000, "h": 3_600_000_000_000, "d": 86_400_000_000_000}
_LEVEL: Final = re.compile(r"([0-9]{1,9})([smhd])")
# What Java's parseInt and parseLong take.
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
# A real broker leaves out a timer that has been set by a broker already (it would go round and round).
_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
# A real broker drops the waiting message of this name, and delivers nothing.
_RECALL: Final = "TIMER_DEL_UNIQKEY"
_TIMERS: Final = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)


def parse_levels(text: str) -> tuple[int, ...]:
    """Read `1s 5s 10s …` as nanoseconds, level 1 first; raises ValueError, with what is wrong."""
    levels: list[int] = []
    for word in text.split():
        found = _LEVEL.fullmatch(word)
        if found is None:
            raise ValueError(f"{word} is no time: a number and s, m, h or d")
        levels.append(int(found[1]) * _UNITS_NS[found[2]])
    if not 0 < len(levels) <= DELAY_LEVELS_MAX:
        raise ValueError(f"there must be 1 to {DELAY_LEVELS_MAX} levels")
    return tuple(levels)


@dataclass(frozen=True, slots=True)
class Deferred:
    """A message is to wait so long, and has these properties then."""

    delay_ns: int
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class Illegal:
    """A message cannot be taken as it is; the real broker's code and remark."""

    code: ResponseCode
    remark: str


class Delays:
    """How long messages wait. `timer_ns_max` is RocketMQ's timerMaxDelaySec."""

    def __init__(self, levels: tuple[int, ...] = parse_levels(DEFAULT_LEVELS), *, timer_ns_max: int = DEFAULT_TIMER_NS_MAX) -> None:
        assert 0 < len(levels) <= DELAY_LEVELS_MAX
        self._levels = levels
        self._timer_ns_max = timer_ns_max

    def level_max(self) -> int:
        """Say which is the last level."""
        return len(self._levels)

    def arrange(self, properties: Mapping[str, str], *, topic: str, queue_id: int, now_ms: int) -> Deferred | Illegal | None:
        """Decide when a message is due that is for this queue; None: at once."""
        level = _number(properties.get(names.DELAY, "0"), _INT_MAX)
        if level is None:
            text = properties[names.DELAY]
            return Illegal(ResponseCode.SYSTEM_ERROR, f'java.lang.NumberFormatException: For input string: "{text[:64]}"')
        if level > 0:
            return self._by_level(level, properties, topic, queue_id)
        if names_any(properties) and _TIMER_OUT_MS not in properties:
            return self._by_time(properties, topic, queue_id, now_ms)
        return None

    def take(self, client: RocketmqClient, sending: Sending) -> Answer | None:
        """Take a message that has been checked, for a topic that is there; None: it is due at once, store it as any other. Raises Refusal."""
        house = client.house
        queue_id = sending.queue_id
        if queue_id < 0:
            queue_id = house.random.randrange(house.topics.queues(client.session, sending.topic) or 1)
        said = names.parse(sending.properties)
        arranged = self.arrange(said, topic=sending.topic, queue_id=queue_id, now_ms=house.clock.wall_ns() // _NS_PER_MS)
        if arranged is None:
            return None
        if isinstance(arranged, Illegal):
            if arranged.code is ResponseCode.SYSTEM_ERROR:
                raise Stumble(arranged.remark)
            return Answer(arranged.code, arranged.remark)
        raw = names.encode({**arranged.properties, names.CLUSTER: house.facts.cluster})
        if len(raw) > PROPERTIES_SIZE_BYTES_MAX:
            return Answer(ResponseCode.MESSAGE_ILLEGAL, f"msg properties length limit {PROPERTIES_SIZE_BYTES_MAX}B.")
        ticket, message_id = client.session.publish_later(
            house.topics.core_name(sending.topic),
            queue_id,
            [make_message(sending.body, extra_of(client, sending, raw), unpacked_size_max=house.settings.body_size_bytes_max)],
            origin=ORIGIN_ROCKETMQ,
            delay_ns=arranged.delay_ns,
        )
        offset = message_id & OFFSET_MAX
        return send_answer(client, Stored(ticket, queue_id, offset, physical_offset(message_id >> OFFSET_BITS, offset)), sending)

    def _by_level(self, level: int, properties: Mapping[str, str], topic: str, queue_id: int) -> Deferred:
        level = min(level, len(self._levels))
        kept = {name: value for name, value in properties.items() if name not in _TIMERS}
        kept |= {names.DELAY: str(level), names.REAL_TOPIC: topic, names.REAL_QUEUE_ID: str(queue_id)}
        return Deferred(self._levels[level - 1], kept)

    def _by_time(self, properties: Mapping[str, str], topic: str, queue_id: int, now_ms: int) -> Deferred | Illegal | None:
        due_ms = _due_ms(properties, now_ms)
        if due_ms is None or (due_ms - now_ms) * _NS_PER_MS > self._timer_ns_max:
            most_ms = self._timer_ns_max // _NS_PER_MS
            remark = (
                f"timer message illegal, the delay time should not be bigger than the max delay {most_ms}ms; "
                "or if set del msg, the delay time should be bigger than the current time"
            )
            return Illegal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if _RECALL in properties:
            return Illegal(ResponseCode.MESSAGE_ILLEGAL, "recalling a timer message is not supported")
        if due_ms <= now_ms:
            return None
        added = {_TIMER_OUT_MS: str(due_ms), names.REAL_TOPIC: topic, names.REAL_QUEUE_ID: str(queue_id)}
        return Deferred((due_ms - now_ms) * _NS_PER_MS, {**properties, **added})


def names_any(properties: Mapping[str, str]) -> bool:
    """Say whether a message has a time of its own."""
    return any(name in properties for name in _TIMERS)


def _due_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Say when a message is due by the first of its timers; None if that is no number."""
    if names.TIMER_DELAY_SEC in properties:
        seconds = _number(properties[names.TIMER_DELAY_SEC], _LONG_MAX)
        return None if seconds is None else now_ms + 1000 * seconds
    if names.TIMER_DELAY_MS in properties:
        milliseconds = _number(properties[names.TIMER_DELAY_MS], _LONG_MAX)
        return None if milliseconds is None else now_ms + milliseconds
    return _number(properties[names.TIMER_DELIVER_MS], _LONG_MAX)


def _number(text: str, largest: int) -> int | None:
    """Read a number as Java does; None if it is none, or too large."""
    if _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -largest - 1 <= number <= largest else None
