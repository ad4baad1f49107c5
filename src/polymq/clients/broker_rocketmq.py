"""RocketMQ behind the one API: headers are properties, retries go by the levels of its brokers; `rocketmq.py` does the work."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from polymq.clients.broker_messages import BrokerMessage, OneByOne
from polymq.clients.rocketmq import ConsumeOptions, OutgoingMessage, RocketMQConsumer, RocketMQOptions, RocketMQProducer
from polymq.clients.rocketmq_messages import RESERVED
from polymq.errors import LocalProtocolError, Unsupported

if TYPE_CHECKING:
    from polymq.clients.broker_address import BrokerAddress
    from polymq.clients.broker_messages import Outgoing
    from polymq.clients.rocketmq import RocketMQMessage

__all__ = ["level_for", "link"]

_MS_PER_SECOND: Final = 1000
# What the levels 1 to 18 mean to a broker that was not told otherwise (messageDelayLevel, RocketMQ 4.9.8).
_LEVELS_SECONDS: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_TO_DEAD_LETTERS: Final = -1
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
        if message is not None:
            return BrokerMessage(
                _Settling(message),
                message.body,
                headers={name: value for name, value in message.properties.items() if name not in RESERVED},
                key=" ".join(message.keys),
                tags=message.tags,
                time=datetime.fromtimestamp(message.born_ms / _MS_PER_SECOND, UTC),
                attempts=message.attempts,
            )
        return None

    async def close(self) -> None:
        await self._consumer.close()


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
        if message.key and message.key.split() != [message.key]:
            raise Unsupported("a key of RocketMQ has no blanks, they separate keys: encode them, or use a header")
        if not message.body:
            raise Unsupported("RocketMQ has no messages without a body: send one byte")
        _parcel(message)

    async def publish(self, message: Outgoing) -> None:
        """Send."""
        await self._producer.send(_parcel(message))

    def source(self, topic: str, group: str, window: int) -> _Source:
        """Consume as a member of a group, which begins with the oldest message when it is new."""
        if not group:
            raise LocalProtocolError("RocketMQ delivers to groups: say which one, subscribe(topic, group=…) or rocketmq://…/GROUP")
        return _Source(RocketMQConsumer(self._servers, group, topic, self._options, consuming=ConsumeOptions(begin_from="first")))

    async def close(self) -> None:
        """Disconnect."""
        await self._producer.close()


def _parcel(message: Outgoing) -> OutgoingMessage:
    return OutgoingMessage(
        message.topic,
        message.body,
        tags=message.tags,
        keys=(message.key,) if message.key else (),
        properties=message.headers,
        delay_ms=round(message.delay * _MS_PER_SECOND),
    )
