"""The NSQ client for scripts: the same producers and consumers, without a coroutine in sight.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("flights", b"...")
        producer.publish_many("flights", bodies)          # all or none

    with Consumer("127.0.0.1:4150", "flights", "delays") as consumer:
        for message in consumer:                          # or consumer.messages(timeout_seconds=5): ends when none comes
            work_on(message.body)
            message.settle()

    with Subscriber("flights", "delays", lookups=["127.0.0.1:4161"]) as subscriber:
        subscriber.run(handle, concurrency=4)             # settles what `handle` returns from, gives back what it raises on

An event loop runs in a thread of its own, so heartbeats are answered while the script works. Every call may be made
from any thread; a producer or a consumer that is not closed ends with the process, and what it has not written yet
is lost. Read next: `nsq.py` and `nsq_subscriber.py`, which do the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.clients.in_thread import InThread, InThreadHandling
from polymq.clients.nsq import NsqProducer
from polymq.clients.nsq_lookup import LookupOptions
from polymq.clients.nsq_opening import NsqOptions, NsqTls
from polymq.clients.nsq_subscriber import HandlerOptions, NsqSubscriber
from polymq.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polymq.clients.loop_thread import LoopThread
    from polymq.clients.nsq import NsqMessage

__all__ = ["Consumer", "HandlerOptions", "LookupOptions", "Message", "NsqOptions", "NsqTls", "Producer", "Subscriber"]

_DEFAULTS: Final = NsqOptions()
_HANDLER: Final = HandlerOptions()
_LOOKUP: Final = LookupOptions()


class Producer(InThread):
    """`NsqProducer` for scripts: connects when it is made; raises what that raises."""

    def __init__(self, address: str, options: NsqOptions = _DEFAULTS) -> None:
        super().__init__(f"nsq producer of {address}")
        self._producer = self._begin(self._open(address, options))

    @staticmethod
    async def _open(address: str, options: NsqOptions) -> NsqProducer:
        return await NsqProducer(address, options).__aenter__()

    def publish(self, topic: str, body: bytes, *, delay_ms: int = 0) -> None:
        """Publish one message and wait until the server has accepted it."""
        self._thread.call(self._producer.publish(topic, body, delay_ms=delay_ms))

    def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish several messages, all or none of them."""
        self._thread.call(self._producer.publish_many(topic, bodies))

    def close(self) -> None:
        """Close the connection; what still waits for an answer gets ConnectionLost."""
        self._end(self._producer.close)


class Message:
    """One delivered message, with the fields of `NsqMessage`.

    Settling has an effect as long as the connection that it came over is there.
    """

    __slots__ = ("_message", "_thread", "attempts", "body", "id", "is_settled", "time_ns")

    def __init__(self, message: NsqMessage, thread: LoopThread) -> None:
        self.id = message.id
        self.body = message.body
        self.attempts = message.attempts
        self.time_ns = message.time_ns
        self.is_settled = False
        self._message = message
        self._thread = thread

    @property
    def is_ours(self) -> bool:
        """Whether the server still waits for this message to be settled here, as far as is known; touches do not count."""
        return self._message.is_current and self._thread.loop.time() < self._message.expires_at

    def drop(self) -> None:
        """Forget the message without a word to the server, which delivers it again; raises as `settle` does."""
        self._end()
        self._thread.soon(self._message.drop)

    def settle(self) -> None:
        """Say that the message is done with; raises LocalProtocolError when it was settled or given back before."""
        self._end()
        self._thread.soon(self._message.settle)

    def requeue(self, delay_ms: int = 0) -> None:
        """Give the message back, to be delivered again after a delay; raises as `settle` does."""
        if delay_ms < 0:
            raise LocalProtocolError(f"a delay of {delay_ms} ms: a delay is not negative")
        self._end()
        self._thread.soon(self._message.requeue, delay_ms)

    def touch(self) -> None:
        """Ask for another full message timeout; raises as `settle` does."""
        self._check()
        self._thread.soon(self._message.touch)

    def _check(self) -> None:
        if self.is_settled:
            raise LocalProtocolError(f"message {self.id.decode('ascii', 'replace')} has been settled or given back before")

    def _end(self) -> None:
        self._check()
        self.is_settled = True

    def handled(self, subscriber: NsqSubscriber, error: Exception | None = None) -> None:
        """Settle it if it has not been, or do what `HandlerOptions` say: for `Subscriber.run`."""
        self.is_settled = True
        self._thread.soon(subscriber.handled, self._message, error)


class Subscriber(InThreadHandling[Message]):
    """`NsqSubscriber` for scripts, with its arguments: begins when it is made; raises what that raises. An iterator.

    Several threads may iterate, or call `run`, at once; they share the messages.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        options: NsqOptions = _DEFAULTS,
        *,
        addresses: Sequence[str] = (),
        lookups: Sequence[str] = (),
        max_in_flight: int = 200,
        handling: HandlerOptions = _HANDLER,
        lookup: LookupOptions = _LOOKUP,
    ) -> None:
        self._subscriber = NsqSubscriber(
            topic, channel, options, addresses=addresses, lookups=lookups, max_in_flight=max_in_flight, handling=handling, lookup=lookup
        )
        super().__init__(f"nsq consumer of {topic}")
        self._begin(self._subscriber.__aenter__())

    @property
    def addresses(self) -> list[str]:
        """The servers that are consumed from, or tried."""
        return self._subscriber.addresses

    def flush(self) -> None:
        """Wait until the servers have acted on every settle so far; raises ConnectionLost or DeadlineExceeded."""
        self._thread.call(self._subscriber.flush())

    def close(self, grace_seconds: float = 0.0) -> None:
        """Disconnect; what has been settled before is on its way first, and what nobody has seen is given back.

        What other threads have in hand may be settled for `grace_seconds` more; after that it comes again.
        """
        self._end(lambda: self._close(grace_seconds))

    def _take_up(self, message: Message) -> bool:
        if not message.is_ours:
            message.drop()
            return False
        return True

    async def _take(self) -> Iterable[Message] | None:
        return [Message(each, self._thread) for each in await self._subscriber.take()] or None

    def _handled(self, message: Message, error: Exception | None) -> None:
        message.handled(self._subscriber, error)

    async def _close(self, grace_seconds: float) -> None:
        while (message := self._pop()) is not None:
            message.requeue()
        await self._subscriber.close(grace_seconds)


class Consumer(Subscriber):
    """A `Subscriber` of one server."""

    def __init__(self, address: str, topic: str, channel: str, options: NsqOptions = _DEFAULTS, *, max_in_flight: int = 200) -> None:
        super().__init__(topic, channel, options, addresses=[address], max_in_flight=max_in_flight)
