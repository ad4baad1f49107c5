"""The one API of `broker.py` for scripts.

    with connect("nsq://127.0.0.1:4150") as broker:
        broker.publish("flights", b"...")
        for message in broker.subscribe("flights", group="board"):     # or .messages(timeout_seconds=5): ends when none comes
            work_on(message.body)
            message.done()

An event loop runs in a thread of its own. Every call may be made from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Self

from polymq.clients import broker as asynchronous
from polymq.clients.broker_messages import Outgoing
from polymq.clients.in_thread import InThread
from polymq.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from polymq.clients.broker_messages import Begin, BrokerMessage
    from polymq.clients.loop_thread import LoopThread
    from polymq.errors import PolyMQError

__all__ = ["Broker", "Message", "Outgoing", "Subscription", "connect"]

_NO_HEADERS: Final[Mapping[str, str]] = {}


def connect(url: str, options: object = None) -> Broker:
    """Connect to a broker by its address; raises what `polymq.clients.broker.Broker` raises."""
    return Broker(url, options)


class Message:
    """One delivered message, with the fields of `BrokerMessage`."""

    __slots__ = ("_message", "_thread", "attempts", "body", "headers", "key", "order", "reply_to", "tags", "time", "ttl")

    def __init__(self, message: BrokerMessage, thread: LoopThread) -> None:
        self.body = message.body
        self.headers = message.headers
        self.key = message.key
        self.tags = message.tags
        self.time = message.time
        self.attempts = message.attempts
        self.ttl = message.ttl
        self.order = message.order
        self.reply_to = message.reply_to
        self._message = message
        self._thread = thread

    @property
    def is_settled(self) -> bool:
        """Whether it has been settled."""
        return self._message.is_settled

    def done(self) -> None:
        """Say that the message has been handled; raises as `BrokerMessage.done` does."""
        self._thread.call(self._message.done())

    def retry(self, delay: float = 0.0) -> None:
        """Have the message come again, not before `delay` seconds have passed; raises as `BrokerMessage.retry` does."""
        self._thread.call(self._message.retry(delay))

    def discard(self) -> None:
        """Give the message up; raises as `BrokerMessage.discard` does."""
        self._thread.call(self._message.discard())


class Subscription:
    """Messages of one topic, from when it is made; an iterator."""

    def __init__(self, subscription: asynchronous.Subscription, thread: LoopThread) -> None:
        self._subscription = subscription
        self._thread = thread

    def __enter__(self) -> Self:
        """Be closed at the end."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        self.close()

    def __iter__(self) -> Iterator[Message]:
        """Give messages, and wait for more, until closed."""
        return self.messages()

    def messages(self, timeout_seconds: float | None = None) -> Iterator[Message]:
        """Give messages; end when none has come for so long, or when this is closed."""
        while not self._thread.is_closed:
            message: BrokerMessage | None = None
            try:
                message = self._thread.call(self._next(timeout_seconds))
            except ConnectionLost:
                if not self._thread.is_closed:
                    raise
            if message is None:
                return
            yield Message(message, self._thread)

    def close(self) -> None:
        """End; what was settled is on its way before that."""
        if not self._thread.is_closed:
            self._thread.call(self._subscription.close())

    async def _next(self, timeout_seconds: float | None) -> BrokerMessage | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                return await self._subscription.next()
        return None


class Broker(InThread):
    """`polymq.clients.broker.Broker` for scripts: connected when it is made."""

    def __init__(self, url: str, options: object = None) -> None:
        super().__init__("polymq broker")
        self._broker = self._begin(self._open(url, options))

    @staticmethod
    async def _open(url: str, options: object) -> asynchronous.Broker:
        return await asynchronous.Broker(url, options).__aenter__()

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        key: str = "",
        headers: Mapping[str, str] = _NO_HEADERS,
        tags: str = "",
        delay: float = 0.0,
        ttl: float = 0.0,
        order: str | int | None = None,
    ) -> None:
        """Publish a message; raises as `Broker.publish` of `broker.py` does."""
        publishing = self._broker.publish(topic, body, key=key, headers=headers, tags=tags, delay=delay, ttl=ttl, order=order)
        self._thread.call(publishing)

    def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish messages together; raises as `Broker.publish_many` of `broker.py` does."""
        self._thread.call(self._broker.publish_many(topic, bodies))

    def publish_each(self, messages: Sequence[Outgoing], repeated: set[int] | None = None) -> list[PolyMQError | None]:
        """Publish messages together, and say of each what went wrong: None when the server has it; `repeated` as that of `broker.py` has it."""
        return self._thread.call(self._broker.publish_each(messages, repeated))

    def subscribe(self, topic: str, group: str = "", *, window: int = 100, begin: Begin = "", holds: bool = False) -> Subscription:
        """Subscribe to the messages of a topic that its group gets, from now on; raises as that of `broker.py` does, or what connecting does."""
        return Subscription(self._thread.call(self._subscribe(topic, group, window, begin, holds)), self._thread)

    def close(self) -> None:
        """End all subscriptions, then disconnect."""
        self._end(self._broker.close)

    async def _subscribe(self, topic: str, group: str, window: int, begin: Begin, holds: bool) -> asynchronous.Subscription:
        return await self._broker.subscribe(topic, group, window=window, begin=begin, holds=holds).__aenter__()
