"""The NSQ client for scripts: the same producers and consumers, without a coroutine in sight.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("flights", b"...")
        producer.publish_many("flights", bodies)          # all or none

    with Consumer("127.0.0.1:4150", "flights", "delays") as consumer:
        for message in consumer:                          # or consumer.messages(timeout_seconds=5): ends when none comes
            work_on(message.body)
            message.settle()

An event loop runs in a thread of its own, so heartbeats are answered while the script works. Every call may be made
from any thread; a producer or a consumer that is not closed ends with the process.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from polymq.clients.nsq import NsqConsumer, NsqProducer
from polymq.clients.nsq_opening import NsqOptions
from polymq.errors import ConnectionLost, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from types import TracebackType

    from polymq.clients.nsq import NsqMessage

__all__ = ["Consumer", "Message", "NsqOptions", "Producer"]

_DEFAULTS: Final = NsqOptions()
_T = TypeVar("_T")


class _LoopThread:
    """An event loop in a thread. It does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Have work done in the loop and return what came of it."""
        if self.loop.is_closed():
            work.close()
            raise ConnectionLost("this client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # of the script's own: it does not wait any more
            raise

    def close(self) -> None:
        """End the loop; what it was doing has been cancelled."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


class Producer:
    """`NsqProducer` for scripts: connects when it is made; raises what that raises."""

    def __init__(self, address: str, options: NsqOptions = _DEFAULTS) -> None:
        self._thread = _LoopThread(f"nsq producer of {address}")
        try:
            self._producer = self._thread.call(self._open(address, options))
        except BaseException:
            self._thread.close()
            raise

    @staticmethod
    async def _open(address: str, options: NsqOptions) -> NsqProducer:
        return await NsqProducer(address, options).__aenter__()

    def __enter__(self) -> Self:
        """Be closed at the end."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        self.close()

    def publish(self, topic: str, body: bytes, *, delay_ms: int = 0) -> None:
        """Publish one message and wait until the server has accepted it."""
        self._thread.call(self._producer.publish(topic, body, delay_ms=delay_ms))

    def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish several messages, all or none of them."""
        self._thread.call(self._producer.publish_many(topic, bodies))

    def close(self) -> None:
        """Close the connection."""
        if not self._thread.loop.is_closed():
            self._thread.call(self._producer.close())
            self._thread.close()


class Message:
    """One delivered message. Settling has an effect as long as the connection that it came over is there."""

    __slots__ = ("_loop", "_message", "attempts", "body", "id", "is_settled", "time_ns")

    def __init__(self, message: NsqMessage, loop: asyncio.AbstractEventLoop) -> None:
        self.id = message.id
        self.body = message.body
        self.attempts = message.attempts
        self.time_ns = message.time_ns
        self.is_settled = False
        self._message = message
        self._loop = loop

    @property
    def is_ours(self) -> bool:
        """Whether the server still waits for this message to be settled here, as far as is known; touches do not count."""
        return self._message.is_current and self._loop.time() < self._message.expires_at

    def drop(self) -> None:
        """Forget the message without a word to the server, which delivers it again; raises as `settle` does."""
        self._end()
        self._loop.call_soon_threadsafe(self._message.drop)

    def settle(self) -> None:
        """Say that the message is done with; raises LocalProtocolError when it was settled or given back before."""
        self._end()
        self._loop.call_soon_threadsafe(self._message.settle)

    def requeue(self, delay_ms: int = 0) -> None:
        """Give the message back, to be delivered again after a delay; raises as `settle` does."""
        if delay_ms < 0:
            raise LocalProtocolError(f"a delay of {delay_ms} ms: a delay is not negative")
        self._end()
        self._loop.call_soon_threadsafe(self._message.requeue, delay_ms)

    def touch(self) -> None:
        """Ask for another full message timeout; raises as `settle` does."""
        self._check()
        self._loop.call_soon_threadsafe(self._message.touch)

    def _check(self) -> None:
        if self.is_settled:
            raise LocalProtocolError(f"message {self.id.decode('ascii', 'replace')} has been settled or given back before")

    def _end(self) -> None:
        self._check()
        self.is_settled = True


class Consumer:
    """`NsqConsumer` for scripts: subscribes when it is made; raises what that raises. An iterator of messages."""

    def __init__(self, address: str, topic: str, channel: str, options: NsqOptions = _DEFAULTS, *, max_in_flight: int = 200) -> None:
        self._thread = _LoopThread(f"nsq consumer of {address}")
        try:
            self._consumer = self._thread.call(self._open(address, topic, channel, options, max_in_flight))
        except BaseException:
            self._thread.close()
            raise
        self._messages: list[Message] = []  # the next one is last

    @staticmethod
    async def _open(address: str, topic: str, channel: str, options: NsqOptions, max_in_flight: int) -> NsqConsumer:
        return await NsqConsumer(address, topic, channel, options, max_in_flight=max_in_flight).__aenter__()

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
        """Give messages; end when none has come for so long."""
        while True:
            while self._messages:
                message = self._messages.pop()
                if message.is_ours:
                    yield message
                else:
                    message.drop()
            if self._thread.loop.is_closed():
                return
            batch = self._thread.call(self._next(timeout_seconds))
            if not batch:
                return
            self._messages = batch

    async def _next(self, timeout_seconds: float | None) -> list[Message]:
        """Wait for messages; those that wait here when they are looked at too late are the server's again."""
        try:
            async with asyncio.timeout(timeout_seconds):
                async for message in self._consumer:
                    found = [message, *self._consumer.unseen()]
                    loop = asyncio.get_running_loop()
                    return [Message(each, loop) for each in reversed(found)]
        except TimeoutError:
            pass
        return []

    def close(self) -> None:
        """Disconnect; what has been settled before is on its way first, and the rest is given back."""
        if not self._thread.loop.is_closed():
            self._thread.call(self._close())
            self._thread.close()
            self._messages.clear()

    async def _close(self) -> None:
        for message in self._messages:
            message.requeue()
        await self._consumer.close()
