"""Receives channels of NSQ: frames become records without an object for each, and are settled by one write for many."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from polymq.clients.nsq_opening import open_socket
from polymq.clients.nsq_subscriber import NsqSubscriber
from polymq.spool.intake import FIN_SIZE_BYTES, RECORD_EXTRA_BYTES, take_frames
from polymq.spool.notes import encode_note
from polymq.spool.portion import Portion
from polymq.spool.receivers.arrivals import Arrivals
from polymq.spool.window import ID_SIZE_BYTES, salt_of
from polymq.wire.records import HEADER_SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from polymq.clients.nsq_messages import NsqBatch
    from polymq.spool.feed import Feed
    from polymq.spool.window import IdWindow

__all__ = ["NsqReceiver", "encode_batches"]

_TOUCH_SECONDS_MAX: Final = 20.0
_TOUCH_SECONDS_MIN: Final = 0.1
# Bytes of one batch of the spool; a run of frames that alone has more is one as well.
_PORTION_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
_NO_ID: Final = b"0" * ID_SIZE_BYTES

# Topic, server, messages.
_Arrived = tuple[str, str, "NsqBatch"]


def encode_batches(batches: Sequence[NsqBatch], topic: bytes, salt: int, window: IdWindow, time_ns: int) -> Portion:
    """Make one portion of batches of one topic and server; redeliveries are left out of it, and settled with it."""
    note = encode_note(topic, _NO_ID)
    counts = [len(batch) for batch in batches]
    size = sum(len(batch.frames) for batch in batches) + sum(counts) * (RECORD_EXTRA_BYTES + len(note))
    data = bytearray(HEADER_SIZE_BYTES + size)
    finishes = bytearray(max(counts) * FIN_SIZE_BYTES)
    at, count = HEADER_SIZE_BYTES, 0
    settles: list[tuple[NsqBatch, bytes]] = []
    for batch in batches:
        at, new, end = take_frames(batch.frames, data, at, note, window, base_time_ns=time_ns, salt=salt, finishes=finishes, finishes_at=0)
        count += new
        settles.append((batch, bytes(finishes[:end])))

    def acknowledge() -> None:
        for batch, commands in settles:
            batch.settle_by(commands)

    def touch() -> None:
        for batch, _ in settles:
            batch.touch()

    return Portion(data, at, count=count, received=sum(counts), salt=salt, time_ns=time_ns, acknowledge=acknowledge, touch=touch)


class NsqReceiver:
    """Subscribes to every topic, by as many connections to each server as are wanted."""

    def __init__(
        self,
        feed: Feed,
        window: IdWindow,
        wall_ns: Callable[[], int],
        *,
        opener: Callable[[str, Callable[[], asyncio.Protocol]], Awaitable[None]] = open_socket,
    ) -> None:
        self._window = window
        self._wall_ns = wall_ns
        self._touch_seconds = _TOUCH_SECONDS_MAX
        self._salts: dict[tuple[str, str], int] = {}
        self._arrivals: Arrivals[_Arrived] | None = None
        self._subscribers = [
            (
                topic,
                NsqSubscriber(
                    topic,
                    feed.channel,
                    feed.nsq,
                    addresses=feed.servers,
                    lookups=feed.lookups,
                    max_in_flight=self._in_flight(feed),
                    opener=opener,
                ),
            )
            for topic in feed.topics
            for _ in range(feed.connections)
        ]

    @staticmethod
    def _in_flight(feed: Feed) -> int:
        # A subscriber divides among its servers, and there are as many connections as servers; of a directory, nobody knows how many.
        return feed.in_flight * max(1, len(feed.servers))

    async def open(self) -> None:
        """See `Receiver`."""
        arrivals: Arrivals[_Arrived] = Arrivals()
        self._arrivals = arrivals
        for _, subscriber in self._subscribers:
            await subscriber.__aenter__()
        for topic, subscriber in self._subscribers:
            arrivals.add(f"receiver of {topic}", _taker(topic, subscriber))

    async def take(self) -> list[Portion]:
        """See `Receiver`."""
        assert self._arrivals is not None
        found = await self._arrivals.take()
        time_ns = self._wall_ns()
        portions: list[Portion] = []
        groups: dict[tuple[str, str], list[NsqBatch]] = {}
        sizes: dict[tuple[str, str], int] = {}
        nearest = math.inf
        for topic, address, batch in found:
            nearest = min(nearest, batch.expires_at)
            key = (topic, address)
            if sizes.get(key, 0) + len(batch.frames) > _PORTION_SIZE_BYTES_MAX and groups.get(key):
                portions.append(self._encoded(key, groups.pop(key), time_ns))
                sizes[key] = 0
            groups.setdefault(key, []).append(batch)
            sizes[key] = sizes.get(key, 0) + len(batch.frames)
        portions += [self._encoded(key, batches, time_ns) for key, batches in groups.items()]
        if nearest < math.inf:
            left = (nearest - asyncio.get_running_loop().time()) / 3
            self._touch_seconds = max(_TOUCH_SECONDS_MIN, min(_TOUCH_SECONDS_MAX, left))
        return portions

    def _encoded(self, key: tuple[str, str], batches: list[NsqBatch], time_ns: int) -> Portion:
        topic = key[0].encode()
        if key not in self._salts:
            self._salts[key] = salt_of(key[1], topic)
        return encode_batches(batches, topic, self._salts[key], self._window, time_ns)

    def rest(self) -> list[Portion]:
        """See `Receiver`: the broker has all of it."""
        return []

    async def close(self) -> None:
        """See `Receiver`."""
        if self._arrivals is not None:
            await self._arrivals.close()
        await asyncio.gather(*(subscriber.close() for _, subscriber in self._subscribers))

    @property
    def touch_seconds(self) -> float:
        """See `Receiver`: three times within the message timeout of what came last."""
        return self._touch_seconds


def _taker(topic: str, subscriber: NsqSubscriber) -> Callable[[], Awaitable[Sequence[_Arrived]]]:
    async def take() -> Sequence[_Arrived]:
        return [(topic, address, batch) for address, batch in await subscriber.take_batches()]

    return take
