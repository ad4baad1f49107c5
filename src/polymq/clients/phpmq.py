"""An asyncio client of PHPMQ: send, and consume in a window. Works with polymq, and with the reference server in its dialect.

    async with PhpmqProducer("127.0.0.1:9100") as producer:
        await producer.publish("orders", b"...")
        await producer.publish("orders", b"...", ttl_seconds=3600)       # nobody gets it an hour later
        await producer.publish_many("orders", bodies)

    async with PhpmqConsumer("127.0.0.1:9100", "orders", window=100) as consumer:
        async for message in consumer:       # or, faster: async for batch in consumer.batches()
            work_on(message.content)
            message.settle()                 # or message.requeue(ttl_seconds=60), message.dead_letter()

The protocol has no answers: a publish has been written when `publish` returns. `close` (or the end of the block) waits until the server has ended
the connection as well, which it does when it has read everything, and also when it refuses something; `confirm` waits until it has taken all that was sent. Both find their server again when they lose it. Read next: `phpmq_connection.py`, `phpmq_messages.py`.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
import secrets
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from polymq.clients.backoff import Backoff
from polymq.clients.nsq_opening import check_address
from polymq.clients.phpmq_connection import PhpmqConnection, PhpmqOptions, connect
from polymq.clients.phpmq_messages import PhpmqBatch, PhpmqMessage
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, PolyMQError, RemoteProtocolError, TransportError
from polymq.protocols.phpmq import frames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from types import TracebackType

__all__ = ["CONFIRM_QUEUE", "PhpmqBatch", "PhpmqConsumer", "PhpmqMessage", "PhpmqOptions", "PhpmqProducer"]

_log: Final = logging.getLogger(__name__)
_DEFAULTS: Final = PhpmqOptions()
# Where `confirm` sends its messages, and gets them back; those of others are given back when its connection ends.
CONFIRM_QUEUE: Final = b"polymq.confirm"
# Whoever has not got its message back by now is not there any more: in the newer dialect it ends by itself, in the older one others take it away.
_CONFIRM_TTL_SECONDS: Final = 60
_CONFIRM_STALE_SECONDS: Final = 3600  # clocks of machines may differ, and who loses its message sends everything again
# What was abandoned and is not stale yet is in the window, and there has to be room behind it: who abandons one has waited for its deadline, 10 s
# where nobody says otherwise, so 27 clients may do nothing else for that hour.
_CONFIRM_WINDOW: Final = 10_000
_TIME_DIGITS_MAX: Final = 12


class PhpmqProducer:
    """Sends over one connection. Each call has a deadline (`options.deadline_seconds`), which includes finding the server again."""

    def __init__(self, address: str, options: PhpmqOptions = _DEFAULTS, *, random: Callable[[], float] = random_module.random) -> None:
        check_address(address)
        self.address = address
        self.options = options
        self._backoff = Backoff(options.reconnect_seconds_first, options.reconnect_seconds_max, random)
        self._connection: PhpmqConnection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        """Connect; raises DeadlineExceeded when there is no server in time."""
        await self._within_deadline(b"")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close; what went wrong in the block is more to the point than what goes wrong here."""
        try:
            await self.close()
        except TransportError:
            if kind is None:
                raise

    async def publish(self, queue: str | bytes, content: bytes, *, ttl_seconds: int = 0) -> None:
        """Send one message and wait until the connection has taken it. `ttl_seconds` 0: it never ends.

        Raises:  LocalProtocolError for what no server takes (a TTL in the older dialect, which has none); ConnectionLost when the server has
                 closed the connection since the last call: whatever was sent over it may be there or not; DeadlineExceeded.
        """
        await self._within_deadline(self._message(queue, content, ttl_seconds))

    async def publish_many(self, queue: str | bytes, contents: Sequence[bytes], *, ttl_seconds: int = 0) -> None:
        """Send several messages as one piece; raises as `publish` does."""
        await self._within_deadline(b"".join([self._message(queue, content, ttl_seconds) for content in contents]))

    async def confirm(self) -> None:
        """Wait until the server has taken all that was sent over this connection: the only acknowledgement that there is.

        A message to CONFIRM_QUEUE, consumed over the same connection, comes back behind everything that was sent before it. Send nothing else meanwhile.
        The connection ends with it, so that it does not keep what others wait for; the next call makes another one.
        Raises:  ConnectionLost, DeadlineExceeded: nobody knows how much of it the server has taken.
        """
        connection, self._connection = self._connection, None
        if connection is None or not connection.is_open:
            raise (connection.reason if connection is not None else None) or ConnectionLost("the server closed the connection")
        token = b"polymq %d %b" % (int(time.time()), secrets.token_hex(8).encode())
        came = asyncio.get_running_loop().create_future()
        connection.on_message = partial(_look_for, token, connection, came)
        ttl_seconds = 0 if self.options.legacy else _CONFIRM_TTL_SECONDS
        connection.send(self._message(CONFIRM_QUEUE, token, ttl_seconds) + frames.consume(CONFIRM_QUEUE, _CONFIRM_WINDOW))
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                await asyncio.wait({came, connection.lost}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            late = DeadlineExceeded("the server has not confirmed in time what was sent")
            connection.abort(late)
            raise late from error
        finally:
            await connection.close()
        if not came.done():
            raise ConnectionLost("the server closed the connection before it had confirmed what was sent")

    async def close(self) -> None:
        """Write what is left, say that this was all, and wait until the server has ended the connection.

        Raises:  ConnectionLost, DeadlineExceeded: what was sent may be there or not. Without an error the server has read everything, or
                 has refused something and nothing behind it: see `confirm`.
        """
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.finish(self.options.deadline_seconds)

    def _message(self, queue: str | bytes, content: bytes, ttl_seconds: int) -> bytes:
        if not self.options.legacy:
            return frames.send(queue, content, ttl_s=ttl_seconds)
        if ttl_seconds:
            raise LocalProtocolError("the older dialect has no TTL")
        return frames.send(queue, content, ttl_s=None)

    async def _within_deadline(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                connection = await self._connected()
                connection.send(data)
                await connection.drained()
        except TimeoutError as error:
            raise DeadlineExceeded(f"{self.address}: sending took longer than {self.options.deadline_seconds:g} s") from error

    async def _connected(self) -> PhpmqConnection:
        async with self._connecting:
            if self._closed:
                raise ConnectionLost("this producer is closed")
            connection = self._connection
            if connection is not None and not connection.is_open:
                # Whoever calls next gets another one; this call says that something may be lost.
                self._connection = None
                raise connection.reason or ConnectionLost("the server closed the connection")
            while self._connection is None:
                try:
                    self._connection = await connect(self.address, self.options)
                except TransportError as error:
                    seconds = self._backoff.next_seconds()
                    _log.debug("%s is tried again in %.1f s: %s", self.address, seconds, error)
                    await asyncio.sleep(seconds)
            self._backoff.succeeded()
            return self._connection


def _look_for(token: bytes, connection: PhpmqConnection, came: asyncio.Future[None], message: frames.WireMessage) -> None:
    """Take a message of `confirm`, and those that nobody waits for any more."""
    is_own = message.content == token
    if is_own or abs(time.time() - _sent_at(message.content)) > _CONFIRM_STALE_SECONDS:
        connection.send(frames.acknowledge(CONFIRM_QUEUE, [message.id]))
    if is_own and not came.done():
        came.set_result(None)


def _sent_at(content: bytes) -> int:
    """Read when a message of `confirm` was sent, in seconds since 1970; of anything else, long ago."""
    words = content.split(b" ", 3)
    is_token = len(words) == 3 and words[1].isdigit() and len(words[1]) <= _TIME_DIGITS_MAX
    return int(words[1]) if is_token else 0


class PhpmqConsumer:
    """Consumes one queue: an async iterator of messages, of which at most `window` are here, waiting or in hand.

    When the connection is lost, another one is made and the same window asked for; what was here comes again, to this consumer or to
    another, and settling what is in hand still has an effect with a server that knows messages by their ids, as polymq does.
    """

    def __init__(
        self,
        address: str,
        queue: str | bytes,
        options: PhpmqOptions = _DEFAULTS,
        *,
        window: int = 100,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        check_address(address)
        if window < 1:
            raise LocalProtocolError(f"window is {window}; it must be at least 1")
        self.address = address
        self.queue = queue.encode() if isinstance(queue, str) else queue
        self.options = options
        self._request = frames.consume(queue, window)
        self._backoff = Backoff(options.reconnect_seconds_first, options.reconnect_seconds_max, random)
        self._connection: PhpmqConnection | None = None
        self._waiting: deque[PhpmqMessage] = deque()
        self._unseen: deque[PhpmqMessage] = deque()
        self._arrived = asyncio.Event()
        self._failure: RemoteProtocolError | None = None
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect and ask for the queue; raises DeadlineExceeded when there is no server in time."""
        self._started = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"phpmq consumer of {self.address}")
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                await asyncio.shield(self._started)
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(f"{self.address}: connecting took longer than {self.options.deadline_seconds:g} s") from error
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        await self.close()

    async def __aiter__(self) -> AsyncIterator[PhpmqMessage]:
        """Give messages one by one until the consumer is closed; raises as `batches` does. Leaving the loop loses nothing."""
        while True:
            while self._unseen and not self._closed:
                message = self._unseen.popleft()
                if message.is_current and not message.is_settled:
                    yield message
            batch = await self.next_batch()
            if batch is None:
                return
            self._unseen.extend(batch)

    def unseen(self) -> list[PhpmqMessage]:
        """Take what would be given next without waiting."""
        found = [each for each in (*self._unseen, *self._waiting) if each.is_current and not each.is_settled]
        self._unseen.clear()
        self._waiting.clear()
        return [] if self._closed else found

    async def batches(self) -> AsyncIterator[PhpmqBatch]:
        """Give messages as they come, many at a time, until the consumer is closed.

        Raises:  RemoteProtocolError when the server sends what is no message.
        """
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def next_batch(self) -> PhpmqBatch | None:
        """Give what has come, or wait for it; None when the consumer is closed. Raises as `batches` does."""
        while not self._closed:
            found = [each for each in self._waiting if each.is_current]
            self._waiting.clear()
            if found:
                return PhpmqBatch(self.queue, found)
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        return None

    async def close(self) -> None:
        """Disconnect; what has been settled before is on its way first, and what is not settled goes back to the queue."""
        self._closed = True
        self._arrived.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.finish(self.options.deadline_seconds)
            except PolyMQError as error:  # why it was lost before: said by then
                _log.debug("%s: %s", self.address, error)

    def _send(self, data: bytes) -> bool:
        """Send what settles something, over whatever connection there is."""
        connection = self._connection
        if connection is None or not connection.is_open:
            return False
        connection.send(data)
        return True

    def _received(self, connection: PhpmqConnection, message: frames.WireMessage) -> None:
        self._waiting.append(PhpmqMessage(message, connection, self._send, legacy=self.options.legacy))
        self._arrived.set()

    async def _run(self) -> None:
        """Be connected, for as long as it takes."""
        assert self._started is not None
        while True:
            try:
                connection = await connect(self.address, self.options)
            except TransportError as error:
                seconds = self._backoff.next_seconds()
                _log.warning("%s is tried again in %.1f s: %s", self.address, seconds, error)
                await asyncio.sleep(seconds)
                continue
            connection.on_message = partial(self._received, connection)
            connection.send(self._request)
            self._connection = connection
            if not self._started.done():
                self._started.set_result(None)
            await asyncio.shield(connection.lost)
            if isinstance(connection.reason, RemoteProtocolError):
                self._failure = connection.reason
                self._arrived.set()
                return
            if connection.has_received:
                self._backoff.succeeded()
            seconds = self._backoff.next_seconds()
            _log.warning("%s is tried again in %.1f s: %s", self.address, seconds, connection.reason)
            await asyncio.sleep(seconds)
