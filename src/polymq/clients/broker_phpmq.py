"""PHPMQ behind the one API: a topic is a queue, which everybody shares; `phpmq.py` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.clients.broker_messages import BrokerMessage, OneByOne
from polymq.clients.phpmq import PhpmqConsumer, PhpmqOptions, PhpmqProducer
from polymq.errors import LocalProtocolError, Unsupported

if TYPE_CHECKING:
    from polymq.clients.broker_address import BrokerAddress
    from polymq.clients.broker_messages import Outgoing
    from polymq.clients.phpmq import PhpmqMessage

__all__ = ["link"]


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

    __slots__ = ("_message",)

    def __init__(self, message: PhpmqMessage) -> None:
        self._message = message

    def done(self) -> None:
        self._message.settle()

    def retry(self, delay: float) -> None:
        if delay:
            raise Unsupported("PHPMQ puts a message at the end of its queue at once: retry() without a delay, or wait before it")
        self._message.requeue(ttl_seconds=self._message.ttl_seconds)

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
        if message is not None:
            return BrokerMessage(_Settling(message), message.content)
        return None

    async def close(self) -> None:
        await self._consumer.close()


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
        if message.delay:
            raise Unsupported("PHPMQ delivers at once: publish later, or with nsq:// or rocketmq://, which have delays")

    async def publish(self, message: Outgoing) -> None:
        """Send; the protocol has no answer, so this returns when the connection has taken it."""
        await self._producer.publish(message.topic, message.body)

    def source(self, topic: str, group: str, window: int) -> _Source:
        """Consume a queue."""
        if group:
            raise Unsupported("a queue of PHPMQ is one group, shared by all who consume it: leave the group out, or subscribe with nsq://")
        return _Source(PhpmqConsumer(self._server, topic, self._options, window=window))

    async def close(self) -> None:
        """Disconnect, once the server has read everything; raises ConnectionLost or DeadlineExceeded when nobody knows."""
        await self._producer.close()
