"""One small API for the four protocols: publish, subscribe, settle.

    async with polymq.connect("nsq://127.0.0.1:4150") as broker:
        await broker.publish("flights", b"...", delay=60)
        async for message in broker.subscribe("flights", group="board"):
            work_on(message.body)
            await message.done()             # or message.retry(30), message.discard()

What a protocol does not have raises Unsupported, with what to do instead, before anything is sent; nothing is emulated. Whoever wants
all of a protocol takes its own client (`nsq.py`, `nats.py`, `rocketmq.py`, `phpmq.py`). Read next: `broker_messages.py`.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, Final, Self, cast

from polymq.clients.broker_address import parse_address
from polymq.clients.broker_messages import BrokerMessage, Outgoing
from polymq.errors import LocalProtocolError, PolyMQError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from types import TracebackType

    from polymq.clients.broker_messages import Begin, Link, Source

__all__ = ["Broker", "BrokerMessage", "Outgoing", "Subscription"]

_NO_HEADERS: Final[Mapping[str, str]] = {}


class Subscription:
    """Messages of one topic: iterate over it. It begins with the iteration, or with the block, and ends with its block or its broker."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Subscribe: what is published from now on comes."""
        if not self._is_open:
            await self._source.open()
            self._is_open = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        await self.close()

    async def __aiter__(self) -> AsyncIterator[BrokerMessage]:
        """Give messages until closed; leaving the loop loses nothing, the next one goes on."""
        while (message := await self.next()) is not None:
            yield message

    async def next(self) -> BrokerMessage | None:
        """Wait for the next message; None when this is closed. A wait that is cancelled loses nothing."""
        if not self._is_open:
            await self.__aenter__()
        return await self._source.next()

    async def take(self) -> list[BrokerMessage]:
        """Wait for messages and give all that are here, at most a window's worth; none when this is closed. Faster than one by one."""
        if not self._is_open:
            await self.__aenter__()
        return await self._source.take()

    async def close(self) -> None:
        """End. What was settled is on its way before that; what was not comes again, where messages do."""
        if self._is_open:
            await self._source.close()


class Broker:
    """A broker, by any of the protocols. `options` are those of the protocol's client: `NsqOptions` and so on.

    Raises:  LocalProtocolError when the address or the options make no sense.
    """

    def __init__(self, url: str, options: object = None) -> None:
        self.address = parse_address(url)
        module: Any = importlib.import_module(f"polymq.clients.broker_{self.address.protocol}")
        self._link = cast("Link", module.link(self.address, options))
        self._subscriptions: list[Subscription] = []
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Connect; raises TransportError when there is no server in time, Refusal when it does not want us."""
        await self._link.open()
        self._is_open = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close; what went wrong in the block is more to the point than what goes wrong here."""
        try:
            await self.close()
        except PolyMQError:
            if kind is None:
                raise

    async def publish(
        self,
        topic: str,
        body: bytes,
        *,
        key: str = "",
        headers: Mapping[str, str] = _NO_HEADERS,
        tags: str = "",
        delay: float = 0.0,
        ttl: float = 0.0,
        order: str | int | None = None,
    ) -> None:
        """Publish a message; returns when the server has it, as far as the protocol tells.

        It is delivered after `delay` seconds, and to nobody after `ttl` seconds; those of one `order` are delivered in order.

        Raises:  Unsupported for what the protocol cannot carry; Refusal; ConnectionLost and DeadlineExceeded when it may be there or not.
        """
        message = Outgoing(topic, body, key, dict(headers), tags, delay, ttl, order)
        self._link.check(message)
        self._check_open()
        await self._link.publish(message)

    async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish messages together, many times faster than one after the other; returns when the server has all of them.

        With PHPMQ, too: they go over a connection of their own, and the server confirms them (`PhpmqProducer.confirm`).

        Raises:  as `publish` does, the first of what went wrong: the others may be there or not, see `publish_each`.
        """
        for outcome in await self.publish_each([Outgoing(topic, body) for body in bodies]):
            if outcome is not None:
                raise outcome

    async def publish_each(self, messages: Sequence[Outgoing], repeated: set[int] | None = None) -> list[PolyMQError | None]:
        """Publish messages together, as `publish_many` does, and say of each what went wrong: None when the server has it.

        `repeated` gets the places of those that were sent more than once, to find out which of them the server refuses: they may be there several times.
        """
        self._check_open()
        outcomes: list[PolyMQError | None] = []
        for message in messages:
            try:
                self._link.check(message)
            except LocalProtocolError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        places = [place for place, outcome in enumerate(outcomes) if outcome is None]
        if places:
            again: set[int] = set()
            found = await self._link.publish_each([messages[place] for place in places], again)
            for place, outcome in zip(places, found, strict=True):
                outcomes[place] = outcome
            if repeated is not None:
                repeated.update(places[each] for each in again)
        return outcomes

    def subscribe(self, topic: str, group: str = "", *, window: int = 100, begin: Begin = "", holds: bool = False) -> Subscription:
        """Make a subscription: to the messages of a topic that its group gets; members of one group share them.

        Without a group that of the address counts. `window` is how many messages are here at a time, waiting or in hand, where the
        protocol can say so. `begin` is where a group begins that is new, where the protocol can say so: "first", "last" or a time (a broker of
        RocketMQ's that still has all of a queue in its memory begins at its first message, whatever it is asked).
        With `holds` a message may be in hand for any time: else the client of RocketMQ gives it back behind 15 minutes, and it comes later than
        what was behind it. (How long a channel of NSQ waits is for its server to say.)

        Raises:  Unsupported for what the protocol does not have; LocalProtocolError when it needs a group, and for wrong names.
        """
        if window < 1:
            raise LocalProtocolError(f"window is {window}; it must be at least 1")
        if isinstance(begin, str) and begin not in ("", "first", "last"):
            raise LocalProtocolError(f'begin is {begin!r}; it must be "first", "last" or a datetime')
        self._check_open()
        made = Subscription(self._link.source(topic, group or self.address.group, window, begin, holds=holds))
        self._subscriptions.append(made)
        return made

    async def close(self) -> None:
        """End all subscriptions, then disconnect; raises the last of what went wrong."""
        self._is_open = False
        subscriptions, self._subscriptions = self._subscriptions, []
        async with contextlib.AsyncExitStack() as stack:  # one that does not close leaves none of the others open
            stack.push_async_callback(self._link.close)
            for each in reversed(subscriptions):
                stack.push_async_callback(each.close)

    def _check_open(self) -> None:
        if not self._is_open:
            raise LocalProtocolError("this broker is not connected: use it within `async with`")
