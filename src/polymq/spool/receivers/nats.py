"""Receives subjects of NATS. There is nothing to acknowledge: what is not on the disk when this process ends is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from polymq.clients.nats import NatsSubscriber
from polymq.spool.feed import nats_options
from polymq.spool.notes import encode_note
from polymq.spool.portion import NO_SALT, Portion, encode_records
from polymq.spool.receivers.arrivals import Arrivals
from polymq.wire.records import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from polymq.spool.feed import Feed

__all__ = ["NatsReceiver"]

_TOUCH_SECONDS: Final = 20.0


class NatsReceiver:
    """Subscribes to every subject over a connection of its own, alone or as one of a queue group."""

    def __init__(self, feed: Feed, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        server = feed.servers[0] if feed.servers else ""
        options = nats_options(feed)
        self._subscribers = [
            NatsSubscriber(server, subject, options, queue=feed.queue_group, waiting_max=feed.in_flight) for subject in feed.topics
        ]
        self._arrivals: Arrivals[Message] | None = None

    async def open(self) -> None:
        """See `Receiver`."""
        arrivals: Arrivals[Message] = Arrivals()
        self._arrivals = arrivals
        for subscriber in self._subscribers:
            await subscriber.__aenter__()
            arrivals.add(f"receiver of {subscriber.address}", _taker(subscriber))

    async def take(self) -> list[Portion]:
        """See `Receiver`."""
        assert self._arrivals is not None
        return self._encoded(await self._arrivals.take())

    def rest(self) -> list[Portion]:
        """See `Receiver`: nobody else has it."""
        found = self._arrivals.rest() if self._arrivals is not None else []
        return self._encoded([*found, *(_message(each) for subscriber in self._subscribers for each in subscriber.waiting())])

    def _encoded(self, messages: Sequence[Message]) -> list[Portion]:
        if not messages:
            return []
        time_ns = self._wall_ns()
        data, end = encode_records(messages, time_ns)
        return [Portion(data, end, count=len(messages), received=len(messages), salt=NO_SALT, time_ns=time_ns)]

    async def close(self) -> None:
        """See `Receiver`."""
        if self._arrivals is not None:
            await self._arrivals.close()
        for subscriber in self._subscribers:
            await subscriber.close()

    @property
    def touch_seconds(self) -> float:
        """See `Receiver`."""
        return _TOUCH_SECONDS


def _taker(subscriber: NatsSubscriber) -> Callable[[], Awaitable[Sequence[Message]]]:
    messages = aiter(subscriber)

    async def take() -> Sequence[Message]:
        first = await anext(messages, None)
        if first is None:
            return []
        return [_message(each) for each in (first, *subscriber.waiting())]

    return take


def _message(each: Any) -> Message:
    headers = tuple((name.encode(), value.encode()) for name, value in each.headers.items())
    return Message(each.body, encode_note(each.subject.encode(), reply_to=each.reply.encode()), headers)
