"""Pulls one queue: one request under way at a time, held by the broker while there is nothing to give.

What comes goes into the queue's window; the window says when there is enough for now. Who consumes is told of
arrivals and of what becomes of each message (`Owner`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from polymq.clients.backoff import Backoff
from polymq.clients.rocketmq_connection import refused
from polymq.clients.rocketmq_delivery import delivered
from polymq.errors import ConnectFailed, LocalProtocolError, PolyMQError
from polymq.protocols.rocketmq.codes import PullFlag, RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.clients.rocketmq_connection import Answer
    from polymq.clients.rocketmq_messages import RocketMQMessage
    from polymq.clients.rocketmq_routes import MessageQueue
    from polymq.clients.rocketmq_session import Session
    from polymq.clients.rocketmq_window import QueueWindow
    from polymq.protocols.rocketmq.bodies import Subscription

__all__ = ["Owner", "PullOptions", "QueueReader"]

_log: Final = logging.getLogger(__name__)
_MS_PER_SECOND: Final = 1000
# A broker that answers "nothing" as fast is not one that holds pulls.
_HELD_SECONDS_MIN: Final = 0.02
_UNHELD_WAIT_SECONDS: Final = 0.2
_FLOW_CONTROL_WAIT_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class PullOptions:
    """How queues are pulled: at most so many messages at a time, held by the broker for so long while there are none.

    Raises:  LocalProtocolError when a number makes no sense.
    """

    batch_max: int = 32
    held_seconds: float = 15.0
    patience_seconds: float = 15.0  # for the answer, beyond the time for which the broker holds it
    retry_seconds_first: float = 0.5
    retry_seconds_max: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what would pull nothing, or without a pause."""
        if self.batch_max < 1:
            raise LocalProtocolError(f"batch_max is {self.batch_max}; it must be at least 1")
        if not (self.held_seconds >= 0 and self.patience_seconds > 0 and 0 < self.retry_seconds_first <= self.retry_seconds_max):
            raise LocalProtocolError(f"these waits make no sense: {self}")


class Owner(Protocol):
    """Who reads the queue."""

    def arrived(self, reader: QueueReader) -> None:
        """Messages wait in the reader's window."""

    def settled(self, reader: QueueReader, message: RocketMQMessage) -> None:
        """A message is done with."""

    def requeued(self, reader: QueueReader, message: RocketMQMessage, delay_level: int) -> None:
        """A message is to come again."""

    def let_be(self, reader: QueueReader, message: RocketMQMessage) -> None:
        """A message is as if it had not been handed out."""


class QueueReader:
    """The task that pulls a queue into its window. It is who settled messages report to."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscription: Subscription,
        window: QueueWindow,
        owner: Owner,
        options: PullOptions,
        random: Callable[[], float],
    ) -> None:
        self.window = window
        self.is_listed = False  # by who consumes: as one that has messages
        self.keeps_position = True  # False: where the group is in this queue is not ours to say any more
        self.pulled_at = asyncio.get_running_loop().time()
        self._session = session
        self._group = group
        self._subscription = subscription
        self._owner = owner
        self._options = options
        self._backoff = Backoff(options.retry_seconds_first, options.retry_seconds_max, random)
        self._room = asyncio.Event()
        self._broker_id = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def queue(self) -> MessageQueue:
        """What is read."""
        return self.window.queue

    def start(self) -> None:
        """Begin to pull."""
        self._task = self._session.spawn(self._run(), f"pulls of {self.queue.topic} queue {self.queue.queue_id}")

    def stop(self) -> None:
        """Give the queue up: nothing more is pulled or handed out. What is in hand may still be settled."""
        self.window.drop()
        self.pause()

    def pause(self) -> None:
        """Pull nothing more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def room(self) -> None:
        """Say that something was settled."""
        self._room.set()

    # --- Called by messages -------------------------------------------------------------------------------------------

    def settle(self, message: RocketMQMessage) -> None:
        """Hand it on."""
        self._owner.settled(self, message)

    def requeue(self, message: RocketMQMessage, delay_level: int) -> None:
        """Hand it on."""
        self._owner.requeued(self, message, delay_level)

    def let_be(self, message: RocketMQMessage) -> None:
        """Hand it on."""
        self._owner.let_be(self, message)

    def holds(self, message: RocketMQMessage) -> bool:
        """Say whether it is in hand, and the queue ours."""
        return not self.window.is_dropped and self.window.in_hand.get(message.queue_offset) is message

    # --- Inside -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self.window.is_dropped:
            while self.window.is_full:
                self._room.clear()
                await self._room.wait()
            try:
                wait_seconds = await self._pull_once()
                self._backoff.succeeded()
            except PolyMQError as error:
                wait_seconds = self._backoff.next_seconds()
                _log.warning("%s queue %d of %s: %s", self.queue.topic, self.queue.queue_id, self.queue.broker_name, error)
            except Exception:
                wait_seconds = self._backoff.next_seconds()
                _log.exception("%s queue %d of %s", self.queue.topic, self.queue.queue_id, self.queue.broker_name)
            if wait_seconds:
                await asyncio.sleep(wait_seconds)

    async def _pull_once(self) -> float:
        """Pull, and take what comes; returns how long to wait before the next time."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        answer = await self._pull()
        self.pulled_at = loop.time()
        if answer.code == ResponseCode.FLOW_CONTROL:
            return _FLOW_CONTROL_WAIT_SECONDS
        if answer.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            if answer.code in (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST):
                await self._session.heartbeat()
            raise refused(answer, "a pull")
        next_offset = answer.number("nextBeginOffset")
        self._broker_id = int(answer.ext.get("suggestWhichBrokerId") or 0)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            await self._move(next_offset)
        elif answer.code == ResponseCode.SUCCESS:
            self._take(answer, next_offset)
        else:
            self.window.add((), next_offset)
            if answer.code == ResponseCode.PULL_NOT_FOUND and loop.time() - begun < _HELD_SECONDS_MIN:
                return _UNHELD_WAIT_SECONDS
        return 0.0

    async def _pull(self) -> Answer:
        queue, options, subscription = self.queue, self._options, self._subscription
        route = await self._session.route(queue.topic)
        address = route.address(queue.broker_name, self._broker_id) if route is not None else None
        if address is None:
            raise ConnectFailed(f"no route to the broker {queue.broker_name}")
        ext = {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(self.window.next_offset),
            "maxMsgNums": str(options.batch_max),
            "sysFlag": str(int(PullFlag.SUSPEND | PullFlag.SUBSCRIPTION)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(int(options.held_seconds * _MS_PER_SECOND)),
            "subscription": subscription.expression,
            "subVersion": str(subscription.version),
            "expressionType": subscription.expression_type,
            "bname": queue.broker_name,
        }
        seconds = options.held_seconds + options.patience_seconds
        return await self._session.ask(address, RequestCode.PULL_MESSAGE, ext, seconds=seconds, introduced=True)

    def _take(self, answer: Answer, next_offset: int) -> None:
        tags = self._subscription.tags
        messages = delivered(answer, self.queue, self, self._session.options.namespace)
        if tags:  # the broker compares hashes only
            messages = [each for each in messages if each.tags in tags]
        if self.window.is_dropped:
            return
        self.window.add(messages, next_offset)
        if self.window.waiting:
            self._owner.arrived(self)

    async def _move(self, offset: int) -> None:
        """Go on where the broker says, once everything before is settled."""
        _log.warning("%s queue %d of %s goes on at %d, not at %d: the broker has nothing there",
                     self.queue.topic, self.queue.queue_id, self.queue.broker_name, offset, self.window.next_offset)  # fmt: skip
        while self.window.count and not self.window.is_dropped:
            self._room.clear()
            await self._room.wait()
        if not self.window.is_dropped:
            self.window.next_offset = offset
