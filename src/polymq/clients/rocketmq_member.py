"""One client's part in a group of consumers: which queues it reads, where it is in them, and who may read them in order.

Every member asks the broker who else there is, and computes by itself what it is to read (`rocketmq_allocation.py`):
every 20 seconds, when the broker says that the group has changed, and every second while something is missing. A
queue that is given up is committed first. For ordered reading a queue is locked at its broker, the lock renewed, and
not released while one of its messages is in hand: nobody else shall handle it at the same time, nor we twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.clients.rocketmq_allocation import allocate_averagely
from polymq.clients.rocketmq_connection import Answer, refused
from polymq.clients.rocketmq_positions import LAST
from polymq.clients.rocketmq_reader import PullOptions, QueueReader
from polymq.clients.rocketmq_routes import queue_order
from polymq.clients.rocketmq_window import QueueWindow
from polymq.errors import ConnectFailed, ConnectionLost, LocalProtocolError, PolyMQError
from polymq.protocols.rocketmq.bodies import (
    ConsumerData,
    LockBody,
    encode_lock_body,
    parse_consumer_list,
    parse_lock_reply,
)
from polymq.protocols.rocketmq.codes import RequestCode
from polymq.protocols.rocketmq.names import is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polymq.clients.rocketmq_allocation import Allocation
    from polymq.clients.rocketmq_positions import Positions, QueueQuestions
    from polymq.clients.rocketmq_reader import Owner
    from polymq.clients.rocketmq_routes import MessageQueue, Route
    from polymq.clients.rocketmq_session import Session
    from polymq.protocols.rocketmq.bodies import Subscription
    from polymq.protocols.rocketmq.events import Request

__all__ = ["Member", "MemberOptions"]

_log: Final = logging.getLogger(__name__)
_REBALANCE_SECONDS: Final = 20.0
_REBALANCE_SECONDS_WHILE_MISSING: Final = 1.0
# Brokers tell of every change; a group that starts changes often.
_REBALANCE_SECONDS_MIN: Final = 0.02
_COMMIT_SECONDS: Final = 5.0
_LOCK_SECONDS: Final = 20.0
# A broker gives a lock to somebody else after 60 s; who has not heard of its own for half of that stops.
_LOCK_SECONDS_MAX: Final = 30.0
_LAST_WORDS_SECONDS_MAX: Final = 3.0
_CONSUME_FROM: Final = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}

_PULLS: Final = PullOptions()


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """How a group is joined. `begin_from`: "first", "last" or a time in ms, where the group has no position yet."""

    begin_from: str | int = LAST
    is_passive: bool = True  # messages are pushed to handlers; else whoever consumes asks for them
    is_broadcast: bool = False  # every member reads everything
    is_ordered: bool = False
    allocation: Allocation = allocate_averagely
    pulls: PullOptions = _PULLS
    commits_by_itself: bool = True


class Member:
    """A client in a group. `readers` has the queues that are its own now, `leaving` those that are given up and still in hand.

    `subscriptions` may change at any time; `rebalance_now` makes it count. With `assigned` queues nobody is asked.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        owner: Owner,
        positions: Positions,
        questions: QueueQuestions,
        options: MemberOptions,
        random: Callable[[], float],
    ) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.assigned: frozenset[MessageQueue] | None = None
        self.readers: dict[MessageQueue, QueueReader] = {}
        self.leaving: dict[MessageQueue, QueueReader] = {}
        self.group = group
        self.balanced = asyncio.Event()  # the first attempt is over
        self._session = session
        self._owner = owner
        self._positions = positions
        self._questions = questions
        self.begun_ms = time.time_ns() // 1_000_000
        self._options = options
        self._random = random
        self._wanted = asyncio.Event()
        self._turning = asyncio.Lock()
        self._is_finished = False
        self._tasks: list[asyncio.Task[None]] = []

    # --- Beginning and end --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Join, and go on reading until `finish`."""
        if self.subscriptions:
            self._session.consumers[self.group] = self._describe
        self._session.handlers[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] = self._group_changed
        self._tasks = [
            self._session.spawn(self._keep_balanced(), "rebalancing"),
            self._session.spawn(self._keep_committing(), "commits"),
        ]
        if self._is_locking:
            self._tasks.append(self._session.spawn(self._keep_locks(), "locks"))

    def pause(self) -> None:
        """Pull nothing more, and take no more queues; what has been handed out may still be settled."""
        self._is_finished = True
        for task in self._tasks:
            task.cancel()
        for reader in self.readers.values():
            reader.pause()

    async def finish(self) -> None:
        """Commit what has been settled, and let the queues go; returns within some seconds."""
        self.pause()
        readers = [*self.readers.values(), *self.leaving.values()]
        for reader in readers:
            reader.stop()
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS_MAX):
                await self._commit_by_itself(readers, wait=True)
                if self._is_locking:
                    await self._unlock([each.queue for each in readers if not each.window.in_hand])
        except (TimeoutError, PolyMQError) as error:
            _log.warning("%s: the last commits of group %s: %s", self._session.client_id, self.group, error or "no answer in time")

    def rebalance_now(self) -> None:
        """Look at once who reads what."""
        self._wanted.set()

    # --- Called by consumers ------------------------------------------------------------------------------------------

    def may_hand_out(self, reader: QueueReader) -> bool:
        """Say whether messages of a queue may be handed out now: for ordered ones, whether its lock is certainly ours."""
        if reader.window.is_dropped or self._is_finished:
            return False
        if not self._is_locking:
            return True
        locked_at = reader.window.locked_at
        return locked_at is not None and asyncio.get_running_loop().time() - locked_at < _LOCK_SECONDS_MAX

    def settled(self, reader: QueueReader) -> None:
        """Something of a queue is not in hand any more."""
        reader.room()
        if reader.window.is_dropped and not reader.window.in_hand and self.leaving.get(reader.queue) is reader and not self._is_finished:
            self._session.spawn(self._let_go(reader), "a queue that is given up")

    async def commit(self) -> None:
        """Keep the positions in all queues, also where nothing has moved; raises ConnectionLost when some were not kept."""
        await self._commit(list(self.readers.values()), wait=True, is_forced=True)

    async def set_topics(self, found: Mapping[str, Subscription]) -> None:
        """Read these topics instead of those before, with the rest of the group."""
        async with self._turning:
            self.assigned = None
            self.subscriptions = dict(found)
            self._session.consumers[self.group] = self._describe
        await self._session.heartbeat()
        await self.rebalance()

    async def set_queues(self, queues: Iterable[MessageQueue], found: Mapping[str, Subscription]) -> None:
        """Read these queues instead of those before, whoever else does; nobody counts us in."""
        async with self._turning:
            self.assigned = frozenset(queues)
            self.subscriptions = dict(found)
            self._session.consumers.pop(self.group, None)
        await self.rebalance()

    async def rebalance(self) -> bool:
        """Begin to read what is ours, and no more; returns whether nothing is missing."""
        async with self._turning:
            return await self._rebalance()

    async def move(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in a queue; what has been pulled of it is forgotten. Raises LocalProtocolError when it is not ours."""
        async with self._turning:
            reader = self.readers.pop(queue, None)
            if reader is None:
                raise LocalProtocolError(f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name} is not read here")
            reader.stop()
            self.open(queue, offset, committed=offset)

    def open(self, queue: MessageQueue, offset: int, *, committed: int | None, locked_at: float | None = None) -> QueueReader:
        """Begin to read a queue."""
        window = QueueWindow(queue, offset, committed=committed)
        window.locked_at = locked_at
        reader = QueueReader(
            self._session, self.group, self.subscriptions[queue.topic], window, self._owner, self._options.pulls, self._random
        )
        self.readers[queue] = reader
        reader.start()
        return reader

    def close(self, queue: MessageQueue, *, commit: bool) -> None:
        """Give up a queue, and commit what has been settled of it, if that is still ours to do.

        It does not come back before that is done, and, if order counts, before nothing of it is in hand.
        """
        reader = self.readers.pop(queue)
        reader.stop()
        reader.keeps_position = commit
        self.leaving[queue] = reader
        if not (self._options.is_ordered and reader.window.in_hand):
            self._session.spawn(self._let_go(reader), "a queue that is given up")

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere in some queues, whatever has been handed out of them."""
        async with self._turning:
            mine = {queue: offset for queue, offset in offsets.items() if queue in self.readers}
            for queue in mine:
                self.close(queue, commit=False)
            await self._positions.write(mine, wait=True)
        self.rebalance_now()

    # --- Rebalancing --------------------------------------------------------------------------------------------------

    @property
    def is_ordered(self) -> bool:
        """Whether order counts."""
        return self._options.is_ordered

    @property
    def is_passive(self) -> bool:
        """Whether messages are pushed to handlers."""
        return self._options.is_passive

    @property
    def _is_locking(self) -> bool:
        return self._options.is_ordered and not self._options.is_broadcast

    def _describe(self) -> ConsumerData:
        options = self._options
        begin_from = options.begin_from
        return ConsumerData(
            self.group,
            "CONSUME_PASSIVELY" if options.is_passive else "CONSUME_ACTIVELY",
            "BROADCASTING" if options.is_broadcast else "CLUSTERING",
            _CONSUME_FROM.get(str(begin_from), "CONSUME_FROM_TIMESTAMP"),
            tuple(self.subscriptions.values()),
        )

    def _group_changed(self, request: Request) -> Answer:
        if request.ext.get("consumerGroup") == self.group:
            self.rebalance_now()
        return Answer(0)

    async def _keep_balanced(self) -> None:
        await asyncio.gather(*(self._session.route(topic) for topic in self.subscriptions), return_exceptions=True)
        await self._session.heartbeat()
        while True:
            self._wanted.clear()
            is_complete = False
            try:
                is_complete = await self.rebalance()
            except Exception:
                _log.exception("%s: rebalancing of %s", self._session.client_id, self.group)
            self.balanced.set()
            wait_seconds = _REBALANCE_SECONDS if is_complete else _REBALANCE_SECONDS_WHILE_MISSING
            await asyncio.sleep(_REBALANCE_SECONDS_MIN)
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def _rebalance(self) -> bool:
        """Read what is to be read, and nothing else; returns whether nothing is missing."""
        is_complete = True
        wanted: set[MessageQueue] = set()
        if self.assigned is not None:
            wanted = set(self.assigned)
        else:
            for queue in [each for each in self.readers if each.topic not in self.subscriptions]:
                self.close(queue, commit=True)
            for topic in list(self.subscriptions):
                try:
                    found = await self._queues_of(topic)
                except PolyMQError as error:
                    _log.info("%s: who reads %s in %s is not known: %s", self._session.client_id, topic, self.group, error)
                    found = None
                if found is None:
                    wanted.update(each for each in self.readers if each.topic == topic)
                    is_complete = is_complete and is_retry_topic(topic)
                else:
                    wanted.update(found)
        for queue in [each for each in self.readers if each not in wanted]:
            self.close(queue, commit=True)
        return await self._open_missing(wanted) and is_complete

    async def _queues_of(self, topic: str) -> list[MessageQueue] | None:
        """Say which queues of a topic are ours; None when that cannot be known, so that everything stays as it is."""
        route = await self._session.route(topic)
        if route is None:
            return None
        if self._options.is_broadcast:
            return list(route.read_queues)
        members = await self._members(route)
        mine = self._options.allocation(self._session.client_id, members, route.read_queues)
        if self._session.client_id not in members:
            raise ConnectFailed("the broker does not count us in")
        return mine

    async def _members(self, route: Route) -> tuple[str, ...]:
        failure: PolyMQError = ConnectFailed(f"no broker has {route.topic}")
        for name in sorted(route.brokers):
            address = route.address(name)
            assert address is not None
            try:
                answer = await self._session.ask(
                    address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self.group}, introduced=True
                )
                if answer.is_success:
                    return parse_consumer_list(answer.body)
                failure = refused(answer, f"members of {self.group}")
            except PolyMQError as error:
                failure = error
        raise failure

    async def _open_missing(self, wanted: Iterable[MessageQueue]) -> bool:
        missing = sorted((queue for queue in wanted if queue not in self.readers), key=queue_order)
        if not missing:
            return True
        locked_at = asyncio.get_running_loop().time()
        free = [queue for queue in missing if queue not in self.leaving]
        locked = await self._lock(free) if self._is_locking else set(free)
        results = await asyncio.gather(*(self._begin(queue, locked_at) for queue in free if queue in locked))
        return all(results) and len(locked) == len(missing)

    async def _begin(self, queue: MessageQueue, locked_at: float) -> bool:
        try:
            kept = await self._positions.read(queue)
            offset = kept if kept is not None else await self._questions.start(queue, self._options.begin_from)
        except PolyMQError as error:
            _log.warning("%s: where %s is in %s queue %d: %s", self._session.client_id, self.group, queue.topic, queue.queue_id, error)
            return False
        if not self._is_finished and queue.topic in self.subscriptions:
            self.open(queue, offset, committed=kept, locked_at=locked_at if self._is_locking else None)
        return True

    # --- Commits ------------------------------------------------------------------------------------------------------

    async def _keep_committing(self) -> None:
        while True:
            await asyncio.sleep(_COMMIT_SECONDS)
            try:
                await self._commit_by_itself(list(self.readers.values()), wait=False)
            except Exception as error:
                _log.warning("%s: commits of %s: %r", self._session.client_id, self.group, error)

    async def _commit_by_itself(self, readers: Iterable[QueueReader], *, wait: bool) -> None:
        if self._options.commits_by_itself:
            await self._commit(readers, wait=wait)

    async def _commit(self, readers: Iterable[QueueReader], *, wait: bool, is_forced: bool = False) -> None:
        some = {each.queue: each for each in readers if each.keeps_position and (is_forced or each.window.wants_commit)}
        wanted = {queue: each.window.position for queue, each in some.items()}
        kept = await self._positions.write(wanted, wait=wait)
        for queue, offset in kept.items():
            some[queue].window.told(offset, is_answered=wait)
        if is_forced and len(kept) < len(wanted):
            raise ConnectionLost(f"{len(wanted) - len(kept)} of {len(wanted)} positions of {self.group} were not kept")

    async def _let_go(self, reader: QueueReader) -> None:
        """Commit a queue that has been given up, and have others lock it."""
        try:
            await self._commit_by_itself([reader], wait=True)
            if self._is_locking:
                await self._unlock([reader.queue])
        except PolyMQError as error:
            _log.info("%s: giving up %s queue %d: %s", self._session.client_id, reader.queue.topic, reader.queue.queue_id, error)
        finally:
            if self.leaving.get(reader.queue) is reader:
                del self.leaving[reader.queue]
        self.rebalance_now()

    # --- Locks --------------------------------------------------------------------------------------------------------

    async def _keep_locks(self) -> None:
        while True:
            await asyncio.sleep(_LOCK_SECONDS)
            try:
                await self._renew_locks()
            except Exception:
                _log.exception("%s: locks of %s", self._session.client_id, self.group)

    async def _renew_locks(self) -> None:
        """Ask for the same locks again. A queue whose lock somebody else has is not ours any more, nor its position."""
        asked_at = asyncio.get_running_loop().time()
        asked: dict[MessageQueue, QueueReader] = {**self.leaving, **self.readers}
        refused_ones: set[MessageQueue] = set()
        locked = await self._lock(asked, refused_ones)
        for queue, reader in asked.items():
            if queue in locked:
                reader.window.locked_at = asked_at
                if self.readers.get(queue) is reader and reader.window.waiting:
                    self._owner.arrived(reader)
            elif queue in refused_ones and self.readers.get(queue) is reader:
                _log.warning("%s: the lock of %s queue %d is lost", self._session.client_id, queue.topic, queue.queue_id)
                self.close(queue, commit=False)
                self.rebalance_now()

    async def _lock(self, queues: Iterable[MessageQueue], refused_ones: set[MessageQueue] | None = None) -> set[MessageQueue]:
        """Lock queues; returns those that are, and adds those whose broker has answered otherwise to `refused_ones`."""
        locked: set[MessageQueue] = set()
        for address, some in (await self._by_broker(queues)).items():
            body = encode_lock_body(LockBody(self.group, self._session.client_id, tuple(some)))
            try:
                answer = await self._session.ask(address, RequestCode.LOCK_BATCH_MQ, {}, body, introduced=True)
                if not answer.is_success:
                    raise refused(answer, f"locks of {self.group}")
                found = set(parse_lock_reply(answer.body)) & set(some)
            except PolyMQError as error:
                _log.warning("%s: %s", self._session.client_id, error)
                continue
            locked |= found
            if refused_ones is not None:
                refused_ones |= set(some) - found
        return locked

    async def _unlock(self, queues: Iterable[MessageQueue]) -> None:
        for address, some in (await self._by_broker(queues)).items():
            body = encode_lock_body(LockBody(self.group, self._session.client_id, tuple(some)))
            await self._session.ask(address, RequestCode.UNLOCK_BATCH_MQ, {}, body)

    async def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            try:
                found.setdefault(await self._questions.address(queue), []).append(queue)
            except PolyMQError as error:
                _log.info("%s: %s", self._session.client_id, error)
        return found
