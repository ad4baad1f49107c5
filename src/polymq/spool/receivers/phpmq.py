"""Receives queues of PHPMQ: what is dispatched is written, and 004 follows on whatever connection there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.clients.phpmq import PhpmqConsumer
from polymq.spool.feed import phpmq_options
from polymq.spool.notes import encode_note
from polymq.spool.portion import Portion, encode_records
from polymq.spool.receivers.arrivals import Arrivals
from polymq.spool.window import salt_of, words_of
from polymq.wire.records import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from polymq.clients.phpmq_messages import PhpmqBatch
    from polymq.spool.feed import Feed
    from polymq.spool.window import IdWindow

__all__ = ["PhpmqReceiver"]

# The protocol has no way to ask for more time, and needs none: a message is ours until the connection ends.
_TOUCH_SECONDS: Final = 20.0
_US_PER_SECOND: Final = 1_000_000
_NS_PER_US: Final = 1000


class PhpmqReceiver:
    """Consumes every queue over a connection of its own."""

    def __init__(self, feed: Feed, window: IdWindow, wall_ns: Callable[[], int]) -> None:
        self._window = window
        self._wall_ns = wall_ns
        self._server = feed.servers[0] if feed.servers else ""
        options = phpmq_options(feed)
        self._consumers = [PhpmqConsumer(self._server, queue, options, window=feed.in_flight) for queue in feed.topics]
        self._salts = {each.queue: salt_of(self._server, each.queue) for each in self._consumers}
        self._arrivals: Arrivals[PhpmqBatch] | None = None

    async def open(self) -> None:
        """See `Receiver`."""
        arrivals: Arrivals[PhpmqBatch] = Arrivals()
        self._arrivals = arrivals
        for consumer in self._consumers:
            await consumer.__aenter__()
        for consumer in self._consumers:
            arrivals.add(f"receiver of {consumer.queue.decode('utf-8', 'replace')}", _taker(consumer))

    async def take(self) -> list[Portion]:
        """See `Receiver`."""
        assert self._arrivals is not None
        time_ns = self._wall_ns()
        return [self._encoded(batch, time_ns) for batch in await self._arrivals.take()]

    def _encoded(self, batch: PhpmqBatch, time_ns: int) -> Portion:
        salt = self._salts[batch.queue]
        messages = []
        for each in batch:
            if self._window.add(words_of(each.id), salt):
                expires = time_ns // _NS_PER_US + each.ttl_seconds * _US_PER_SECOND if each.ttl_seconds else None
                # A TTL of centuries ends never.
                expires = expires if expires is not None and expires < 1 << 62 else None
                messages.append(Message(each.content, encode_note(batch.queue, each.id, expires_at_us=expires)))
        data, end = encode_records(messages, time_ns)
        return Portion(data, end, count=len(messages), received=len(batch), salt=salt, time_ns=time_ns, acknowledge=batch.settle)

    def rest(self) -> list[Portion]:
        """See `Receiver`: the broker has all of it."""
        return []

    async def close(self) -> None:
        """See `Receiver`."""
        if self._arrivals is not None:
            await self._arrivals.close()
        for consumer in self._consumers:
            await consumer.close()

    @property
    def touch_seconds(self) -> float:
        """See `Receiver`."""
        return _TOUCH_SECONDS


def _taker(consumer: PhpmqConsumer) -> Callable[[], Awaitable[Sequence[PhpmqBatch]]]:
    async def take() -> Sequence[PhpmqBatch]:
        batch = await consumer.next_batch()
        return [] if batch is None else [batch]

    return take
