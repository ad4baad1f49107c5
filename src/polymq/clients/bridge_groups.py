"""Brokers as the ends of a bridge, by `polymq.connect`: a group as a source, which keeps its place on the server, and a topic as a target.

A message is settled when the target has it: what was not settled comes again, where the protocol has that (NATS has not).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from polymq.clients.bridge_ends import Carried
from polymq.clients.bridge_fields import fields_of, fitted
from polymq.clients.broker_messages import BrokerMessage
from polymq.errors import ConnectionLost, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.clients.bridge_ends import Tally
    from polymq.clients.broker import Broker, Subscription
    from polymq.clients.broker_messages import Begin
    from polymq.errors import PolyMQError

__all__ = ["GroupSource", "TopicTarget"]

_NS_PER_SECOND: Final = 1_000_000_000
# A group of RocketMQ is told which queues it has; it may be as long until the first message comes.
_JOINING_SECONDS: Final = 5.0


class GroupSource:
    """What a group gets. It is idle when nothing has come for `idle_seconds`; None: it waits for ever."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        group: str,
        *,
        window: int,
        idle_seconds: float | None,
        begin: Begin = "",
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._broker = broker
        self._names = (topic, group)
        self._window = window
        self._idle_seconds = idle_seconds
        self._begin = begin
        self._clock_ns = clock_ns
        self._has_come = False
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Connect and subscribe."""
        await self._broker.__aenter__()
        self._subscription = self._broker.subscribe(*self._names, window=self._window, begin=self._begin, holds=True)
        await self._subscription.__aenter__()

    async def read(self) -> list[Carried] | None:
        """Take what is here; nothing when nothing has come for a while. Never ends by itself."""
        assert self._subscription is not None
        seconds = self._idle_seconds
        if seconds is not None and not self._has_come and self._broker.address.protocol == "rocketmq":
            seconds = max(seconds, _JOINING_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                messages = await self._subscription.take()
        except TimeoutError:
            return []
        if not messages:
            raise ConnectionLost("the subscription has ended")
        self._has_come = True
        now_ns = self._clock_ns()
        return [_carried(each, now_ns) for each in messages]

    def is_wanted(self, message: Carried) -> bool:
        """Tell whether settling it would still have an effect; else it comes again."""
        return _of(message).is_current

    async def settle(self, messages: Sequence[Carried]) -> None:
        """Settle them; one that the server has taken back comes again, and there will be two of it."""
        for message in messages:
            if not _of(message).is_settled:
                with contextlib.suppress(LocalProtocolError):  # its client has given it back
                    await _of(message).done()

    async def keep(self, *, moved: int, is_last: bool = False) -> None:
        """Do nothing: the server knows what is settled."""
        del moved, is_last

    def left(self) -> int | None:
        """Say that nobody knows."""
        return None

    async def close(self) -> None:
        """Disconnect."""
        await self._broker.close()


class TopicTarget:
    """A topic of any broker. What its protocol cannot carry is left out, and counted once the rest is there."""

    def __init__(
        self, broker: Broker, topic: str, tally: Tally, clock_ns: Callable[[], int] = time.time_ns, *, has_ttl: bool = True
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._has_ttl = has_ttl  # PHPMQ has none in its older dialect
        self._tally = tally
        self._clock_ns = clock_ns
        self.repeated: set[int] = set()

    async def open(self) -> None:
        """Connect."""
        await self._broker.__aenter__()

    async def send(self, messages: Sequence[Carried]) -> list[PolyMQError | None]:
        """Publish them together."""
        self.repeated = set()
        now_ns = self._clock_ns()
        protocol = self._broker.address.protocol
        fits = [fitted(each, protocol, self._topic, now_ns, has_ttl=self._has_ttl) for each in messages]
        try:
            outcomes = await self._broker.publish_each([outgoing for outgoing, _ in fits], self.repeated)
        except LocalProtocolError as error:
            return [error] * len(messages)
        for (_, dropped), outcome in zip(fits, outcomes, strict=True):
            if outcome is None and dropped:
                self._tally.dropped.update(dropped)
        return outcomes

    async def close(self) -> None:
        """Disconnect."""
        await self._broker.close()


def _carried(message: BrokerMessage, now_ns: int) -> Carried:
    key, headers = fields_of(message)
    expiry_ns = None if message.ttl is None else now_ns + round(message.ttl * _NS_PER_SECOND)
    return Carried(message.body, key, headers, expiry_ns, message.order, message)


def _of(message: Carried) -> BrokerMessage:
    assert isinstance(message.place, BrokerMessage)
    return message.place
