"""PHPMQ behind the one API: a topic is a queue, which everybody shares; `phpmq.py` does the work."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq.clients.broker_messages import BrokerMessage, OneByOne, cut, in_turn
from polymq.clients.phpmq import PhpmqConsumer, PhpmqOptions, PhpmqProducer
from polymq.errors import ConnectionLost, LocalProtocolError, PolyMQError, TransportError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.clients.broker_address import BrokerAddress
    from polymq.clients.broker_messages import Begin, Outgoing
    from polymq.clients.phpmq import PhpmqMessage

__all__ = ["link"]

_UNWANTED: Final = LocalProtocolError(
    "the server closes the connection at this message, and takes others: it may be too large for it; its log says why"
)
# A message that the server closes the connection at is tried so many times more: it may have been a restart.
_ATTEMPTS_MORE: Final = 2
# Into how many parts a piece is cut that has such a message somewhere. With many, few pieces are around it, and so few copies of its neighbours.
_PARTS: Final = 16
# What is handed to the connection as one piece.
_RUN_MESSAGES_MAX: Final = 1000
_RUN_SIZE_BYTES_MAX: Final = 1 << 20


def link(address: BrokerAddress, options: object) -> PhpmqLink:
    """Make the way to a server of PHPMQ; raises LocalProtocolError."""
    options = PhpmqOptions() if options is None else options
    if not isinstance(options, PhpmqOptions):
        raise LocalProtocolError("the options of phpmq:// are PhpmqOptions")
    if address.user or address.secret:
        raise Unsupported("PHPMQ knows no users: protect the port, or use phpmq_tls with certificates")
    return PhpmqLink(address.server, options)


class _Settling:
    """004, 005 and 006."""

    __slots__ = ("_came", "_message")

    def __init__(self, message: PhpmqMessage) -> None:
        self._message = message
        self._came = time.monotonic()

    @property
    def is_current(self) -> bool:
        return self._message.is_current

    def done(self) -> None:
        self._message.settle()

    def retry(self, delay: float) -> None:
        if delay:
            raise Unsupported("PHPMQ puts a message at the end of its queue at once: retry() without a delay, or wait before it")
        ttl = self._message.ttl_seconds
        left = math.floor(ttl - (time.monotonic() - self._came)) if ttl else 0
        if ttl and left < 1:
            self._message.settle()  # it is over
        else:
            self._message.requeue(ttl_seconds=left)

    def discard(self) -> None:
        self._message.dead_letter()


class _Source:
    """A window on a queue."""

    def __init__(self, consumer: PhpmqConsumer) -> None:
        self._consumer = consumer
        self._messages: OneByOne[PhpmqMessage] = OneByOne(consumer)

    async def open(self) -> None:
        await self._consumer.__aenter__()

    async def next(self) -> BrokerMessage | None:
        message = await self._messages.next()
        return None if message is None else _wrapped(message)

    async def take(self) -> list[BrokerMessage]:
        message = await self._messages.next()
        return [] if message is None else [_wrapped(each) for each in (message, *self._consumer.unseen())]

    async def close(self) -> None:
        await self._consumer.close()


def _wrapped(message: PhpmqMessage) -> BrokerMessage:
    return BrokerMessage(_Settling(message), message.content, ttl=message.ttl_seconds or None)


class PhpmqLink:
    """One connection to publish, and one for each subscription."""

    def __init__(self, server: str, options: PhpmqOptions) -> None:
        self._server = server
        self._options = options
        self._producer = PhpmqProducer(server, options)

    async def open(self) -> None:
        """Connect."""
        await self._producer.__aenter__()

    def check(self, message: Outgoing) -> None:
        """Refuse what does not fit: a message of PHPMQ's is its content."""
        for what, given in (("key", message.key), ("headers", message.headers), ("tags", message.tags)):
            if given:
                raise Unsupported(f"a message of PHPMQ has no {what}: put that into the body, or publish with rocketmq://")
        if message.order is not None:
            raise Unsupported("a queue of PHPMQ is in order by itself: leave the order out")
        if message.ttl and self._options.legacy:
            raise Unsupported("the older dialect of PHPMQ has no TTL")
        if message.delay:
            raise Unsupported("PHPMQ delivers at once: publish later, or with nsq:// or rocketmq://, which have delays")

    async def publish(self, message: Outgoing) -> None:
        """Send; the protocol has no answer, so this returns when the connection has taken it."""
        await self._producer.publish(message.topic, message.body, ttl_seconds=_whole(message.ttl))

    async def publish_each(self, messages: Sequence[Outgoing], repeated: set[int]) -> list[PolyMQError | None]:
        """Send them over a connection of their own, and have the server confirm them (`PhpmqProducer.confirm`).

        A server that does not want a message closes the connection, and says nothing. Then 16ths are sent, in order, and 16ths of the one that it
        closes at, until it is known which message it is. What stood before it in each of these pieces is there once more for it: most of it
        twice, and its neighbours as often as there were pieces around them, at most three times among 256 and five times among 20,000.
        """
        return await self._sort_out(messages, range(len(messages)), repeated)

    async def _sort_out(self, messages: Sequence[Outgoing], places: range, repeated: set[int]) -> list[PolyMQError | None]:
        """Send what has these places, in parts if need be."""
        some = messages[places.start : places.stop]
        outcomes = await self._fly(some)
        if not any(isinstance(each, ConnectionLost) for each in outcomes):
            return outcomes
        if len(some) == 1:
            # Is it this message, or everything, or was it chance?
            for _ in range(_ATTEMPTS_MORE):
                if not await self._takes_others():
                    return outcomes
                repeated.update(places)
                outcomes = await self._fly(some)
                if not isinstance(outcomes[0], ConnectionLost):
                    return outcomes
            return [_UNWANTED]
        size = -(-len(some) // _PARTS)
        outcomes = []
        while len(outcomes) < len(some):
            part = places[len(outcomes) : len(outcomes) + size]
            repeated.update(part)
            found = await self._sort_out(messages, part, repeated)
            outcomes += found
            lost = next((each for each in found if isinstance(each, TransportError)), None)
            if lost is not None:
                # What is behind it is not sent: it would be there before it.
                return outcomes + [lost] * (len(some) - len(outcomes))
        return outcomes

    async def _takes_others(self) -> bool:
        """Whether the server takes a message of ours."""
        try:
            async with PhpmqProducer(self._server, self._options) as producer:
                await producer.confirm()
        except PolyMQError:
            return False
        return True

    async def _fly(self, messages: Sequence[Outgoing]) -> list[PolyMQError | None]:
        """Send messages and have them confirmed, all of them or none."""
        outcomes: list[PolyMQError | None] = [None] * len(messages)
        runs = cut(messages, _alike, count_max=_RUN_MESSAGES_MAX, size_bytes_max=_RUN_SIZE_BYTES_MAX)
        try:
            async with PhpmqProducer(self._server, self._options) as producer:
                outcomes = await in_turn(messages, runs, partial(_publish_run, producer))
                if lost := [each for each in outcomes if isinstance(each, TransportError)]:
                    raise lost[0]
                await producer.confirm()
        except PolyMQError as error:
            # Nobody knows how far the server has read: what we did not refuse ourselves may be lost.
            return [error if each is None else each for each in outcomes]
        return outcomes

    def source(self, topic: str, group: str, window: int, begin: Begin, *, holds: bool) -> _Source:
        """Consume a queue."""
        del holds  # the client gives nothing back
        if begin:
            raise Unsupported("a queue of PHPMQ begins with what is in it: leave begin out")
        if group:
            raise Unsupported("a queue of PHPMQ is one group, shared by all who consume it: leave the group out, or subscribe with nsq://")
        return _Source(PhpmqConsumer(self._server, topic, self._options, window=window))

    async def close(self) -> None:
        """Disconnect, once the server has read everything; raises ConnectionLost or DeadlineExceeded when nobody knows."""
        await self._producer.close()


async def _publish_run(producer: PhpmqProducer, run: Sequence[Outgoing]) -> None:
    await producer.publish_many(run[0].topic, [each.body for each in run], ttl_seconds=_whole(run[0].ttl))


def _alike(message: Outgoing) -> object:
    return message.topic, _whole(message.ttl)


def _whole(ttl: float) -> int:
    """Give the seconds of a TTL, at least one: 0 would be for ever."""
    return math.ceil(ttl)
