"""An event loop in a thread of its own: what stands under the synchronous faces of the clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from polymq.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["LoopThread"]

_T = TypeVar("_T")


class LoopThread:
    """An event loop in a thread. It does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.is_closed = False
        # Nothing is handed to the loop behind its end: nobody would ever do it, and somebody would wait.
        self._handing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Have work done in the loop and return what came of it; raises ConnectionLost once this is closed."""
        with self._handing:
            future = None if self.is_closed else asyncio.run_coroutine_threadsafe(work, self.loop)
        if future is None:
            work.close()
            raise ConnectionLost("this client is closed")
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise ConnectionLost("this client is closed") from error
        except BaseException:
            future.cancel()  # of the script's own: it does not wait any more
            raise

    def soon(self, work: Callable[..., object], *arguments: object) -> None:
        """Have something done in the loop, in the order of these calls; nothing once this is closed."""
        with self._handing:
            if not self.is_closed:
                self.loop.call_soon_threadsafe(work, *arguments)

    def close(self) -> None:
        """End the loop; who waits for it gets ConnectionLost."""
        with self._handing:
            if self.is_closed:
                return
            self.is_closed = True
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self.loop.run_forever()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
