"""RocketMQ behind the one API: headers are properties, retries go by the levels of its brokers; `rocketmq.py` does the work."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq.clients.broker_messages import BrokerMessage, OneByOne, cut, in_turn
from polymq.clients.rocketmq import ConsumeOptions, OutgoingMessage, RocketMQConsumer, RocketMQOptions, RocketMQProducer
from polymq.clients.rocketmq_messages import RESERVED
from polymq.clients.rocketmq_sending import by_key
from polymq.errors import LocalProtocolError, PolyMQError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.clients.broker_address import BrokerAddress
    from polymq.clients.broker_messages import Begin, Outgoing
    from polymq.clients.rocketmq import RocketMQMessage

__all__ = ["level_for", "link"]

_MS_PER_SECOND: Final = 1000
# What the levels 1 to 18 mean to a broker that was not told otherwise (messageDelayLevel, RocketMQ 4.9.8).
_LEVELS_SECONDS: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_TO_DEAD_LETTERS: Final = -1
_SHARDING_KEY: Final = "__SHARDINGKEY"
_REPLY_TO: Final = "reply-to"
# One batch: well below the 4 MiB that brokers take by default, properties included.
_RUN_MESSAGES_MAX: Final = 1000
_RUN_SIZE_BYTES_MAX: Final = 1 << 20
# A topic that somebody else makes is noticed as soon; a route is one small question.
_ROUTE_SECONDS: Final = 2.0


def link(address: BrokerAddress, options: object) -> RocketMQLink:
    """Make the way to the brokers that some name servers know; raises LocalProtocolError."""
    options = RocketMQOptions(route_seconds=_ROUTE_SECONDS) if options is None else options
    if not isinstance(options, RocketMQOptions):
        raise LocalProtocolError("the options of rocketmq:// are RocketMQOptions")
    if address.user or address.secret:
        options = replace(options, access_key=address.user, secret_key=address.secret)
    return RocketMQLink(address.servers, options)


def level_for(delay: float) -> int:
    """Find the first level that is not before `delay` seconds have passed; raises Unsupported above two hours."""
    for level, seconds in enumerate(_LEVELS_SECONDS, 1):
        if delay <= seconds:
            return level
    raise Unsupported(f"RocketMQ retries within {_LEVELS_SECONDS[-1]} s: publish it again with a delay, then it is done")


class _Settling:
    """The position of the group, and what goes back to the broker."""

    __slots__ = ("_message",)

    def __init__(self, message: RocketMQMessage) -> None:
        self._message = message

    @property
    def is_current(self) -> bool:
        return self._message.is_current

    def done(self) -> None:
        self._message.settle()

    def retry(self, delay: float) -> None:
        self._message.requeue(level_for(delay))

    def discard(self) -> None:
        self._message.requeue(_TO_DEAD_LETTERS)


class _Source:
    """A member of a group."""

    def __init__(self, consumer: RocketMQConsumer) -> None:
        self._consumer = consumer
        self._messages: OneByOne[RocketMQMessage] = OneByOne(consumer)

    async def open(self) -> None:
        await self._consumer.__aenter__()

    async def next(self) -> BrokerMessage | None:
        message = await self._messages.next()
        return None if message is None else _wrapped(message)

    async def take(self) -> list[BrokerMessage]:
        return [_wrapped(each) for each in await self._consumer.take()]

    async def close(self) -> None:
        await self._consumer.close()


def _wrapped(message: RocketMQMessage) -> BrokerMessage:
    return BrokerMessage(
        _Settling(message),
        message.body,
        headers={name: value for name, value in message.properties.items() if name not in RESERVED},
        key=" ".join(message.keys),
        tags=message.tags,
        time=datetime.fromtimestamp(message.born_ms / _MS_PER_SECOND, UTC),
        attempts=message.attempts,
        order=message.properties.get(_SHARDING_KEY, message.queue.queue_id),
        reply_to=message.properties.get(_REPLY_TO, ""),
    )


class RocketMQLink:
    """A producer, and a consumer for each subscription."""

    def __init__(self, servers: tuple[str, ...], options: RocketMQOptions) -> None:
        self._servers = servers
        self._options = options
        self._producer = RocketMQProducer(servers, options)

    async def open(self) -> None:
        """Find a name server."""
        await self._producer.__aenter__()

    def check(self, message: Outgoing) -> None:
        """Refuse what would not come back as it was."""
        if " ".join(message.key.split()) != message.key:
            raise Unsupported("a key of RocketMQ has no blanks, one of them separates two keys: encode it, or use a header")
        if message.ttl:
            raise Unsupported("messages of RocketMQ have no TTL of their own: leave it out, or publish with phpmq://")
        if not message.body:
            raise Unsupported("RocketMQ has no messages without a body: send one byte")
        _parcel(message)

    async def publish(self, message: Outgoing) -> None:
        """Send."""
        if isinstance(message.order, int):
            await self._publish_run([message])  # to the queue of that place
        else:
            await self._producer.send(_parcel(message))

    async def publish_each(self, messages: Sequence[Outgoing], repeated: set[int]) -> list[PolyMQError | None]:
        """A batch for each queue, all of them on their way at once: those of a batch go in all or none, and so in order."""
        del repeated  # a batch that is refused has left nothing
        try:
            queues = {each.topic: await self._producer.queues(each.topic) for each in messages if each.order is not None}
        except PolyMQError as error:
            return [error] * len(messages)
        lanes: dict[object, list[int]] = {}
        for place, message in enumerate(messages):
            lane = None if message.order is None else by_key(queues[message.topic], message.order)
            lanes.setdefault((message.topic, lane), []).append(place)
        outcomes: list[PolyMQError | None] = [None] * len(messages)

        async def publish_lane(places: list[int]) -> None:
            mine = [messages[place] for place in places]
            runs = cut(mine, _alike, count_max=_RUN_MESSAGES_MAX, size_bytes_max=_RUN_SIZE_BYTES_MAX)
            for place, outcome in zip(places, await in_turn(mine, runs, self._publish_run), strict=True):
                outcomes[place] = outcome

        await asyncio.gather(*(publish_lane(places) for places in lanes.values()))
        return outcomes

    async def _publish_run(self, run: Sequence[Outgoing]) -> None:
        order = run[0].order
        select = None if order is None else partial(by_key, key=order)
        if len(run) == 1:
            await self._producer.send(_parcel(run[0]), select=select)
        else:
            await self._producer.send_batch([_parcel(each) for each in run], select=select)

    def source(self, topic: str, group: str, window: int, begin: Begin, *, holds: bool) -> _Source:
        """Consume as a member of a group, which begins with the oldest message when it is new, unless `begin` says otherwise."""
        del window  # of each queue, as much as Java's clients have
        if isinstance(begin, datetime):
            begins: str | int = int(begin.timestamp() * _MS_PER_SECOND)
        else:
            begins = begin or "first"
        if not group:
            raise LocalProtocolError("RocketMQ delivers to groups: say which one, subscribe(topic, group=…) or rocketmq://…/GROUP")
        consuming = ConsumeOptions(begin_from=begins)
        if holds:
            consuming = replace(consuming, consume_seconds_max=None)
        return _Source(RocketMQConsumer(self._servers, group, topic, self._options, consuming=consuming))

    async def close(self) -> None:
        """Disconnect."""
        await self._producer.close()


def _parcel(message: Outgoing) -> OutgoingMessage:
    return OutgoingMessage(
        message.topic,
        message.body,
        tags=message.tags,
        keys=message.key.split(),
        properties=message.headers,
        sharding_key=message.order if isinstance(message.order, str) else None,
        delay_ms=round(message.delay * _MS_PER_SECOND),
    )


def _alike(message: Outgoing) -> object:
    """Tell what goes in one batch: not what is delayed, or large enough to be compressed well."""
    return None if message.delay or len(message.body) >= _RUN_SIZE_BYTES_MAX // 2 else message.topic
