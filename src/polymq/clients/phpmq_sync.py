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

from typing import TYPE_CHECKING, Final

from polymq.clients.in_thread import InThread, InThreadConsumer
from polymq.clients.phpmq import PhpmqConsumer, PhpmqOptions, PhpmqProducer
from polymq.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polymq.clients.loop_thread import LoopThread
    from polymq.clients.phpmq import PhpmqMessage

__all__ = ["Consumer", "Message", "PhpmqOptions", "Producer"]

_DEFAULTS: Final = PhpmqOptions()


class Producer(InThread):
    """`PhpmqProducer` for scripts: connects when it is made; raises what that raises."""

    def __init__(self, address: str, options: PhpmqOptions = _DEFAULTS) -> None:
        super().__init__(f"phpmq producer of {address}")
        self._producer = self._begin(self._open(address, options))

    @staticmethod
    async def _open(address: str, options: PhpmqOptions) -> PhpmqProducer:
        return await PhpmqProducer(address, options).__aenter__()

    def publish(self, queue: str | bytes, content: bytes, *, ttl_seconds: int = 0) -> None:
        """Send one message and wait until the connection has taken it."""
        self._thread.call(self._producer.publish(queue, content, ttl_seconds=ttl_seconds))

    def publish_many(self, queue: str | bytes, contents: Sequence[bytes], *, ttl_seconds: int = 0) -> None:
        """Send several messages as one piece."""
        self._thread.call(self._producer.publish_many(queue, contents, ttl_seconds=ttl_seconds))

    def confirm(self) -> None:
        """Wait until the server has taken all that was sent; raises as `PhpmqProducer.confirm` does."""
        self._thread.call(self._producer.confirm())

    def close(self) -> None:
        """Wait until the server has ended the connection; raises as `PhpmqProducer.close` does."""
        self._end(self._producer.close)


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


class Consumer(InThreadConsumer[Message]):
    """`PhpmqConsumer` for scripts, with its arguments: begins when it is made; raises what that raises. An iterator."""

    def __init__(self, address: str, queue: str | bytes, options: PhpmqOptions = _DEFAULTS, *, window: int = 100) -> None:
        super().__init__(f"phpmq consumer of {address}")
        self._consumer = self._begin(self._open(address, queue, options, window))

    @staticmethod
    async def _open(address: str, queue: str | bytes, options: PhpmqOptions, window: int) -> PhpmqConsumer:
        return await PhpmqConsumer(address, queue, options, window=window).__aenter__()

    def close(self) -> None:
        """Disconnect; what has been settled before is on its way first, and the rest goes back to the queue."""
        self._end(self._consumer.close)

    def _take_up(self, message: Message) -> bool:
        return message.is_current

    async def _take(self) -> Iterable[Message] | None:
        batch = await self._consumer.next_batch()
        return None if batch is None else [Message(each, self._thread) for each in batch]
