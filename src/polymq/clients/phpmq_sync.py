"""The PHPMQ client for scripts: the same producers and consumers, without a coroutine in sight.

    with Producer("127.0.0.1:9100") as producer:
        producer.publish("orders", b"...", ttl_seconds=3600)

    with Consumer("127.0.0.1:9100", "orders") as consumer:
        for message in consumer:                          # or consumer.messages(timeout_seconds=5): ends when none comes
            work_on(message.content)
            message.settle()

An event loop runs in a thread of its own. Every call may be made from any thread. Read next: `phpmq.py`, which does the work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from polymq.clients.loop_thread import LoopThread
from polymq.clients.phpmq import PhpmqConsumer, PhpmqOptions, PhpmqProducer
from polymq.errors import ConnectionLost, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from polymq.clients.phpmq import PhpmqMessage

__all__ = ["Consumer", "Message", "PhpmqOptions", "Producer"]

_DEFAULTS: Final = PhpmqOptions()


class Producer:
    """`PhpmqProducer` for scripts: connects when it is made; raises what that raises."""

    def __init__(self, address: str, options: PhpmqOptions = _DEFAULTS) -> None:
        self._thread = LoopThread(f"phpmq producer of {address}")
        try:
            self._producer = self._thread.call(self._open(address, options))
        except BaseException:
            self._thread.close()
            raise

    @staticmethod
    async def _open(address: str, options: PhpmqOptions) -> PhpmqProducer:
        return await PhpmqProducer(address, options).__aenter__()

    def __enter__(self) -> Self:
        """Be closed at the end."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        self.close()

    def publish(self, queue: str | bytes, content: bytes, *, ttl_seconds: int = 0) -> None:
        """Send one message and wait until the connection has taken it."""
        self._thread.call(self._producer.publish(queue, content, ttl_seconds=ttl_seconds))

    def publish_many(self, queue: str | bytes, contents: Sequence[bytes], *, ttl_seconds: int = 0) -> None:
        """Send several messages as one piece."""
        self._thread.call(self._producer.publish_many(queue, contents, ttl_seconds=ttl_seconds))

    def close(self) -> None:
        """Wait until the server has read everything; raises as `PhpmqProducer.close` does."""
        if not self._thread.is_closed:
            try:
                self._thread.call(self._producer.close())
            finally:
                self._thread.close()


class Message:
    """One dispatched message, with the fields of `PhpmqMessage`."""

    __slots__ = ("_message", "_thread", "content", "id", "is_settled", "queue", "ttl_seconds")

    def __init__(self, message: PhpmqMessage, thread: LoopThread) -> None:
        self.queue = message.queue
        self.content = message.content
        self.id = message.id
        self.ttl_seconds = message.ttl_seconds
        self.is_settled = False
        self._message = message
        self._thread = thread

    @property
    def is_current(self) -> bool:
        """Whether the connection that the message came over is still there."""
        return self._message.is_current

    def settle(self) -> None:
        """Say that the message is done with; raises LocalProtocolError when that was said before."""
        self._end()
        self._thread.soon(self._message.settle)

    def requeue(self, *, ttl_seconds: int = 0) -> None:
        """Put the message at the end of its queue, with a TTL that begins then; raises as `settle` does."""
        if ttl_seconds < 0:
            raise LocalProtocolError(f"a TTL of {ttl_seconds} s: it is not negative")
        self._end()
        self._thread.soon(self._requeue, ttl_seconds)

    def dead_letter(self) -> None:
        """Have the message removed, whatever its TTL; raises as `settle` does."""
        self._end()
        self._thread.soon(self._message.dead_letter)

    def _requeue(self, ttl_seconds: int) -> None:
        self._message.requeue(ttl_seconds=ttl_seconds)

    def _end(self) -> None:
        if self.is_settled:
            raise LocalProtocolError(f"message {self.id.decode('ascii', 'replace')} has been settled or sent back before")
        self.is_settled = True


class Consumer:
    """`PhpmqConsumer` for scripts, with its arguments: begins when it is made; raises what that raises. An iterator."""

    def __init__(self, address: str, queue: str | bytes, options: PhpmqOptions = _DEFAULTS, *, window: int = 100) -> None:
        self._messages: deque[Message] = deque()
        self._thread = LoopThread(f"phpmq consumer of {address}")
        try:
            self._consumer = self._thread.call(self._open(address, queue, options, window))
        except BaseException:
            self._thread.close()
            raise

    @staticmethod
    async def _open(address: str, queue: str | bytes, options: PhpmqOptions, window: int) -> PhpmqConsumer:
        return await PhpmqConsumer(address, queue, options, window=window).__aenter__()

    def __enter__(self) -> Self:
        """Be closed at the end."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        self.close()

    def __iter__(self) -> Iterator[Message]:
        """Give messages, and wait for more, until closed; raises what makes it impossible to go on."""
        return self.messages()

    def messages(self, timeout_seconds: float | None = None) -> Iterator[Message]:
        """Give messages; end when none has come for so long, or when this is closed; raises what `PhpmqConsumer` raises."""
        while not self._thread.is_closed:
            while self._messages:
                message = self._messages.popleft()
                if message.is_current:
                    yield message
            try:
                if not self._thread.call(self._refill(timeout_seconds)):
                    return
            except ConnectionLost:
                if not self._thread.is_closed:
                    raise

    def close(self) -> None:
        """Disconnect; what has been settled before is on its way first, and the rest goes back to the queue."""
        if not self._thread.is_closed:
            try:
                self._thread.call(self._consumer.close())
            finally:
                self._thread.close()

    async def _refill(self, timeout_seconds: float | None) -> bool:
        """Wait for messages; they are kept here at once, for a script that is interrupted while it waits."""
        try:
            async with asyncio.timeout(timeout_seconds):
                batch = await self._consumer.next_batch()
        except TimeoutError:
            return False
        self._messages.extend(Message(each, self._thread) for each in batch or ())
        return batch is not None
