"""A consumer that asks: `poll` gives what has come, and what it has given counts as handled when it is called again.

So a position is committed only behind what the program has been given and has come back from. Read next:
`rocketmq_member.py` (which queues), `rocketmq_reader.py` (how they are pulled beforehand).
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from polymq.clients.rocketmq_allocation import allocate_averagely
from polymq.clients.rocketmq_member import Member, MemberOptions
from polymq.clients.rocketmq_naming import checked_group, subscribed, with_namespace
from polymq.clients.rocketmq_options import RocketMQOptions, open_socket
from polymq.clients.rocketmq_positions import LAST, BrokerPositions, QueueQuestions
from polymq.clients.rocketmq_pushes import answer_pushes
from polymq.clients.rocketmq_reader import PullOptions
from polymq.clients.rocketmq_session import Session
from polymq.errors import ConnectionLost, LocalProtocolError, Refusal, RefusalCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from polymq.clients.rocketmq_allocation import Allocation
    from polymq.clients.rocketmq_messages import RocketMQMessage
    from polymq.clients.rocketmq_options import Opener
    from polymq.clients.rocketmq_reader import QueueReader
    from polymq.clients.rocketmq_routes import MessageQueue

__all__ = ["PollOptions", "RocketMQPullConsumer"]

_DEFAULTS: Final = RocketMQOptions()
_PULLS: Final = PullOptions()


@dataclass(frozen=True, slots=True)
class PollOptions:
    """How a pull consumer reads: `begin_from` as in `ConsumeOptions`; `commits_by_itself` every 5 s what is covered by then."""

    begin_from: str | int = LAST
    commits_by_itself: bool = True
    poll_max: int = 100  # messages that one poll gives
    allocation: Allocation = allocate_averagely
    pulls: PullOptions = _PULLS

    def __post_init__(self) -> None:
        """Refuse what gives nothing."""
        if self.poll_max < 1:
            raise LocalProtocolError(f"poll_max is {self.poll_max}; it must be at least 1")


_POLLING: Final = PollOptions()


class RocketMQPullConsumer:
    """Reads topics with the rest of a group (`topics`, `subscribe`), or queues of one's choice (`assign`).

    Messages that `poll` has given are covered by the next `poll`, or by `commit`: then, and not before, the group's
    position may go past them. They need not be settled.

    Raises:  LocalProtocolError when a name, an address or an expression makes no sense.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        group: str,
        topics: str | Sequence[str] | Mapping[str, str] = (),
        options: RocketMQOptions = _DEFAULTS,
        *,
        polling: PollOptions = _POLLING,
        opener: Opener = open_socket,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        name = checked_group(group, options.namespace)
        self._options = options
        self._polling = polling
        self._session = Session(name_servers, options, opener=opener, random=random)
        self._questions = QueueQuestions(self._session, name)
        self._positions = BrokerPositions(self._questions)
        member = MemberOptions(
            begin_from=polling.begin_from,
            is_passive=False,
            allocation=polling.allocation,
            pulls=polling.pulls,
            commits_by_itself=polling.commits_by_itself,
        )
        self._member = Member(self._session, name, self, self._positions, self._questions, member, random)
        self._member.subscriptions.update(subscribed(topics, options.namespace))
        self._ready: deque[QueueReader] = deque()
        self._paused: set[MessageQueue] = set()
        self._arrived = asyncio.Event()
        self._is_polling = False
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def client_id(self) -> str:
        """The name of this client in its group."""
        return self._session.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """What is read now."""
        return list(self._member.readers)

    async def __aenter__(self) -> Self:
        """Begin: a name server has answered, and it has been tried once to find our queues. Raises DeadlineExceeded."""
        try:
            await self._session.start()
            answer_pushes(self._session, self._member)
            self._member.begin()
            await self._member.balanced.wait()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        await self.close()

    # --- What is read -------------------------------------------------------------------------------------------------

    async def subscribe(self, topics: str | Sequence[str] | Mapping[str, str]) -> None:
        """Read topics, with tag expressions if it is a mapping, instead of what was read before; the group divides their queues."""
        self._check_open()
        await self._member.set_topics(subscribed(topics, self._options.namespace))

    async def assign(self, queues: Iterable[MessageQueue], expression: str = "*") -> None:
        """Read these queues instead of what was read before, whoever else reads them."""
        self._check_open()
        some = list(queues)
        await self._member.set_queues(some, subscribed({each.topic: expression for each in some}, self._options.namespace))

    async def queues_of(self, topic: str) -> list[MessageQueue]:
        """Ask which queues a topic has; raises Refusal when nobody knows it, TransportError."""
        route = await self._session.route(with_namespace(self._options.namespace, topic))
        if route is None:
            raise Refusal(RefusalCode.TOPIC_NOT_FOUND, f"no name server knows {topic}")
        return list(route.read_queues)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give no more of these queues until `resume`."""
        self._paused.update(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Give what these queues have again."""
        self._paused.difference_update(queues)
        for reader in self._member.readers.values():
            self.arrived(reader)

    # --- Messages -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout_seconds: float = 1.0) -> list[RocketMQMessage]:
        """Give what has come, or wait for it; nothing when nothing comes in time, or when this is closed meanwhile.

        What earlier polls have given counts as handled from here on.
        Raises:  LocalProtocolError when another task polls, ConnectionLost when this is closed.
        """
        self._check_open()
        if self._is_polling:
            raise LocalProtocolError("one task polls at a time: what it was given counts as handled when it polls again")
        self._is_polling = True
        try:
            self._cover()
            async with asyncio.timeout(timeout_seconds):
                while not (found := self._collect()) and not self._is_closed:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return []
        else:
            return found
        finally:
            self._is_polling = False

    def position(self, queue: MessageQueue) -> int:
        """Say the offset behind what polls have given of a queue; raises LocalProtocolError when it is not read here."""
        window = self._reader(queue).window
        return max(window.in_hand) + 1 if window.in_hand else window.position

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Have the next poll go on at an offset. What earlier polls gave of the queue is not committed by this."""
        if offset < 0:
            raise LocalProtocolError(f"offset {offset}: offsets begin at 0")
        self._check_open()
        await self._member.move(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the first message that is still there; raises as `seek` and asking do."""
        await self.seek(queue, await self._questions.begin(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes from now on; raises as `seek` and asking do."""
        await self.seek(queue, await self._questions.end(queue))

    async def offset_for_time(self, queue: MessageQueue, time_ms: int) -> int:
        """Ask for the first message that was stored at this time or later; raises Refusal, TransportError."""
        return await self._questions.at_time(queue, time_ms)

    async def begin_offset(self, queue: MessageQueue) -> int:
        """Ask for the first offset that is still there; raises Refusal, TransportError."""
        return await self._questions.begin(queue)

    async def end_offset(self, queue: MessageQueue) -> int:
        """Ask for the offset that the next message gets; raises Refusal, TransportError."""
        return await self._questions.end(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Ask where the group is in a queue, None when it has not begun; raises Refusal, TransportError."""
        return await self._questions.committed(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Have the group's positions go past everything that polls have given, or to these offsets.

        Raises:  Refusal or TransportError when not all brokers have taken it.
        """
        self._check_open()
        if offsets is None:
            self._cover()
            await self._member.commit()
            return
        for queue, offset in offsets.items():
            await self._questions.commit(queue, offset, wait=True)
            reader = self._member.readers.get(queue)
            if reader is not None:
                reader.window.told(offset, is_answered=True)

    async def close(self) -> None:
        """Commit what is covered, leave the group and disconnect, within some seconds.

        What the last poll gave is not covered, unless `commit` was called: only the program knows.
        """
        self._is_closed = True
        self._arrived.set()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"closing {self.client_id}")
        await asyncio.shield(self._closing)

    # --- Called by readers --------------------------------------------------------------------------------------------

    def arrived(self, reader: QueueReader) -> None:
        """List a queue that has messages to give."""
        if not reader.is_listed and reader.window.waiting and reader.queue not in self._paused:
            reader.is_listed = True
            self._ready.append(reader)
            self._arrived.set()

    def settled(self, reader: QueueReader, message: RocketMQMessage) -> None:
        """Cover one message before the others."""
        reader.window.settled(message)
        reader.room()

    def requeued(self, reader: QueueReader, message: RocketMQMessage, delay_level: int) -> None:
        """Refuse: nobody would deliver it again."""
        raise LocalProtocolError("what was polled does not come again by itself: seek back, or send it once more")

    def let_be(self, reader: QueueReader, message: RocketMQMessage) -> None:
        """Give it again."""
        message.is_settled = False
        reader.window.put_back(message)
        self.arrived(reader)

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionLost("this consumer is closed")

    def _reader(self, queue: MessageQueue) -> QueueReader:
        reader = self._member.readers.get(queue)
        if reader is None:
            raise LocalProtocolError(f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name} is not read here")
        return reader

    def _cover(self) -> None:
        """Count everything that was given as handled."""
        for reader in self._member.readers.values():
            for message in list(reader.window.in_hand.values()):
                message.is_settled = True
                reader.window.settled(message)
            reader.room()

    def _collect(self) -> list[RocketMQMessage]:
        """Take what waits, of one queue after the other."""
        found: list[RocketMQMessage] = []
        while self._ready and len(found) < self._polling.poll_max:
            reader = self._ready.popleft()
            reader.is_listed = False
            if reader.queue in self._paused:
                continue
            while len(found) < self._polling.poll_max and (message := reader.window.take()) is not None:
                found.append(message)
            self.arrived(reader)
        return found

    async def _close(self) -> None:
        try:
            await self._member.finish()
        finally:
            await self._session.close()
