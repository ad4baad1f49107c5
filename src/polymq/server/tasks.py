"""The few things that the process does beside turns: each is a task with a name, kept until the server stops.

A task that ends with an exception is a bug of ours. It is logged once, and the broker goes on without it, because
nothing that runs here is needed to keep a promise.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Tasks"]

log = logging.getLogger(__name__)


class Tasks:
    """Every background task of the process."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str, coroutine: Coroutine[None, None, None]) -> None:
        """Run something until it ends or `stop` cancels it. In the loop."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended: %r", task.get_name(), error, exc_info=error)

    async def stop(self) -> None:
        """Cancel what is left, and wait until it has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
