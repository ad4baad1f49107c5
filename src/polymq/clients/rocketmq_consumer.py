"""A consumer that is given messages as they come: to a handler, or one by one to who iterates.

What is handled is settled, and the position of the group in each queue follows the first message that is not. What
fails goes back to the broker, which delivers it again after a while, and to the dead letters when it has failed too
often. What is neither, because the program ends, comes again to whoever reads the queue next. Read next:
`rocketmq_member.py` (which queues), `rocketmq_reader.py` (how they are pulled), `rocketmq_returns.py` (failures).
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from polymq.clients.rocketmq_allocation import allocate_averagely
from polymq.clients.rocketmq_member import Member, MemberOptions
from polymq.clients.rocketmq_naming import checked_group, subscribed
from polymq.clients.rocketmq_options import RocketMQOptions, open_socket
from polymq.clients.rocketmq_positions import FIRST, LAST, BrokerPositions, FilePositions, QueueQuestions, default_folder
from polymq.clients.rocketmq_pushes import answer_pushes
from polymq.clients.rocketmq_reader import PullOptions
from polymq.clients.rocketmq_returns import Returns
from polymq.clients.rocketmq_session import Session
from polymq.errors import LocalProtocolError, PolyMQError
from polymq.protocols.rocketmq.names import retry_topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from polymq.clients.rocketmq_allocation import Allocation
    from polymq.clients.rocketmq_messages import RocketMQMessage
    from polymq.clients.rocketmq_options import Opener
    from polymq.clients.rocketmq_reader import QueueReader

__all__ = ["ConsumeOptions", "RocketMQConsumer"]

_log: Final = logging.getLogger(__name__)
_DEFAULTS: Final = RocketMQOptions()
# How often it is looked for messages that somebody has had in hand for too long.
_OVERDUE_SECONDS: Final = 30.0
# Handlers that are being cancelled let go of their messages in some turns of the loop: an ordered queue can be unlocked then.
_HANDS_SECONDS_MIN: Final = 0.05

_PULLS: Final = PullOptions()


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """How messages are consumed.

    `begin_from` says where a group begins that has no position in a queue: "last", "first", or a time in ms. A
    message that fails comes again up to `reconsume_times_max` times. What has been in hand for `consume_seconds_max`
    has failed, a handler is cancelled then; None: it may take as long as it likes. An ordered message that fails stands still for `suspend_seconds`, with
    what is behind it; for how often is up to `ordered_reconsume_times_max`, None for as often as it takes.

    Raises:  LocalProtocolError when a value makes no sense.
    """

    is_ordered: bool = False
    is_broadcast: bool = False
    begin_from: str | int = LAST
    reconsume_times_max: int = 16
    ordered_reconsume_times_max: int | None = None
    suspend_seconds: float = 1.0
    consume_seconds_max: float | None = 900.0
    allocation: Allocation = allocate_averagely
    pulls: PullOptions = _PULLS
    offsets_folder: Path | None = None  # for broadcasts; None: a folder in the home folder

    def __post_init__(self) -> None:
        """Refuse what nobody can mean."""
        if self.begin_from not in (FIRST, LAST) and not (isinstance(self.begin_from, int) and self.begin_from >= 0):
            raise LocalProtocolError(f"begin_from is {self.begin_from!r}; it must be 'first', 'last' or a time in ms")
        if self.reconsume_times_max < 0 or (self.ordered_reconsume_times_max or 0) < 0:
            raise LocalProtocolError("how often a message comes again is not negative")
        if not (self.suspend_seconds > 0 and (self.consume_seconds_max is None or self.consume_seconds_max > 0)):
            raise LocalProtocolError(f"every time is more than 0 seconds: {self}")


_CONSUMING: Final = ConsumeOptions()


class RocketMQConsumer:
    """A member of a group: with `run` a handler's caller, else an async iterator of messages.

    `topics` has a tag expression for each topic (`{"flights": "delays || gates"}`), or only names topics. Messages
    have to be settled or given back, see `RocketMQMessage`; `run` does it.

    Raises:  LocalProtocolError when a name, an address or an expression makes no sense.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        group: str,
        topics: str | Sequence[str] | Mapping[str, str],
        options: RocketMQOptions = _DEFAULTS,
        *,
        consuming: ConsumeOptions = _CONSUMING,
        opener: Opener = open_socket,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        name = checked_group(group, options.namespace)
        instance = options.instance or ("DEFAULT" if consuming.is_broadcast else "")
        self._session = Session(name_servers, options, opener=opener, random=random, instance=instance)
        questions = QueueQuestions(self._session, name)
        positions = (
            FilePositions(consuming.offsets_folder or default_folder(), self._session.client_id, name)
            if consuming.is_broadcast
            else BrokerPositions(questions)
        )
        member = MemberOptions(
            begin_from=consuming.begin_from,
            is_broadcast=consuming.is_broadcast,
            is_ordered=consuming.is_ordered,
            allocation=consuming.allocation,
            pulls=consuming.pulls,
        )
        self._member = Member(self._session, name, self, positions, questions, member, random)
        self._member.subscriptions.update(subscribed(topics, options.namespace))
        if not self._member.subscriptions:
            raise LocalProtocolError("no topic: there is nothing to consume")
        if not consuming.is_broadcast:
            self._member.subscriptions.update(subscribed(retry_topic(name), ""))
        self._returns = Returns(self._session, questions, name, consuming.reconsume_times_max)
        self._consuming = consuming
        self._ready: deque[QueueReader] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._suspended: dict[RocketMQMessage, tuple[QueueReader, asyncio.TimerHandle]] = {}  # they come again here
        self._returning = 0  # messages that are on their way back
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def client_id(self) -> str:
        """The name of this client in its group."""
        return self._session.client_id

    @property
    def queues(self) -> list[tuple[str, str, int]]:
        """What is read now: topic, broker, number of each queue."""
        return sorted((each.topic, each.broker_name, each.queue_id) for each in self._member.readers)

    async def __aenter__(self) -> Self:
        """Begin: a name server has answered, and it has been tried once to find our queues.

        Raises:  DeadlineExceeded when no name server does, a Refusal when we may not consume.
        """
        try:
            await self._session.start()
            answer_pushes(self._session, self._member)
            self._member.begin()
            if self._consuming.consume_seconds_max is not None:
                self._session.spawn(self._keep_looking(self._consuming.consume_seconds_max), "overdue messages")
            await self._member.joined()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        await self.close()

    async def __aiter__(self) -> AsyncIterator[RocketMQMessage]:
        """Give messages one by one until closed; several tasks may do so at once."""
        while (message := await self._next()) is not None:
            yield message

    async def take(self) -> list[RocketMQMessage]:
        """Wait for messages and take some that are here; none once this is closed."""
        message = await self._next()
        found = []
        while message is not None:
            found.append(message)
            message = self._pop() if len(found) < self._consuming.pulls.batch_max else None
        return found

    async def run(self, handler: Callable[[RocketMQMessage], Awaitable[None]], *, concurrency: int = 20) -> None:
        """Have `handler` called for every message, for so many at a time, until closed; of an ordered queue one at a time.

        A message that it has neither settled nor given back is settled when it returns, and comes again when it
        raises an Exception. One that it had in hand when `run` is cancelled, or when it raises something else, is as if
        it had never been handed out.
        """
        if concurrency < 1:
            raise LocalProtocolError(f"concurrency is {concurrency}; it must be at least 1")
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._handle_all(handler))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first ends the others

    async def flush(self) -> None:
        """Commit what has been settled so far, and wait until the brokers have it."""
        await self._member.commit()

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Stop, and wait up to `grace_seconds` for what is in hand; then commit, leave the group and disconnect.

        Returns within some seconds more, whatever the servers do. Messages in hand may not be settled behind it: they
        come again.
        """
        self._is_closed = True
        self._arrived.set()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace_seconds), name=f"closing {self.client_id}")
        await asyncio.shield(self._closing)

    # --- Called by readers --------------------------------------------------------------------------------------------

    def arrived(self, reader: QueueReader) -> None:
        """List a queue that has messages to hand out."""
        if not reader.is_listed and reader.window.waiting and not (self._consuming.is_ordered and reader.window.in_hand):
            reader.is_listed = True
            self._ready.append(reader)
            self._arrived.set()

    def settled(self, reader: QueueReader, message: RocketMQMessage) -> None:
        """Have done with a message."""
        reader.window.settled(message)
        self._handed_back(reader)

    def requeued(self, reader: QueueReader, message: RocketMQMessage, delay_level: int) -> None:
        """Have a message come again: later in the same place if order counts, else by way of the broker."""
        consuming = self._consuming
        if self._is_closed or reader.window.is_dropped:
            self.let_be(reader, message)  # whoever reads the queue next gets it
            return
        if consuming.is_broadcast and not consuming.is_ordered:
            _log.warning("%r failed, and is dropped: broadcast messages do not come again", message)
            self.settled(reader, message)
            return
        times_max = consuming.ordered_reconsume_times_max
        if (
            consuming.is_ordered
            and delay_level >= 0
            and (times_max is None or message.reconsume_times < times_max or consuming.is_broadcast)
        ):
            self._suspend(reader, message, consuming.suspend_seconds)
            return
        self._returning += 1
        self._session.spawn(self._return(reader, message, delay_level), "a message that goes back")

    def let_be(self, reader: QueueReader, message: RocketMQMessage) -> None:
        """Act as if a message had never been handed out."""
        message.is_settled = False
        reader.window.put_back(message)
        self._handed_back(reader)

    # --- Messages -----------------------------------------------------------------------------------------------------

    async def _next(self) -> RocketMQMessage | None:
        while not self._is_closed:
            message = self._pop()
            if message is not None:
                return message
            self._arrived.clear()
            await self._arrived.wait()
        return None

    def _pop(self) -> RocketMQMessage | None:
        """Hand out the next message, of another queue each time."""
        while self._ready and not self._is_closed:
            reader = self._ready.popleft()
            reader.is_listed = False
            if not self._member.may_hand_out(reader) or (self._consuming.is_ordered and reader.window.in_hand):
                continue
            message = reader.window.take()
            if message is not None:
                message.given_at = asyncio.get_running_loop().time()
                self.arrived(reader)
                if self._ready:
                    self._arrived.set()  # there is something for another one who waits
                return message
        return None

    def _handed_back(self, reader: QueueReader) -> None:
        self._member.settled(reader)
        self.arrived(reader)
        if self._is_closed:
            self._idle.set()

    def _suspend(self, reader: QueueReader, message: RocketMQMessage, seconds: float) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self._again, reader, message)
        self._suspended[message] = reader, timer

    def _again(self, reader: QueueReader, message: RocketMQMessage) -> None:
        self._suspended.pop(message, None)
        message.attempts += 1
        self.let_be(reader, message)

    async def _return(self, reader: QueueReader, message: RocketMQMessage, delay_level: int) -> None:
        try:
            if await self._returns.send_back(message, delay_level, is_ordered=self._consuming.is_ordered):
                self.settled(reader, message)
            else:
                self._suspend(reader, message, self._returns.again_seconds)
        except asyncio.CancelledError:
            self.let_be(reader, message)
            raise
        finally:
            self._returning -= 1
            self._idle.set()

    async def _handle_all(self, handler: Callable[[RocketMQMessage], Awaitable[None]]) -> None:
        task = asyncio.current_task()
        assert task is not None
        while (message := await self._next()) is not None:
            error: BaseException | None = None
            try:
                async with asyncio.timeout(self._consuming.consume_seconds_max):
                    await handler(message)
            except asyncio.CancelledError as cancelled:
                error = cancelled  # something that the handler waited for, unless we are cancelled ourselves
            except Exception as failure:
                error = failure
            except BaseException:
                self._let_go(message)
                raise
            if task.cancelling() and error is not None:
                self._let_go(message)  # whatever the handler made of it, it did not come to its end
                raise asyncio.CancelledError
            self.handled(message, error)
            if task.cancelling():
                raise asyncio.CancelledError  # the handler took no notice

    @staticmethod
    def _let_go(message: RocketMQMessage) -> None:
        if not message.is_settled:
            message.drop()

    def handled(self, message: RocketMQMessage, error: BaseException | None = None) -> None:
        """Settle a message that has been handled, or have it come again when that failed: `run` does it for you."""
        if error is not None:
            _log.warning("%r comes again: %r", message, error)
        if not message.is_settled:
            if error is None:
                message.settle()
            else:
                message.requeue()

    async def _keep_looking(self, seconds_max: float) -> None:
        """Give back what has been in hand for too long, so that its queue goes on; ordered messages have to be waited for."""
        while not self._consuming.is_ordered:
            await asyncio.sleep(_OVERDUE_SECONDS)
            oldest = asyncio.get_running_loop().time() - seconds_max
            for reader in list(self._member.readers.values()):
                for message in [each for each in reader.window.in_hand.values() if each.given_at < oldest and not each.is_settled]:
                    _log.warning("%r has been in hand for too long, and comes again", message)
                    message.requeue()

    # --- The end ------------------------------------------------------------------------------------------------------

    async def _close(self, grace_seconds: float) -> None:
        try:
            self._member.pause()
            for message, (reader, timer) in list(self._suspended.items()):
                timer.cancel()
                self.let_be(reader, message)
            self._suspended.clear()
            await self._wait_for_hands(grace_seconds)
            await self._member.finish()
        except (PolyMQError, OSError) as error:
            _log.warning("%s: closing: %s", self.client_id, error)
        finally:
            await self._session.close()

    async def _wait_for_hands(self, grace_seconds: float) -> None:
        """Wait for what is in hand, and at any rate a little for what is on its way back."""
        loop = asyncio.get_running_loop()
        end = loop.time() + max(grace_seconds, _HANDS_SECONDS_MIN)
        limit = end + self._session.options.request_seconds
        readers = [*self._member.readers.values(), *self._member.leaving.values()]
        while True:
            hands = sum(len(each.window.in_hand) for each in readers) - self._returning
            until = end if hands > 0 else loop.time()
            if self._returning:
                until = limit
            if loop.time() >= until:
                return
            self._idle.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._idle.wait()
            except TimeoutError:
                return
