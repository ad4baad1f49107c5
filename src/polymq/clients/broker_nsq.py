"""NSQ behind the one API: a group is a channel, a message is a body; `nsq.py` does the work."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from polymq.clients.broker_messages import BrokerMessage, OneByOne, cut, in_turn
from polymq.clients.nsq import NsqConsumer, NsqProducer
from polymq.clients.nsq_opening import NsqOptions
from polymq.errors import LocalProtocolError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.clients.broker_address import BrokerAddress
    from polymq.clients.broker_messages import Begin, Outgoing
    from polymq.clients.nsq import NsqMessage
    from polymq.errors import PolyMQError

__all__ = ["link"]

_MS_PER_SECOND: Final = 1000
# More than this at once are not given back at the end, but come again when their timeout has passed.
_FORGOTTEN_MAX: Final = 10_000
_NS_PER_SECOND: Final = 1_000_000_000
# One MPUB: well below the 5 MiB that servers take by default.
_RUN_MESSAGES_MAX: Final = 1000
_RUN_SIZE_BYTES_MAX: Final = 1 << 20


def link(address: BrokerAddress, options: object) -> NsqLink:
    """Make the way to an nsqd; raises LocalProtocolError."""
    options = NsqOptions() if options is None else options
    if not isinstance(options, NsqOptions):
        raise LocalProtocolError("the options of nsq:// are NsqOptions")
    if address.user and not address.secret:
        raise LocalProtocolError("nsq:// has a secret and no user: write nsq://:SECRET@HOST:PORT")
    if address.secret:
        options = replace(options, auth_secret=address.secret)
    return NsqLink(address.server, options)


class _Settling:
    """FIN and REQ."""

    __slots__ = ("_in_hand", "_message")

    def __init__(self, message: NsqMessage, in_hand: dict[int, NsqMessage]) -> None:
        self._message = message
        self._in_hand = in_hand
        in_hand[id(message)] = message  # which is there, so nothing else has its id

    @property
    def is_current(self) -> bool:
        return self._message.is_current and not self._message.has_expired

    def done(self) -> None:
        self._message.settle()
        self._in_hand.pop(id(self._message), None)

    def retry(self, delay: float) -> None:
        self._message.requeue(_ms(delay))
        self._in_hand.pop(id(self._message), None)

    def discard(self) -> None:
        self.done()  # there are no dead letters


class _Source:
    """A channel."""

    def __init__(self, consumer: NsqConsumer, window: int) -> None:
        self._consumer = consumer
        self._window = window
        self._messages: OneByOne[NsqMessage] = OneByOne(consumer)
        self._in_hand: dict[int, NsqMessage] = {}

    async def open(self) -> None:
        await self._consumer.__aenter__()

    async def next(self) -> BrokerMessage | None:
        message = await self._messages.next()
        return None if message is None else self._wrapped(message)

    async def take(self) -> list[BrokerMessage]:
        message = await self._messages.next()
        if message is None:
            return []
        found = [message, *self._consumer.unseen()]
        while len(found) < self._window and (batch := self._consumer.take()) is not None:
            found.extend(batch)
        return [self._wrapped(each) for each in found]

    def _wrapped(self, message: NsqMessage) -> BrokerMessage:
        if len(self._in_hand) >= _FORGOTTEN_MAX:  # by a script that settles nothing: their timeout brings them again
            self._in_hand.clear()
        time = datetime.fromtimestamp(message.time_ns / _NS_PER_SECOND, UTC)
        return BrokerMessage(_Settling(message, self._in_hand), message.body, time=time, attempts=message.attempts)

    async def close(self) -> None:
        for message in self._in_hand.values():
            if not message.is_settled and message.is_current:
                message.requeue()  # nobody has to wait for its timeout
        await self._consumer.close()


class NsqLink:
    """One connection to publish, and one for each subscription."""

    def __init__(self, server: str, options: NsqOptions) -> None:
        self._server = server
        self._options = options
        self._producer = NsqProducer(server, options)

    async def open(self) -> None:
        """Connect."""
        await self._producer.__aenter__()

    def check(self, message: Outgoing) -> None:
        """Refuse what does not fit: a message of NSQ's is a body."""
        for what, given in (("key", message.key), ("headers", message.headers), ("tags", message.tags)):
            if given:
                raise Unsupported(f"a message of NSQ has no {what}: put that into the body, or publish with rocketmq://")
        if message.ttl:
            raise Unsupported("messages of NSQ live until they are settled: publish with phpmq:// where they shall end")
        if message.order is not None:
            raise Unsupported("NSQ promises no order: publish with rocketmq:// where order counts")

    async def publish(self, message: Outgoing) -> None:
        """PUB or DPUB."""
        await self._producer.publish(message.topic, message.body, delay_ms=_ms(message.delay))

    async def publish_each(self, messages: Sequence[Outgoing], repeated: set[int]) -> list[PolyMQError | None]:
        """MPUBs, one after the other: those of a run go in all or none."""
        del repeated  # an MPUB that is refused has left nothing
        runs = cut(messages, _alike, count_max=_RUN_MESSAGES_MAX, size_bytes_max=_RUN_SIZE_BYTES_MAX)
        return await in_turn(messages, runs, self._publish_run)

    async def _publish_run(self, run: Sequence[Outgoing]) -> None:
        if len(run) == 1:
            await self.publish(run[0])
        else:
            await self._producer.publish_many(run[0].topic, [each.body for each in run])

    def source(self, topic: str, group: str, window: int, begin: Begin, *, holds: bool) -> _Source:
        """Consume a channel."""
        del holds  # how long a message is ours is for the server to say
        if begin:
            raise Unsupported("a channel of NSQ begins when it is made, with what its topic kept for it: leave begin out")
        if not group:
            raise LocalProtocolError("NSQ delivers to channels: say which one, subscribe(topic, group=…)")
        return _Source(NsqConsumer(self._server, topic, group, self._options, max_in_flight=window), window)

    async def close(self) -> None:
        """Disconnect."""
        await self._producer.close()


def _alike(message: Outgoing) -> object:
    return None if message.delay else message.topic


def _ms(seconds: float) -> int:
    return round(seconds * _MS_PER_SECOND)
