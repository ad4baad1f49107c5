"""Ends of a bridge that live in memory: a source that gives again what was not settled, a target that fails when it is told to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from polymq.clients.bridge_ends import Carried

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.errors import PolyMQError

__all__ = ["FakeSource", "FakeTarget"]


class FakeSource:
    """Batches of messages with bodies 0, 1, …; `settled` is what it must never give again. Ends, is idle, or waits behind the last."""

    def __init__(self, bodies: Sequence[bytes], *, batch: int = 3, behind: str = "end") -> None:
        self.bodies = list(bodies)
        self.settled: list[bytes] = []
        self.unwanted: set[bytes] = set()
        self.expired: set[bytes] = set()
        self.failures: list[PolyMQError] = []
        self.kept: list[tuple[int, bool]] = []
        self.read_count = 0
        self.is_closed = False
        self._batch = batch
        self._behind = behind

    async def open(self) -> None:
        """Be ready."""

    async def read(self) -> list[Carried] | None:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        taken = self.bodies[self.read_count : self.read_count + self._batch]
        self.read_count += len(taken)
        if taken:
            return [Carried(body, expiry_ns=1 if body in self.expired else None) for body in taken]
        if self._behind == "wait":
            await asyncio.Event().wait()
        return None if self._behind == "end" else []

    def is_wanted(self, message: Carried) -> bool:
        return message.body not in self.unwanted

    async def settle(self, messages: Sequence[Carried]) -> None:
        self.settled += [each.body for each in messages]

    async def keep(self, *, moved: int, is_last: bool = False) -> None:
        self.kept.append((moved, is_last))

    def left(self) -> int:
        return len(self.bodies) - self.read_count

    async def close(self) -> None:
        self.is_closed = True


class FakeTarget:
    """Keeps what it gets. `decide` says of each attempt, by its number, and each message what becomes of it."""

    def __init__(self, decide: Callable[[int, bytes], PolyMQError | None] = lambda _number, _body: None) -> None:
        self.got: list[bytes] = []
        self.attempts: list[list[bytes]] = []
        self.is_closed = False
        self.hangs = False
        self.decide = decide
        self.repeated: set[int] = set()

    async def open(self) -> None:
        """Be ready."""

    async def send(self, messages: Sequence[Carried]) -> list[PolyMQError | None]:
        number = len(self.attempts)
        self.attempts.append([each.body for each in messages])
        if self.hangs:
            await asyncio.Event().wait()
        outcomes = [self.decide(number, each.body) for each in messages]
        self.got += [each.body for each, outcome in zip(messages, outcomes, strict=True) if outcome is None]
        return outcomes

    async def close(self) -> None:
        self.is_closed = True
