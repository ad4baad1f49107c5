"""Consume one channel of several servers, those that are named or those that nsqlookupd knows.

    async with NsqSubscriber("flights", "delays", lookups=["127.0.0.1:4161"], max_in_flight=500) as subscriber:
        await subscriber.run(handle, concurrency=10)     # settles what `handle` returns from, gives back what it raises on

    async for message in subscriber: ...                 # or as with NsqConsumer

What is in flight is divided among the servers (`nsq_sharing.py`), each of which is an `NsqConsumer` that finds its
server again by itself. A server that nsqlookupd does not know any more is left once its connection has gone; one
that refuses is asked again, with longer and longer waits between.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random as random_module
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from polymq.clients.backoff import Backoff
from polymq.clients.nsq import NsqConsumer
from polymq.clients.nsq_lookup import LookupOptions, find_servers, lookup_url
from polymq.clients.nsq_opening import NsqOptions, check_address, open_socket
from polymq.clients.nsq_sharing import Sharing, Throttle
from polymq.errors import DeadlineExceeded, LocalProtocolError, PolyMQError
from polymq.protocols.nsq import frames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from types import TracebackType

    from polymq.clients.nsq import NsqBatch, NsqMessage

__all__ = ["HandlerOptions", "NsqSubscriber"]

_DEFAULTS: Final = NsqOptions()
_LOOKUP: Final = LookupOptions()
_MS_PER_SECOND: Final = 1000
# How often places are given to other servers, when there are more of them than messages allowed in flight: always so
# while handling fails, when one server is tried.
_PERIOD_SECONDS: Final = 5.0
# The first wait when no nsqlookupd answers; they double up to the interval.
_LOOKUP_SECONDS_FIRST: Final = 1.0

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    """What happens to a message that `run`'s handler raises on: the defaults are go-nsq's.

    It is given back, to come again after `requeue_seconds` times its attempts; after `attempts_max` it is settled and
    logged (0: never). Everything else waits meanwhile, and goes on with one message at a time: for
    `backoff_seconds_first` after the first failure, twice as long after each further one, half as long after a success.

    Raises:  LocalProtocolError when a number makes no sense.
    """

    attempts_max: int = 5
    requeue_seconds: float = 90.0
    requeue_seconds_max: float = 900.0
    backoff_seconds_first: float = 1.0
    backoff_seconds_max: float = 120.0

    def __post_init__(self) -> None:
        """Refuse what nobody can mean."""
        if self.attempts_max < 0 or not (0 <= self.requeue_seconds and 0 <= self.requeue_seconds_max):
            raise LocalProtocolError(f"attempts and the wait before a message comes again are not negative: {self}")
        if not 0 < self.backoff_seconds_first <= self.backoff_seconds_max:
            raise LocalProtocolError(f"the first and the longest wait after a failure must be more than 0, in this order: {self}")


_HANDLER: Final = HandlerOptions()


@dataclass(slots=True)
class _Refusing:
    """A server that has said no, until it says yes. `timer` is None while it is asked again."""

    failure: PolyMQError
    backoff: Backoff
    timer: asyncio.TimerHandle | None = None


def _each(addresses: Sequence[str]) -> tuple[str, ...]:
    """Take one address for a list of one: a string is a sequence too, of letters."""
    return (addresses,) if isinstance(addresses, str) else tuple(addresses)


class NsqSubscriber:
    """An async iterator of messages of all servers, or, with `run`, a handler's caller.

    `addresses` are servers and `lookups` the HTTP ports of nsqlookupds, HOST:PORT each, one or several of them; a
    server that is named is never left. `max_in_flight` messages at most are with this subscriber at a time, whatever
    the number of servers. `given_up` counts messages that were settled after `HandlerOptions.attempts_max`, `expired`
    those that waited here for longer than the message timeout.

    Raises:  LocalProtocolError when a name, an address or a number makes no sense.
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
        opener: Callable[[str, Callable[[], asyncio.Protocol]], Awaitable[None]] = open_socket,
        find: Callable[..., Awaitable[set[str]]] = find_servers,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        if not addresses and not lookups:
            raise LocalProtocolError("neither servers nor nsqlookupds: there is nobody to consume from")
        if max_in_flight < 1:
            raise LocalProtocolError(f"max_in_flight is {max_in_flight}; it must be at least 1")
        frames.subscribe(topic, channel)  # raises on names that no server takes
        self._named = _each(addresses)
        self._lookups = deque(_each(lookups))  # in the order in which they are asked next
        for address in self._lookups:
            lookup_url(address)
        for address in self._named:
            check_address(address)
        self.given_up = 0
        self.expired = 0
        self._topic, self._channel, self._options = topic, channel, options
        self._looked = asyncio.Event()
        self._lookup = lookup
        self._max_in_flight = max_in_flight
        self._handling = handling
        self._opener, self._find, self._random = opener, find, random
        self._consumers: dict[str, NsqConsumer] = {}
        self._received: dict[str, int] = {}
        self._refusing: dict[str, _Refusing] = {}
        self._was_subscribed = False
        self._unknown: set[str] = set()  # found once, and not known to nsqlookupd any more
        self._sharing = Sharing(max_in_flight)
        self._throttle = Throttle(handling.backoff_seconds_first, handling.backoff_seconds_max)
        self._throttled: asyncio.TimerHandle | None = None
        self._changes = asyncio.Event()
        self._turn = itertools.count()
        self._unseen: list[NsqMessage] = []  # the next one is last
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def addresses(self) -> list[str]:
        """The servers that are consumed from, or tried."""
        return sorted({*self._consumers, *self._refusing})

    async def __aenter__(self) -> Self:
        """Begin: nsqlookupd has been asked once, and one of the named servers has let us in.

        Raises:  DeadlineExceeded when none of the named servers is there in time, or what all of them refuse with.
                 Without named servers nothing: who is not there yet is found later.
        """
        try:
            await self._begin()
        except BaseException:
            await self.close()
            raise
        return self

    async def _begin(self) -> None:
        for address in self._named:
            self._join(address)
        self._tasks.append(asyncio.create_task(self._keep_rotating(), name=f"sharing of {self._topic}"))
        if self._lookups:
            self._tasks.append(asyncio.create_task(self._keep_looking(), name=f"lookup of {self._topic}"))
        deadline_seconds = self._options.deadline_seconds
        try:
            async with asyncio.timeout(deadline_seconds):
                if self._lookups:
                    await self._looked.wait()
                while self._named and not self._was_subscribed:
                    self._raise_failure()
                    await self._change()
        except TimeoutError as error:
            if self._named and not self._was_subscribed:
                troubles = "; ".join(filter(None, (each.trouble for each in self._consumers.values())))
                text = f"none of {', '.join(self._named)} answered within {deadline_seconds:g} s; last failures: {troubles}"
                raise DeadlineExceeded(text) from error

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        await self.close()

    async def __aiter__(self) -> AsyncIterator[NsqMessage]:
        """Give messages one by one until closed; several tasks may do so at once.

        Raises:  what a server refused with, if all do and none has ever let us in. Otherwise refusals are logged.
        """
        while (message := await self._next()) is not None:
            yield message

    async def take(self) -> list[NsqMessage]:
        """Wait for messages and take all that came together; none once this is closed. Raises as iterating does."""
        found = []
        message = await self._next()
        while message is not None:
            found.append(message)
            message = self._pop()
        return found

    async def take_batches(self) -> list[tuple[str, NsqBatch]]:
        """Wait for batches and take all that have come, with the servers that they are from; none once this is closed.

        For who makes no object of a message. Raises as iterating does; not to be mixed with it.
        """
        while not self._closed:
            found: list[tuple[str, NsqBatch]] = []
            for address, consumer in list(self._consumers.items()):
                while (batch := consumer.take()) is not None:
                    found.append((address, batch))
            if found:
                return found
            self._raise_failure()
            await self._change()
        return []

    async def run(self, handler: Callable[[NsqMessage], Awaitable[None]], *, concurrency: int = 1) -> None:
        """Have `handler` called for every message, for so many at a time, until closed; raises as iterating does.

        A message that it has neither settled nor given back is settled when it returns. When it raises, see
        `HandlerOptions`.
        """
        if concurrency < 1:
            raise LocalProtocolError(f"concurrency is {concurrency}; it must be at least 1")
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._handle_all(handler))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # they all have the same reason

    async def flush(self) -> None:
        """Wait until every server that is there has acted on all settles so far; raises as `NsqConsumer.flush` does."""
        await asyncio.gather(*(each.flush() for each in self._consumers.values() if each.is_subscribed))

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Stop, and wait up to `grace_seconds` for what is in hand to be settled; see `NsqConsumer.close`."""
        self._closed = True
        self._changes.set()
        for task in self._tasks:
            task.cancel()
        for timer in (self._throttled, *(each.timer for each in self._refusing.values())):
            if timer is not None:
                timer.cancel()
        for message in self._unseen:
            if message.is_current and not message.is_settled:
                message.requeue()
        self._unseen.clear()
        await asyncio.gather(*(each.close(grace_seconds) for each in self._consumers.values()), *self._leaving)
        if self._tasks:
            await asyncio.wait(self._tasks)

    # --- Messages -----------------------------------------------------------------------------------------------------

    async def _change(self) -> None:
        self._changes.clear()
        await self._changes.wait()

    async def _next(self) -> NsqMessage | None:
        while not self._closed:
            message = self._pop()
            if message is not None:
                return message
            if not self._refill():
                self._raise_failure()
                await self._change()
        return None

    def _pop(self) -> NsqMessage | None:
        """Take the next message that has come and that is still ours."""
        while self._unseen:
            message = self._unseen.pop()
            if not message.is_current or message.is_settled:
                continue
            if not message.has_expired:
                return message
            message.drop()
            self.expired += 1
        return None

    def _refill(self) -> bool:
        """Take the next batch, beginning with another server each time."""
        consumers = list(self._consumers.values())
        first = next(self._turn)
        for index in range(len(consumers)):
            batch = consumers[(first + index) % len(consumers)].take()
            if batch is not None:
                self._unseen = [*reversed(list(batch)), *self._unseen]
                return True
        return False

    def _raise_failure(self) -> None:
        """Raise what a server refused with, if every one does; others may do better, and who was let in once may be again."""
        if self._refusing and not self._was_subscribed and self._refusing.keys() >= self._consumers.keys():
            raise next(iter(self._refusing.values())).failure

    async def _handle_all(self, handler: Callable[[NsqMessage], Awaitable[None]]) -> None:
        async for message in self:
            try:
                await handler(message)
            except Exception as error:
                self.handled(message, error)
            else:
                self.handled(message)

    def handled(self, message: NsqMessage, error: Exception | None = None) -> None:
        """Settle a message that has been handled, or do what `HandlerOptions` say when that failed: `run` does it for you."""
        if error is not None:
            self._failed(message, error)
        else:
            if not message.is_settled:
                message.settle()
            self._throttle.succeeded(asyncio.get_running_loop().time())
        self._share()

    def _failed(self, message: NsqMessage, error: Exception) -> None:
        handling = self._handling
        name = message.id.decode("ascii", "replace")
        if handling.attempts_max and message.attempts >= handling.attempts_max:
            self.given_up += 1
            log.error("%s: message %s is given up after %d attempts: %r", self._topic, name, message.attempts, error)
            if not message.is_settled:
                message.settle()
        else:
            delay_seconds = min(handling.requeue_seconds * message.attempts, handling.requeue_seconds_max)
            log.warning("%s: message %s comes again in %g s: %r", self._topic, name, delay_seconds, error)
            if not message.is_settled:
                message.requeue(int(delay_seconds * _MS_PER_SECOND))
        self._throttle.failed(asyncio.get_running_loop().time())

    # --- Servers ------------------------------------------------------------------------------------------------------

    def _join(self, address: str) -> None:
        refusing = self._refusing.get(address)
        if address not in self._consumers and (refusing is None or refusing.timer is None):
            consumer = NsqConsumer(
                address,
                self._topic,
                self._channel,
                self._options,
                max_in_flight=self._max_in_flight,
                changed=self._note_change,
                opener=self._opener,
                random=self._random,
            )
            consumer.allow(0)  # its share comes when it is subscribed
            self._consumers[address] = consumer
            consumer.start()

    def _note_change(self) -> None:
        self._changes.set()
        for address, consumer in list(self._consumers.items()):
            if consumer.failure is not None and not self._closed:
                self._ask_again_later(address, consumer.failure)
            elif consumer.is_subscribed:
                self._was_subscribed = True
                self._refusing.pop(address, None)
        for address in [each for each in self._unknown if each in self._consumers and not self._consumers[each].is_subscribed]:
            self._leave(address)
        self._share()

    def _ask_again_later(self, address: str, failure: PolyMQError) -> None:
        """Let go of a server that refuses, for a while; nobody else hears of it."""
        options = self._options
        backoff = Backoff(options.reconnect_seconds_first, options.reconnect_seconds_max, self._random)
        refusing = self._refusing.setdefault(address, _Refusing(failure, backoff))
        refusing.failure = failure
        wait_seconds = refusing.backoff.next_seconds()
        log.warning("%s refuses, and is asked again in %.1f s: %s", address, wait_seconds, failure)
        refusing.timer = asyncio.get_running_loop().call_later(wait_seconds, self._ask_again, address)
        self._leave(address)

    def _ask_again(self, address: str) -> None:
        self._refusing[address].timer = None
        self._join(address)

    def _forget(self, address: str) -> None:
        """Do not ask a server again that refuses and that nobody knows any more."""
        timer = self._refusing.pop(address).timer
        if timer is not None:
            timer.cancel()

    def _leave(self, address: str) -> None:
        self._unknown.discard(address)
        consumer = self._consumers.pop(address)
        self._received.pop(address, None)
        task = asyncio.create_task(consumer.close(), name=f"leaving {address}")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _share(self, *, rotate: bool = False) -> None:
        """Tell every server how much it may send now."""
        if self._closed:
            return
        now = asyncio.get_running_loop().time()
        live = [address for address, each in self._consumers.items() if each.is_subscribed]
        limit = self._throttle.limit(now)
        shares = self._rotated(live, limit) if rotate else self._sharing.divide(live)
        for index, address in enumerate(shares):
            self._consumers[address].allow(shares[address] if limit is None else limit if index == 0 else 0)
        until = self._throttle.until()
        if self._throttled is not None:
            self._throttled.cancel()
            self._throttled = None
        if until is not None and until > now:
            self._throttled = asyncio.get_running_loop().call_at(until, self._share)

    def _rotated(self, live: list[str], limit: int | None) -> dict[str, int]:
        """Share at the end of a period. Who has sent something, or waits for us to handle it, is busy."""
        received = {address: self._consumers[address].received for address in live}
        busy = {each for each in live if received[each] != self._received.get(each, 0) or self._consumers[each].holds_messages}
        self._received = received
        # While nobody may send anything, silence says nothing.
        return self._sharing.divide(live) if limit == 0 else self._sharing.rotate(live, busy, limit)

    async def _keep_rotating(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD_SECONDS)
            self._share(rotate=True)

    async def _keep_looking(self) -> None:
        """Ask the nsqlookupds, for as long as we are here: soon again while none of them answers."""
        interval = self._lookup.interval_seconds
        backoff = Backoff(min(_LOOKUP_SECONDS_FIRST, interval), interval, self._random)
        while True:
            if await self._look_up():
                backoff.succeeded()
                wait_seconds = interval * (1 + self._lookup.jitter * self._random())
            else:
                wait_seconds = backoff.next_seconds()
            self._looked.set()
            await asyncio.sleep(wait_seconds)

    async def _look_up(self) -> bool:
        """Ask the nsqlookupds until one knows servers, beginning with another one each time; returns whether any answered."""
        addresses = list(self._lookups)
        self._lookups.rotate(-1)
        found: set[str] | None = None
        for address in addresses:
            try:
                found = await self._find(
                    address, self._topic, secret=self._options.auth_secret, timeout_seconds=self._lookup.timeout_seconds
                )
            except PolyMQError as error:
                log.warning("%s", error)  # what was known before still holds
            if found:
                break
        if found is None:
            return False
        for server in found:
            self._join(server)
        left = found | set(self._named)
        self._unknown = set(self._consumers) - left
        for server in set(self._refusing) - left:
            self._forget(server)
        self._note_change()
        return True
