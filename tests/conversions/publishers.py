"""How each protocol says a message: what it has no field for is not asked of it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymq.protocols.phpmq import frames as phpmq

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conversions.world import World

__all__ = ["FIELDS", "PUBLISHERS", "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """A message, and what it is to have."""

    body: bytes = b"body"
    key: str = ""
    tags: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    reply: str = ""
    ttl_s: int = 0
    delay_s: int = 0
    packed: bool = False  # by the client


# Which of these each protocol can say.
FIELDS = {
    "NSQ": frozenset({"delay_s"}),
    "NATS": frozenset({"tags", "headers", "reply"}),
    "RocketMQ": frozenset({"key", "tags", "headers", "reply", "delay_s", "packed"}),
    "PHPMQ": frozenset({"ttl_s"}),
}


def _nsq(world: World, sample: Sample) -> None:
    verb = b"DPUB %b %d" % (world.topic.encode(), 1000 * sample.delay_s) if sample.delay_s else b"PUB %b" % world.topic.encode()
    world.say("NSQ", verb + b"\n" + struct.pack(">I", len(sample.body)) + sample.body)


def _nats(world: World, sample: Sample) -> None:
    headers = (("TAGS", sample.tags), *sample.headers) if sample.tags else sample.headers
    names = b" ".join([world.topic.encode(), *([sample.reply.encode()] if sample.reply else [])])
    if headers:
        lines = b"".join([f"{name}: {value}\r\n".encode("utf-8", "surrogateescape") for name, value in headers])
        block = b"NATS/1.0\r\n" + lines + b"\r\n"
        data = b"HPUB %b %d %d\r\n" % (names, len(block), len(block) + len(sample.body)) + block
    else:
        data = b"PUB %b %d\r\n" % (names, len(sample.body))
    world.nats_publisher.say(data + sample.body + b"\r\n")


def _rocketmq(world: World, sample: Sample) -> None:
    properties = {"UNIQ_KEY": "C0A80001", "WAIT": "true"}
    properties |= {"KEYS": sample.key} if sample.key else {}
    properties |= {"TAGS": sample.tags} if sample.tags else {}
    properties |= {"reply-to": sample.reply} if sample.reply else {}
    properties |= {"TIMER_DELAY_SEC": str(sample.delay_s)} if sample.delay_s else {}
    properties |= dict(sample.headers)
    raw = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    answer = world.rocketmq.put(world.topic, sample.body, properties=raw, f=0x301 if sample.packed else 0)
    assert answer.code == 0, answer


def _phpmq(world: World, sample: Sample) -> None:
    world.say("PHPMQ", phpmq.send(world.topic, sample.body, ttl_s=sample.ttl_s))


PUBLISHERS: dict[str, Callable[[World, Sample], None]] = {"NSQ": _nsq, "NATS": _nats, "RocketMQ": _rocketmq, "PHPMQ": _phpmq}
