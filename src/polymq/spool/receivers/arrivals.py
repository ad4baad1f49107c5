"""What several clients have received and the spooler has not taken: a queue that one waits for, with room for so much."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from polymq.errors import ConnectionLost, PolyMQError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Arrivals"]

_T = TypeVar("_T")


class Arrivals(Generic[_T]):
    """Has one task for each client, which takes from it only when what it brought last has been taken on."""

    def __init__(self) -> None:
        self._found: list[_T] = []
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._failure: PolyMQError | None = None
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, name: str, take: Callable[[], Awaitable[Sequence[_T]]]) -> None:
        """Begin to take from a client, until it gives nothing."""
        self._tasks.append(asyncio.create_task(self._run(take), name=name))

    async def take(self) -> list[_T]:
        """Wait, and take everything that has come; nothing once this is closed. Raises what a client raised."""
        while not self._found and not self._closed:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        found, self._found = self._found, []
        self._room.set()
        return found

    def rest(self) -> list[_T]:
        """Take what is there without waiting."""
        found, self._found = self._found, []
        return found

    async def close(self) -> None:
        """Stop taking."""
        self._closed = True
        self._arrived.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, take: Callable[[], Awaitable[Sequence[_T]]]) -> None:
        try:
            while found := await take():
                self._found.extend(found)
                self._arrived.set()
                self._room.clear()
                await self._room.wait()
            self._fail(ConnectionLost("the client has ended"))
        except PolyMQError as error:
            self._fail(error)
        except Exception as error:
            self._fail(ConnectionLost(f"a fault of this client: {error!r}"))
            raise

    def _fail(self, error: PolyMQError) -> None:
        if self._failure is None:
            self._failure = error
        self._arrived.set()
