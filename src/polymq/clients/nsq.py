"""An asyncio client of NSQ: publish, and consume with settling. Works with nsqd and with polymq.

    async with NsqProducer("127.0.0.1:4150") as producer:
        await producer.publish("flights", b"...")
        await producer.publish_many("flights", bodies)              # all or none
        await producer.publish("flights", b"...", delay_ms=60_000)  # not before a minute has passed

    async with NsqConsumer("127.0.0.1:4150", "flights", "delays") as consumer:
        async for message in consumer:          # or, several times faster: async for batch in consumer.batches()
            work_on(message.body)
            message.settle()

Both find their server again when they lose it. A publish is never repeated on its own: when its answer is lost, only
the caller knows whether a second copy does harm. TLS, compression and the secret are options (`NsqOptions`). Read
next: `nsq_messages.py` (what is delivered), `nsq_opening.py` (how a connection begins), `nsq_connection.py` (the
connection).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random as random_module
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from polymq.clients.backoff import Backoff
from polymq.clients.nsq_messages import NsqBatch, NsqMessage
from polymq.clients.nsq_opening import NsqOptions, NsqTls, check_address, connect, open_socket
from polymq.errors import (
    ConnectionLost,
    DeadlineExceeded,
    LocalProtocolError,
    PolyMQError,
    Refusal,
    RefusalCode,
    RemoteProtocolError,
    TransportError,
)
from polymq.protocols.nsq import frames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from types import TracebackType

    from polymq.clients.nsq_connection import NsqConnection
    from polymq.protocols.nsq.frames import MessageRun

__all__ = ["NsqBatch", "NsqConsumer", "NsqMessage", "NsqOptions", "NsqProducer", "NsqTls"]

_log: Final = logging.getLogger(__name__)
_DEFAULTS: Final = NsqOptions()
# Publishes without an answer yet; more than that wait, so that a lost connection leaves a known number in doubt.
_PIPELINE_MAX: Final = 1000
# What nsqd allows unless its reply to IDENTIFY says otherwise.
_READY_MAX: Final = 2500
# Messages that wait here, by the most that the server was ever allowed: what has expired on its way comes a second time.
_ALLOWED_TIMES_MAX: Final = 2
_CLOSE_SECONDS_MAX: Final = 5.0
_MS_PER_SECOND: Final = 1000


class _Link:
    """What producers and consumers share: an address, patience, and how to reach a server again."""

    def __init__(
        self,
        address: str,
        options: NsqOptions,
        opener: Callable[[str, Callable[[], asyncio.Protocol]], Awaitable[None]],
        random: Callable[[], float],
        *,
        level: int = logging.DEBUG,
    ) -> None:
        check_address(address)
        self.address = address
        self.options = options
        self.last_failure = ""
        self.backoff = Backoff(options.reconnect_seconds_first, options.reconnect_seconds_max, random)
        self._opener = opener
        self._level = level  # of what is said about the first failure of a kind; those that follow are details
        self._failing: type[PolyMQError] | None = None

    def failed(self, error: PolyMQError) -> float:
        """Keep in mind, and say once, why there is no server; returns how long to wait before the next attempt, in seconds."""
        self.last_failure = str(error)
        _log.log(logging.DEBUG if self._failing is type(error) else self._level, "%s is tried again: %s", self.address, error)
        self._failing = type(error)
        return self.backoff.next_seconds()

    def succeeded(self) -> None:
        """Begin with short waits again."""
        self.backoff.succeeded()
        if self._failing is not None:
            self._failing = None
            _log.info("%s is there again", self.address)

    async def reach(self) -> NsqConnection:
        """Connect, as often as it takes. Refusals, which another attempt would meet again, are raised."""
        while True:
            try:
                return await connect(self.address, self.options, self._opener)
            except TransportError as error:
                await asyncio.sleep(self.failed(error))

    def out_of_time(self, what: str) -> DeadlineExceeded:
        """Say what took too long, and why it may have."""
        detail = f"; last failure: {self.last_failure}" if self.last_failure else ""
        return DeadlineExceeded(f"{what} took longer than {self.options.deadline_seconds:g} s{detail}")


async def _close(connection: NsqConnection | None) -> None:
    if connection is None:
        return
    try:
        async with asyncio.timeout(_CLOSE_SECONDS_MAX):
            await connection.close()
    except TimeoutError:
        connection.abort(ConnectionLost("the server did not take what was left to write"))


class NsqProducer:
    """Publishes over one connection, as many at a time as there are tasks that await.

    At most 1000 publishes wait for their answers, the others for room. Every publish has a deadline (`options.deadline_seconds`), which includes finding the server again. A connection
    on which it is missed is closed, and another one made.
    """

    def __init__(
        self,
        address: str,
        options: NsqOptions = _DEFAULTS,
        *,
        opener: Callable[[str, Callable[[], asyncio.Protocol]], Awaitable[None]] = open_socket,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self._link = _Link(address, options, opener, random)
        self._connection: NsqConnection | None = None
        self._connecting = asyncio.Lock()
        self._room = asyncio.Semaphore(_PIPELINE_MAX)
        self._closed = False

    async def __aenter__(self) -> Self:
        """Connect; raises DeadlineExceeded when there is no server in time."""
        try:
            async with asyncio.timeout(self._link.options.deadline_seconds):
                await self._connected()
        except TimeoutError as error:
            raise self._link.out_of_time("connecting") from error
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        await self.close()

    async def publish(self, topic: str, body: bytes, *, delay_ms: int = 0) -> None:
        """Publish one message and wait until the server has accepted it.

        Limits:  the server's; nsqd takes 1 MiB a message and an hour's delay unless it is told otherwise.
        Raises:  Refusal; LocalProtocolError; ConnectionLost when the answer was lost (the message may be there or
                 not); DeadlineExceeded.
        """
        await self._request(frames.deferred_publish(topic, body, delay_ms) if delay_ms else frames.publish(topic, body))

    async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish several messages, all or none of them; raises as `publish` does."""
        await self._request(frames.multi_publish(topic, bodies))

    async def close(self) -> None:
        """Close the connection; what still waits for an answer gets ConnectionLost."""
        self._closed = True
        await _close(self._connection)

    async def _request(self, command: bytes) -> None:
        asked: NsqConnection | None = None
        try:
            async with asyncio.timeout(self._link.options.deadline_seconds), self._room:
                connection = await self._connected()
                await connection.drained()
                asked = connection
                answer = await connection.request(command)
        except TimeoutError as error:
            if asked is not None:
                # Its place in the queue of answers would be held for ever by a server that never answers.
                asked.abort(ConnectionLost("a publish was not answered in time"))
            raise self._link.out_of_time("publishing") from error
        if answer != b"OK":
            raise RemoteProtocolError(f"a publish was answered with {answer[:40]!r}")

    async def _connected(self) -> NsqConnection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        async with self._connecting:
            self._check_open()
            if self._connection is None or not self._connection.is_open:
                connection = await self._link.reach()
                self._link.succeeded()
                try:
                    self._check_open()
                except ConnectionLost:
                    await _close(connection)
                    raise
                self._connection = connection
            return self._connection

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionLost("this producer is closed")


def _nobody_looks() -> None:
    """Stand where nobody wants to know of changes."""


class NsqConsumer:
    """Consumes one channel of one server: an async iterator of messages.

    `max_in_flight` messages at most are with this consumer at a time, waiting or in hand: it is the only bound on
    what is held in memory, and the server keeps to it; of one that does not, no more is read until somebody takes what
    waits. Messages that wait here for longer than the message timeout
    are dropped (`expired` counts them): the server gives them to somebody by then, maybe to this consumer once more.

    `changed` is called whenever messages have come, or the consumer has been subscribed, cut off or stopped: for who
    looks after several (`nsq_subscriber.py`), with `start`, `allow` and `take`.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        channel: str,
        options: NsqOptions = _DEFAULTS,
        *,
        max_in_flight: int = 200,
        changed: Callable[[], None] = _nobody_looks,
        opener: Callable[[str, Callable[[], asyncio.Protocol]], Awaitable[None]] = open_socket,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        if max_in_flight < 1:
            raise LocalProtocolError(f"max_in_flight is {max_in_flight}; it must be at least 1")
        self.failures = 0
        self.expired = 0
        self._command = frames.subscribe(topic, channel)
        self._link = _Link(address, options, opener, random, level=logging.WARNING)
        self._max_in_flight = max_in_flight
        self._allowed = max_in_flight
        self._changed = changed
        self.received = 0
        self._connection: NsqConnection | None = None
        self._subscription: NsqConnection | None = None  # the connection that is subscribed
        # With the time at which the server takes them back.
        self._waiting: deque[tuple[NsqConnection, MessageRun, float]] = deque()
        self._waiting_count = 0
        self._ready_most = 0  # of what this connection has been told
        self._message_timeout_seconds = math.inf
        self._unseen: deque[NsqMessage] = deque()
        self._in_hand = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._arrived = asyncio.Event()
        self._subscribed = asyncio.Event()
        self._failure: PolyMQError | None = None
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect and subscribe; raises DeadlineExceeded, or what the server refused with."""
        self.start()
        try:
            async with asyncio.timeout(self._link.options.deadline_seconds):
                await self._subscribed.wait()
            if self._failure is not None:
                raise self._failure
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise self._link.out_of_time("subscribing") from error
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        await self.close()

    async def __aiter__(self) -> AsyncIterator[NsqMessage]:
        """Give messages one by one until the consumer is closed; raises as `batches` does.

        Leaving the loop loses nothing: the next one goes on where this one stopped.
        """
        while True:
            while self._unseen and not self._closed:
                message = self._unseen.popleft()
                if not message.is_current or message.is_settled:
                    continue
                if message.has_expired:
                    message.drop()
                    self.expired += 1
                else:
                    yield message
            batch = await self._next_batch()
            if batch is None:
                return
            self._unseen.extend(batch)

    def unseen(self) -> list[NsqMessage]:
        """Take what would be given next without waiting: the rest of what came with the last message."""
        found = [each for each in self._unseen if not each.is_settled and each.is_current and not each.has_expired]
        self._unseen.clear()
        return found

    async def batches(self) -> AsyncIterator[NsqBatch]:
        """Give messages as they come, many at a time, until the consumer is closed.

        Raises:  what made it impossible to go on: a Refusal of the first subscription, or a broken protocol. Later
                 refusals are logged and the server is asked again, with longer and longer waits between.
        """
        while (batch := await self._next_batch()) is not None:
            yield batch

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._link.address

    @property
    def is_subscribed(self) -> bool:
        """Whether messages can come."""
        return self._connection is not None and self._connection is self._subscription and self._connection.is_open

    @property
    def holds_messages(self) -> bool:
        """Whether messages that came over this connection are still here, waiting or in hand."""
        return self._in_hand > 0 or bool(self._waiting)

    @property
    def failure(self) -> PolyMQError | None:
        """What made it impossible to go on."""
        return self._failure

    @property
    def trouble(self) -> str:
        """Why it is not subscribed, as far as it is known."""
        return self._link.last_failure

    def start(self) -> None:
        """Begin without waiting for the server."""
        self._task = asyncio.create_task(self._run(), name=f"nsq consumer of {self._link.address}")

    def allow(self, count: int) -> None:
        """Have at most so many messages in flight from here on, 0 for none, instead of `max_in_flight`."""
        if count != self._allowed:
            self._allowed = count
            self._send_ready()

    def take(self) -> NsqBatch | None:
        """Take what has come, if something has."""
        while self._waiting and not self._closed:
            connection, run, expires_at = self._next_waiting()
            if not connection.is_open:
                continue
            if asyncio.get_running_loop().time() >= expires_at:
                self.expired += run.count
                continue
            self._in_hand += run.count
            self._idle.clear()
            return NsqBatch(connection, run, partial(self._ended, connection), expires_at)
        return None

    async def _next_batch(self) -> NsqBatch | None:
        while True:
            batch = self.take()
            if batch is not None:
                return batch
            if self._failure is not None:
                raise self._failure
            if self._closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()

    async def flush(self) -> None:
        """Wait until the server has acted on every settle so far; raises ConnectionLost or DeadlineExceeded."""
        connection = self._connection
        if connection is None:
            raise ConnectionLost("not connected")
        try:
            async with asyncio.timeout(self._link.options.deadline_seconds):
                await connection.mark()
        except TimeoutError as error:
            connection.abort(ConnectionLost("settling was not answered in time"))
            raise self._link.out_of_time("settling") from error

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Stop: no more messages, then wait up to `grace_seconds` for those in hand to be settled, then disconnect.

        What has come and not been looked at is given back at once; what is in hand and not settled comes again when
        the server's timeout for it has passed.
        """
        first = not self._closed
        self._closed = True
        self._arrived.set()
        connection = self._connection
        try:
            if first and connection is not None and connection.is_open:
                self._hold(connection)  # no more: the answer has to be read
                async with asyncio.timeout(_CLOSE_SECONDS_MAX):
                    await connection.request(frames.CLS)
                    self._give_back(connection)
                async with asyncio.timeout(grace_seconds):
                    await self._idle.wait()
        except (TimeoutError, PolyMQError) as error:
            _log.debug("%s: closing without waiting: %s", self._link.address, error)
        finally:  # also for who does not wait any longer
            await self._end(connection)

    async def _end(self, connection: NsqConnection | None) -> None:
        try:
            await _close(connection)
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])

    def _give_back(self, connection: NsqConnection) -> None:
        """Let the server deliver to others at once what nobody has looked at here."""
        for _, run, _ in self._waiting:
            for message_id in run.ids():
                connection.send(frames.requeue(message_id, 0))
        for message in self._unseen:
            if not message.is_settled:
                message.requeue()
        self._waiting.clear()
        self._waiting_count = 0
        self._unseen.clear()

    async def _run(self) -> None:
        """Be the task: whatever goes wrong reaches whoever iterates."""
        try:
            await self._keep_subscribed()
        except Exception as error:
            _log.exception("%s: consuming has stopped", self._link.address)
            self._fail(ConnectionLost(f"a fault of this client: {error!r}"))

    async def _keep_subscribed(self) -> None:
        """Subscribe, and again whenever the connection is lost, until closed or refused."""
        while not self._closed:
            try:
                self._connection = connection = await self._link.reach()
                await self._subscribe(connection)
                await connection.lost
                self._changed()
                assert connection.reason is not None
                raise connection.reason
            except PolyMQError as error:
                await self._pause(error)

    async def _pause(self, error: PolyMQError) -> None:
        """Wait before the next attempt, if it may do better."""
        if self._closed:
            return
        if self._may_pass(error):
            await asyncio.sleep(self._link.failed(error))
        else:
            self._fail(error)

    def _may_pass(self, error: PolyMQError) -> bool:
        """Tell whether another attempt may do better.

        Who has been let in once is refused for what passes: a server or its auth server that starts again, a place
        that the last connection still takes. At the beginning a refusal is more likely to be a mistake of the caller's.
        """
        if isinstance(error, Refusal):
            return error.code is RefusalCode.SHUTTING_DOWN or self._subscribed.is_set()
        return isinstance(error, TransportError)

    async def _subscribe(self, connection: NsqConnection) -> None:
        connection.on_messages = partial(self._received, connection)
        connection.on_failure = self._failed
        self._waiting.clear()
        self._waiting_count = self._ready_most = 0
        self._unseen.clear()
        self._in_hand = 0
        self._idle.set()
        try:
            async with asyncio.timeout(self._link.options.deadline_seconds):
                await connection.request(self._command)
        except TimeoutError as error:
            connection.abort(ConnectionLost("the subscription was not answered in time"))
            raise self._link.out_of_time("subscribing") from error
        timeout_ms = connection.agreed.get("msg_timeout")
        self._message_timeout_seconds = timeout_ms / _MS_PER_SECOND if isinstance(timeout_ms, int) and timeout_ms > 0 else math.inf
        self._subscription = connection
        self._send_ready()
        self._link.succeeded()
        self._subscribed.set()
        self._changed()

    def _send_ready(self) -> None:
        connection = self._connection
        if connection is not None and self.is_subscribed:
            ready_max = connection.agreed.get("max_rdy_count")
            count = min(self._allowed, ready_max if isinstance(ready_max, int) else _READY_MAX)
            self._ready_most = max(self._ready_most, count)
            connection.send(frames.ready(count))

    def _received(self, connection: NsqConnection, run: MessageRun) -> None:
        now = asyncio.get_running_loop().time()
        # Nobody may be taking: then the server sends again what has expired, and it would all lie here.
        while self._waiting and self._waiting[0][2] <= now:
            self.expired += self._next_waiting()[1].count
        self._waiting.append((connection, run, now + self._message_timeout_seconds))
        self._waiting_count += run.count
        self._hold(connection)
        self.received += run.count
        self._arrived.set()
        self._changed()

    def _next_waiting(self) -> tuple[NsqConnection, MessageRun, float]:
        found = self._waiting.popleft()
        self._waiting_count -= found[1].count
        self._hold(found[0])
        return found

    def _hold(self, connection: NsqConnection) -> None:
        """Read no more while far more messages wait than the server was ever allowed: it may send some again that are late."""
        connection.hold(held=not self._closed and self._waiting_count > _ALLOWED_TIMES_MAX * self._ready_most)

    def _ended(self, connection: NsqConnection, count: int) -> None:
        if connection is self._connection:
            self._in_hand -= count
            if self._in_hand <= 0:
                self._idle.set()

    def _failed(self, text: str) -> None:
        """Count a settle, requeue or touch that came too late: the message is on its way to somebody else."""
        self.failures += 1
        # They come in thousands when they come: the first is enough to look into it.
        _log.log(logging.WARNING if self.failures == 1 else logging.DEBUG, "%s: %s", self._link.address, text)

    def _fail(self, reason: PolyMQError | None) -> None:
        self._failure = reason
        self._closed = True
        self._arrived.set()
        self._subscribed.set()
        self._changed()
