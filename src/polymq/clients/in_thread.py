"""What the clients for scripts have in common: a client that works in a loop's thread, and messages that wait there for a script.

`sync.py`, `rocketmq_sync.py`, `phpmq_sync.py` and `broker_sync.py` say what is theirs: how a client is opened and closed, and
what becomes of its messages. Read next: `loop_thread.py`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from polymq.clients.loop_thread import LoopThread
from polymq.errors import ConnectionLost, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from types import TracebackType

__all__ = ["InThread", "InThreadConsumer", "InThreadHandling"]

_T = TypeVar("_T")
_Message = TypeVar("_Message")


class InThread(ABC):
    """A client whose work is done by an event loop in a thread of its own; closed at the end of a `with`."""

    def __init__(self, name: str) -> None:
        self._thread = LoopThread(name)

    def __enter__(self) -> Self:
        """Be closed at the end."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Disconnect, and end the thread."""

    def _begin(self, opening: Coroutine[Any, Any, _T]) -> _T:
        """Return what has been opened; the thread does not outlive what could not be."""
        try:
            return self._thread.call(opening)
        except BaseException:
            self._thread.close()
            raise

    def _end(self, closing: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Have the client closed, once; the thread ends however that goes."""
        if not self._thread.is_closed:
            try:
                self._thread.call(closing())
            finally:
                self._thread.close()


class InThreadConsumer(InThread, Generic[_Message]):
    """A client that is given messages. An iterator; several threads may iterate at once, and share the messages."""

    def __init__(self, name: str) -> None:
        self._messages: deque[_Message] = deque()
        super().__init__(name)

    def __iter__(self) -> Iterator[_Message]:
        """Give messages, and wait for more, until closed; raises what makes it impossible to go on."""
        return self.messages()

    def messages(self, timeout_seconds: float | None = None) -> Iterator[_Message]:
        """Give messages; end when none has come for so long, or when this is closed; raises what the consumer below raises."""
        while not self._thread.is_closed:
            while (message := self._pop()) is not None:
                yield message
            try:
                if not self._thread.call(self._refill(timeout_seconds)):
                    return
            except ConnectionLost:
                if not self._thread.is_closed:
                    raise

    @abstractmethod
    async def _take(self) -> Iterable[_Message] | None:
        """Wait for messages; None: there will be no more."""

    @abstractmethod
    def _take_up(self, message: _Message) -> bool:
        """Say whether a message is still ours, now that a script is to have it."""

    def _pop(self) -> _Message | None:
        """Take the next message that is still ours."""
        while True:
            try:
                message = self._messages.popleft()
            except IndexError:  # perhaps another thread has taken the last one
                return None
            if self._take_up(message):
                return message

    async def _refill(self, timeout_seconds: float | None) -> bool:
        """Wait for messages; they are kept here at once, for a script that is interrupted while it waits."""
        try:
            async with asyncio.timeout(timeout_seconds):
                found = await self._take()
        except TimeoutError:
            return False
        self._messages.extend(found or ())
        return found is not None


class InThreadHandling(InThreadConsumer[_Message]):
    """A consumer that can also call a handler for every message."""

    def run(self, handler: Callable[[_Message], object], *, concurrency: int = 1, timeout_seconds: float | None = None) -> None:
        """Have `handler` called for every message, in so many threads, until closed or until none has come for so long.

        With one, it is called in this thread. A message that it has neither settled nor given back is settled when it
        returns; when it raises an Exception, the message comes again as the consumer's options say.
        """
        if concurrency < 1:
            raise LocalProtocolError(f"concurrency is {concurrency}; it must be at least 1")
        if concurrency == 1:
            self._handle_all(handler, timeout_seconds)
            return
        with concurrent.futures.ThreadPoolExecutor(concurrency, thread_name_prefix="polymq handler") as pool:
            futures = [pool.submit(self._handle_all, handler, timeout_seconds) for _ in range(concurrency)]
            try:
                for each in concurrent.futures.as_completed(futures):
                    each.result()
            except BaseException:
                self.close()  # else the other threads would go on, and this one wait for them
                raise

    @abstractmethod
    def _handled(self, message: _Message, error: Exception | None) -> None:
        """Settle a message that the handler has left open, or give it back."""

    def _interrupted(self, message: _Message) -> None:
        """Act on the end of the script, such as Ctrl-C, while it had a message in hand."""

    def _handle_all(self, handler: Callable[[_Message], object], timeout_seconds: float | None) -> None:
        for message in self.messages(timeout_seconds):
            try:
                handler(message)
            except Exception as error:
                self._handled(message, error)
            except BaseException:
                self._interrupted(message)
                raise
            else:
                self._handled(message, None)
