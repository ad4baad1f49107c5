"""The producers: several connections that share one pile of batches and publish each until it is acknowledged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from examples.flights.data import TOPIC

from polymq.errors import TransportError

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Pace", "Producer", "Published", "publish"]


class Producer(Protocol):
    """What is needed of a client; `polymq.clients.nsq.NsqProducer` finds its broker again by itself."""

    async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish messages in one command; returns when the broker has acknowledged them."""


class Published:
    """What the producers have done together: messages acknowledged, and batches that were published again."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.repeated = 0
        self._goal: tuple[int, asyncio.Event] | None = None

    def add(self, count: int) -> None:
        """Count messages as acknowledged."""
        self.acknowledged += count
        if self._goal is not None and self.acknowledged >= self._goal[0]:
            self._goal[1].set()

    async def reaches(self, count: int) -> None:
        """Wait until so many messages have been acknowledged. One at a time may wait."""
        self._goal = (count, asyncio.Event())
        self.add(0)
        await self._goal[1].wait()


class Pace:
    """Keeps producers together at a number of messages a second, so that there is a middle in which to kill.

    After a head start of some messages everybody waits until `open` is called: until those who read are awake.
    """

    def __init__(
        self,
        per_second: float,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        head_start: int = 0,
    ) -> None:
        self._seconds_each = 1 / per_second
        self._now = now
        self._sleep = sleep
        self._next = now()
        self._head_start = head_start
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Let everybody go on."""
        self._opened.set()

    async def turn(self, count: int) -> None:
        """Wait until `count` more messages are due. Time in which nothing was published is not made up for."""
        self._head_start -= count
        if self._head_start < 0:
            await self._opened.wait()
        start = max(self._next, self._now())
        self._next = start + count * self._seconds_each
        if start > self._now():
            await self._sleep(start - self._now())


async def publish(producer: Producer, work: deque[list[bytes]], pace: Pace, state: Published) -> None:
    """Publish batches from the pile until none is left.

    A batch whose acknowledgement was not seen is published again: it may be in the log already, which nobody can know
    from here. So flights may be repeated, and never lost.
    """
    while work:
        batch = work.popleft()
        await pace.turn(len(batch))
        while True:
            try:
                await producer.publish_many(TOPIC, batch)
                break
            except TransportError:
                state.repeated += 1
        state.add(len(batch))
