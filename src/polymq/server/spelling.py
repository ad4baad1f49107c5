"""What a topic is called in each protocol, and which topic a name stands for there: one table of what the protocols' own rules say.

Every name that a protocol can say stands for one topic, and is spelt the same again. A topic whose name a protocol cannot spell is not
there for its clients. docs/CONVERSIONS.md shows samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.core.live_store import is_live_name
from polymq.limits import NAME_SIZE_BYTES_MAX
from polymq.protocols.nats.subjects import is_valid_literal
from polymq.protocols.nsq.names import is_valid_name
from polymq.protocols.phpmq.names import queue_of, topic_of
from polymq.protocols.rocketmq.names import is_valid_topic, to_core, to_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SPELLERS", "Speller"]


@dataclass(frozen=True, slots=True)
class Speller:
    """One protocol's names. `spell`: a topic's name there, None if it has none; `read`: the topic of a name, None if it stands for none."""

    spell: Callable[[str], bytes | None]
    read: Callable[[bytes], str | None]


def _nsq_spell(topic: str) -> bytes | None:
    name = topic.encode()
    return name if is_valid_name(name) else None


def _nsq_read(name: bytes) -> str | None:
    return name.decode() if is_valid_name(name) else None


def _nats_spell(topic: str) -> bytes | None:
    name = topic.encode()
    return name if 0 < len(name) <= NAME_SIZE_BYTES_MAX and is_valid_literal(name) and is_live_name(name) else None


def _nats_read(subject: bytes) -> str | None:
    return subject.decode() if is_live_name(subject) and _nats_spell(subject.decode()) is not None else None


def _rocketmq_spell(topic: str) -> bytes | None:
    name = to_topic(topic)
    return None if name is None else name.encode()


def _rocketmq_read(name: bytes) -> str | None:
    return to_core(name.decode()) if name.isascii() and is_valid_topic(name.decode()) else None


SPELLERS: Final[Mapping[str, Speller]] = {
    "NSQ": Speller(_nsq_spell, _nsq_read),
    "NATS": Speller(_nats_spell, _nats_read),
    "RocketMQ": Speller(_rocketmq_spell, _rocketmq_read),
    "PHPMQ": Speller(queue_of, topic_of),
}
