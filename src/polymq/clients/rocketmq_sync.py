"""The RocketMQ client for scripts: the same producers and consumers, without a coroutine in sight.

    with Producer("127.0.0.1:9876") as producer:
        producer.send(OutgoingMessage("flights", b"...", tags="delays"))

    with Consumer("127.0.0.1:9876", "board", {"flights": "delays || gates"}) as consumer:
        consumer.run(handle, concurrency=4)            # settles what `handle` returns from, has come again what it raises on
        for message in consumer.messages(timeout_seconds=5):    # or one by one
            message.settle()

    with PullConsumer("127.0.0.1:9876", "archive", "flights") as consumer:
        while messages := consumer.poll(5):
            ...

An event loop runs in a thread of its own, so heartbeats are sent and locks renewed while the script works. Every
call may be made from any thread. A client that is not closed ends with the process; what it had in hand comes again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from polymq.clients.in_thread import InThread, InThreadHandling
from polymq.clients.rocketmq_consumer import ConsumeOptions, RocketMQConsumer
from polymq.clients.rocketmq_messages import OutgoingMessage
from polymq.clients.rocketmq_options import RocketMQOptions, RocketMQTls
from polymq.clients.rocketmq_producer import DEFAULT_GROUP, RocketMQProducer
from polymq.clients.rocketmq_pull import PollOptions, RocketMQPullConsumer
from polymq.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from polymq.clients.loop_thread import LoopThread
    from polymq.clients.rocketmq_messages import RocketMQMessage, SendResult
    from polymq.clients.rocketmq_routes import MessageQueue

__all__ = [
    "ConsumeOptions",
    "Consumer",
    "Message",
    "OutgoingMessage",
    "PollOptions",
    "Producer",
    "PullConsumer",
    "RocketMQOptions",
    "RocketMQTls",
]

_DEFAULTS: Final = RocketMQOptions()
_CONSUMING: Final = ConsumeOptions()
_POLLING: Final = PollOptions()


class Producer(InThread):
    """`RocketMQProducer` for scripts: begins when it is made; raises what that raises."""

    def __init__(self, name_servers: str | Sequence[str], options: RocketMQOptions = _DEFAULTS, *, group: str = DEFAULT_GROUP) -> None:
        self._producer = RocketMQProducer(name_servers, options, group=group)
        super().__init__("rocketmq producer")
        self._begin(self._producer.__aenter__())

    def send(self, message: OutgoingMessage, *, select: Callable[[Sequence[MessageQueue]], MessageQueue] | None = None) -> SendResult:
        """Send a message and wait until its broker has it; `select` chooses the queue, in the loop's thread."""
        return self._thread.call(self._producer.send(message, select=select))

    def send_one_way(self, message: OutgoingMessage) -> None:
        """Send a message and wait for nothing: nobody knows whether it arrives."""
        self._thread.call(self._producer.send_one_way(message))

    def send_batch(self, messages: Sequence[OutgoingMessage]) -> SendResult:
        """Send messages of one topic to one queue, all or none."""
        return self._thread.call(self._producer.send_batch(messages))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Say which queues messages of a topic can go to."""
        return self._thread.call(self._producer.queues(topic))

    def close(self) -> None:
        """Leave the brokers and disconnect; what still waits for an answer gets ConnectionLost."""
        self._end(self._producer.close)


class Message:
    """One delivered message, with the fields of `RocketMQMessage`."""

    __slots__ = (
        "_message",
        "_thread",
        "attempts",
        "body",
        "id",
        "is_settled",
        "keys",
        "properties",
        "queue",
        "queue_offset",
        "tags",
        "topic",
    )

    def __init__(self, message: RocketMQMessage, thread: LoopThread) -> None:
        self.id = message.id
        self.topic = message.topic
        self.body = message.body
        self.tags = message.tags
        self.keys = message.keys
        self.properties = message.properties
        self.attempts = message.attempts
        self.queue = message.queue
        self.queue_offset = message.queue_offset
        self.is_settled = False
        self._message = message
        self._thread = thread

    @property
    def is_current(self) -> bool:
        """Whether settling still has an effect, as far as is known: its queue is still read here."""
        return not self.is_settled and self._message.is_current

    def settle(self) -> None:
        """Say that the message is done with; raises LocalProtocolError when it was settled or given back before."""
        self._end(self._message.settle)

    def requeue(self, delay_level: int = 0) -> None:
        """Have the message come again later, see `RocketMQMessage.requeue`; raises as `settle` does."""
        self._end(self._message.requeue, delay_level)

    def drop(self) -> None:
        """Act as if the message had never been handed out; raises as `settle` does."""
        self._end(self._message.drop)

    def _end(self, work: Callable[..., None], *arguments: int) -> None:
        if self.is_settled:
            raise LocalProtocolError(f"message {self.id} has been settled or given back before")
        self.is_settled = True
        self._thread.soon(self._if_current, work, *arguments)

    def _if_current(self, work: Callable[..., None], *arguments: int) -> None:
        # It may have been in hand for too long, and come again already.
        if not self._message.is_settled:
            work(*arguments)


class Consumer(InThreadHandling[Message]):
    """`RocketMQConsumer` for scripts, with its arguments: begins when it is made; raises what that raises. An iterator.

    Several threads may iterate, or call `run`, at once; they share the messages. A script that ends while it has
    messages in hand, or waiting here, gives none of them back: they come again as they were.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        group: str,
        topics: str | Sequence[str] | Mapping[str, str],
        options: RocketMQOptions = _DEFAULTS,
        *,
        consuming: ConsumeOptions = _CONSUMING,
    ) -> None:
        self._consumer = RocketMQConsumer(name_servers, group, topics, options, consuming=consuming)
        super().__init__(f"rocketmq consumer of {group}")
        self._begin(self._consumer.__aenter__())

    @property
    def queues(self) -> list[tuple[str, str, int]]:
        """What is read now: topic, broker, number of each queue."""
        return self._consumer.queues

    def flush(self) -> None:
        """Commit what has been settled so far, and wait until the brokers have it."""
        self._thread.call(self._consumer.flush())

    def close(self, grace_seconds: float = 0.0) -> None:
        """Commit what has been settled, leave the group and disconnect.

        What other threads have in hand may be settled for `grace_seconds` more; what is not comes again.
        """
        self._end(lambda: self._close(grace_seconds))

    def _handled(self, message: Message, error: Exception | None) -> None:
        if not message.is_settled:
            message.is_settled = True
            self._thread.soon(self._consumer.handled, message._message, error)  # noqa: SLF001 - one class in two halves

    def _interrupted(self, message: Message) -> None:
        if not message.is_settled:
            message.drop()

    def _take_up(self, message: Message) -> bool:
        if not message.is_current:
            return False
        message._message.given_at = self._thread.loop.time()  # noqa: SLF001 - it is in hand from here on
        return True

    async def _take(self) -> Iterable[Message] | None:
        found = await self._consumer.take()
        for each in found:
            each.given_at = math.inf  # nobody has it in hand yet
        return [Message(each, self._thread) for each in found] or None

    async def _close(self, grace_seconds: float) -> None:
        while (message := self._pop()) is not None:
            message._message.drop()  # noqa: SLF001 - one class in two halves
        await self._consumer.close(grace_seconds)


class PullConsumer(InThread):
    """`RocketMQPullConsumer` for scripts, with its arguments: begins when it is made; raises what that raises."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        group: str,
        topics: str | Sequence[str] | Mapping[str, str] = (),
        options: RocketMQOptions = _DEFAULTS,
        *,
        polling: PollOptions = _POLLING,
    ) -> None:
        self._consumer = RocketMQPullConsumer(name_servers, group, topics, options, polling=polling)
        self._unseen: list[RocketMQMessage] = []  # given by the loop, and not yet to the script
        super().__init__(f"rocketmq pulls of {group}")
        self._begin(self._consumer.__aenter__())

    @property
    def queues(self) -> list[MessageQueue]:
        """What is read now."""
        return self._consumer.queues

    def subscribe(self, topics: str | Sequence[str] | Mapping[str, str]) -> None:
        """Read topics instead of what was read before; the group divides their queues."""
        self._thread.call(self._consumer.subscribe(topics))

    def assign(self, queues: Iterable[MessageQueue], expression: str = "*") -> None:
        """Read these queues instead of what was read before, whoever else reads them."""
        self._thread.call(self._consumer.assign(queues, expression))

    def queues_of(self, topic: str) -> list[MessageQueue]:
        """Ask which queues a topic has."""
        return self._thread.call(self._consumer.queues_of(topic))

    def poll(self, timeout_seconds: float = 1.0) -> list[RocketMQMessage]:
        """Give what has come, or wait for it; what earlier polls have given counts as handled from here on.

        What came while a script was interrupted is given first.
        """
        if not self._unseen:
            self._thread.call(self._poll(timeout_seconds))
        found, self._unseen = self._unseen, []
        return found

    async def _poll(self, timeout_seconds: float) -> None:
        self._unseen = await self._consumer.poll(timeout_seconds)

    def position(self, queue: MessageQueue) -> int:
        """Say the offset behind what polls have given of a queue."""
        return self._consumer.position(queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Have the next poll go on at an offset."""
        self._thread.call(self._consumer.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the first message that is still there."""
        self._thread.call(self._consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes from now on."""
        self._thread.call(self._consumer.seek_to_end(queue))

    def offset_for_time(self, queue: MessageQueue, time_ms: int) -> int:
        """Ask for the first message that was stored at this time or later."""
        return self._thread.call(self._consumer.offset_for_time(queue, time_ms))

    def begin_offset(self, queue: MessageQueue) -> int:
        """Ask for the first offset that is still there."""
        return self._thread.call(self._consumer.begin_offset(queue))

    def end_offset(self, queue: MessageQueue) -> int:
        """Ask for the offset that the next message gets."""
        return self._thread.call(self._consumer.end_offset(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """Ask where the group is in a queue; None when it has not begun."""
        return self._thread.call(self._consumer.committed(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Have the group's positions go past everything that polls have given, or to these offsets."""
        self._thread.call(self._consumer.commit(offsets))

    def close(self) -> None:
        """Commit what is covered, leave the group and disconnect."""
        self._end(self._consumer.close)
