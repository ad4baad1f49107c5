"""NATS behind the one API: a topic is a subject, a group a queue group, and nothing comes twice; `nats.py` does the work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polymq.clients.broker_messages import BrokerMessage, OneByOne
from polymq.clients.nats import NatsOptions, NatsPublisher, NatsSubscriber
from polymq.errors import LocalProtocolError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.clients.broker_address import BrokerAddress
    from polymq.clients.broker_messages import Begin, Outgoing
    from polymq.errors import PolyMQError
    from polymq.protocols.nats.frames import Delivered

__all__ = ["link"]


def link(address: BrokerAddress, options: object) -> NatsLink:
    """Make the way to a nats-server; raises LocalProtocolError."""
    options = NatsOptions() if options is None else options
    if not isinstance(options, NatsOptions):
        raise LocalProtocolError("the options of nats:// are NatsOptions")
    if address.user and not address.secret:
        options = replace(options, token=address.user)
    elif address.secret:
        options = replace(options, user=address.user, secret=address.secret)
    return NatsLink(address.server, options)


class _Settling:
    """Nothing is sent: a server of NATS has forgotten what it has delivered."""

    __slots__ = ()

    @property
    def is_current(self) -> bool:
        return True

    def done(self) -> None:
        pass

    def retry(self, delay: float) -> None:
        raise Unsupported("NATS delivers once: publish it again, or have its subject stored (nats.capture) and subscribe with nsq://")

    def discard(self) -> None:
        pass


class _Source:
    """A subscription."""

    def __init__(self, subscriber: NatsSubscriber) -> None:
        self._subscriber = subscriber
        self._messages: OneByOne[Delivered] = OneByOne(subscriber)

    async def open(self) -> None:
        await self._subscriber.__aenter__()

    async def next(self) -> BrokerMessage | None:
        message = await self._messages.next()
        return None if message is None else _wrapped(message)

    async def take(self) -> list[BrokerMessage]:
        message = await self._messages.next()
        return [] if message is None else [_wrapped(each) for each in (message, *self._subscriber.waiting())]

    async def close(self) -> None:
        await self._subscriber.close()


def _wrapped(message: Delivered) -> BrokerMessage:
    return BrokerMessage(_Settling(), message.body, headers=message.headers, reply_to=message.reply)


class NatsLink:
    """One connection to publish, and one for each subscription."""

    def __init__(self, server: str, options: NatsOptions) -> None:
        self._server = server
        self._options = options
        self._publisher = NatsPublisher(server, options)

    async def open(self) -> None:
        """Connect."""
        await self._publisher.__aenter__()

    def check(self, message: Outgoing) -> None:
        """Refuse what does not fit: a message of NATS has headers and a body."""
        for what, given in (("key", message.key), ("tags", message.tags)):
            if given:
                raise Unsupported(f"a message of NATS has no {what}: use a header, or publish with rocketmq://")
        if message.ttl:
            raise Unsupported("NATS keeps nothing, so nothing ends: leave the TTL out, or publish with phpmq://")
        if message.order is not None:
            raise Unsupported("what one client publishes by NATS stays in order: leave the order out")
        if message.delay:
            raise Unsupported("NATS delivers at once: publish later, or with nsq:// or rocketmq://, which have delays")

    async def publish(self, message: Outgoing) -> None:
        """PUB or HPUB, and a PING."""
        await self._publisher.publish(message.topic, message.body, headers=message.headers)

    async def publish_each(self, messages: Sequence[Outgoing], repeated: set[int]) -> list[PolyMQError | None]:
        """All of them, and few PINGs."""
        return await self._publisher.publish_each([(each.topic, each.body, each.headers) for each in messages], repeated)

    def source(self, topic: str, group: str, window: int, begin: Begin, *, holds: bool) -> _Source:
        """Subscribe, from now on."""
        del holds  # nothing is ever given back
        if begin:
            raise Unsupported("NATS delivers what is published from now on: leave begin out")
        return _Source(NatsSubscriber(self._server, topic, self._options, queue=group, waiting_max=window))

    async def close(self) -> None:
        """Disconnect."""
        await self._publisher.close()
