"""NATS behind the one API: a topic is a subject, a group a queue group, and nothing comes twice; `nats.py` does the work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polymq.clients.broker_messages import BrokerMessage, OneByOne
from polymq.clients.nats import NatsOptions, NatsPublisher, NatsSubscriber
from polymq.errors import LocalProtocolError, Unsupported

if TYPE_CHECKING:
    from polymq.clients.broker_address import BrokerAddress
    from polymq.clients.broker_messages import Outgoing
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
        return None if message is None else BrokerMessage(_Settling(), message.body, headers=message.headers)

    async def close(self) -> None:
        await self._subscriber.close()


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
        if message.delay:
            raise Unsupported("NATS delivers at once: publish later, or with nsq:// or rocketmq://, which have delays")

    async def publish(self, message: Outgoing) -> None:
        """PUB or HPUB, and a PING."""
        await self._publisher.publish(message.topic, message.body, headers=message.headers)

    def source(self, topic: str, group: str, window: int) -> _Source:
        """Subscribe, from now on."""
        return _Source(NatsSubscriber(self._server, topic, self._options, queue=group, waiting_max=window))

    async def close(self) -> None:
        """Disconnect."""
        await self._publisher.close()
