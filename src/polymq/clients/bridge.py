"""Moves messages from a source to a target, at least once: read ahead, send in flights, settle when the target has acknowledged.

    source --read--> held (bounded) --flight--> target --acknowledged--> settle, cursor

One task reads while the other sends; what is read and not sent is bounded in number and size, and the reader waits at that. A
flight is everything that is held, sent as one; the next begins when all of it is acknowledged, so the order stays as it was. When the
connection is lost, what was not acknowledged is sent again, from the first such message on: once more for each loss, never not at all. A target
that looks for the message that its server refuses sends others again as well (`repeated`).

Nothing here knows protocols, files or terminals. Read next: `bridge_ends.py`, `bridge_log.py`, `bridge_groups.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random as random_module
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from polymq.clients.backoff import Backoff
from polymq.errors import LocalProtocolError, PolyMQError, Refusal, RefusalCode, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from polymq.clients.bridge_ends import BridgeSource, BridgeTarget, Carried, Tally

__all__ = ["Bridge", "BridgeOptions", "MessageRefused"]

# Another attempt may do better.
_PASSING: Final = frozenset(
    {RefusalCode.SHUTTING_DOWN, RefusalCode.TOPIC_FULL, RefusalCode.LIMIT_REACHED, RefusalCode.STORE_FULL, RefusalCode.STORE_FAILED}
)
# It is not about one message: the next would be refused as well.
_FOR_ALL: Final = frozenset(
    {
        RefusalCode.UNAUTHENTICATED,
        RefusalCode.LOGIN_EXPIRED,
        RefusalCode.FORBIDDEN,
        RefusalCode.TOPIC_NAME_INVALID,
        RefusalCode.TOPIC_NOT_FOUND,
        RefusalCode.POLICY_INVALID,
    }
)
# So many refusals and not one message that was taken: that is not about single messages either.
_SKIPPED_AT_FIRST_MAX: Final = 100
# How long a flight may still take when the bridge is told to stop.
_GRACE_SECONDS: Final = 5.0
_BACKOFF_SECONDS_FIRST: Final = 0.1
_BACKOFF_SECONDS_MAX: Final = 5.0


class MessageRefused(PolyMQError):
    """The target does not take a message, and nobody has said that it may be left out."""


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """What a bridge keeps to.

    count:            stop behind so many messages
    ends_when_idle:   stop when the source has nothing for a while and all is moved
    skips_refused:    leave out, and count, what the target refuses
    patience_seconds: give up when an end has been away for so long; None: never
    held_*:           what is read and not acknowledged, about, at most
    """

    count: int | None = None
    ends_when_idle: bool = False
    skips_refused: bool = False
    patience_seconds: float | None = None
    held_messages_max: int = 20_000
    held_size_bytes_max: int = 32 * 1024 * 1024


_DEFAULTS: Final = BridgeOptions()
_T = TypeVar("_T")


class _Stopped(Exception):
    """The bridge was told to stop."""


class _Held:
    """What is read and not sent yet: batches, the end, or what made reading impossible."""

    def __init__(self, options: BridgeOptions) -> None:
        self._options = options
        self._batches: deque[list[Carried]] = deque()
        self._sizes: deque[int] = deque()
        self._flying = (0, 0)
        self._changed = asyncio.Condition()
        self._is_over = False
        self._error: PolyMQError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held and nothing flies."""
        return not self._batches and not self._flying[0]

    @property
    def has_waiting(self) -> bool:
        """Whether the next flight can begin at once."""
        return bool(self._batches)

    async def put(self, batch: list[Carried]) -> None:
        """Hold a batch; returns when there is room for another."""
        async with self._changed:
            self._batches.append(batch)
            self._sizes.append(sum(each.size_bytes for each in batch))
            self._changed.notify_all()
            await self._changed.wait_for(self._has_room)

    async def take(self) -> list[Carried] | None:
        """Wait for messages and take all of them, which are a flight then; None at the end. Raises what reading ended with."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._batches) or self._is_over)
            if not self._batches:
                if self._error is not None:
                    raise self._error
                return None
            self._flying = (sum(map(len, self._batches)), sum(self._sizes))
            flight = [message for batch in self._batches for message in batch]
            self._batches.clear()
            self._sizes.clear()
            return flight

    async def landed(self) -> None:
        """The flight is done with."""
        async with self._changed:
            self._flying = (0, 0)
            self._changed.notify_all()

    async def end(self, error: PolyMQError | None = None) -> None:
        """There will be no more."""
        async with self._changed:
            self._is_over = True
            self._error = error
            self._changed.notify_all()

    def _has_room(self) -> bool:
        count = self._flying[0] + sum(map(len, self._batches))
        size_bytes = self._flying[1] + sum(self._sizes)
        return count < self._options.held_messages_max and size_bytes < self._options.held_size_bytes_max


class Bridge:
    """One run from a source to a target. `note` is told what somebody should know while it goes on; `tally` is kept up to date.

    `run` returns when everything is moved that was to be, or after `stop`; it raises what made it impossible to go on.
    """

    def __init__(
        self,
        source: BridgeSource,
        target: BridgeTarget,
        tally: Tally,
        options: BridgeOptions = _DEFAULTS,
        *,
        note: Callable[[str], None],
        clock_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self.tally = tally
        self.has_stopped = False
        self.has_idled = False  # it ended because nothing came
        self._source = source
        self._target = target
        self._options = options
        self._note = note
        self._clock_ns = clock_ns
        self._monotonic = monotonic
        self._random = random
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End soon: what is on its way to the target gets some seconds, what was only read is left for the next time."""
        self.has_stopped = True
        self._stopping.set()

    async def run(self) -> None:
        """Move messages; raises PolyMQError, MessageRefused among them."""
        try:
            await self._or_stop(self._source.open(), 0)
            await self._or_stop(self._target.open(), 0)
            await self._move()
        except _Stopped:
            return
        finally:
            # Also when something went wrong: what is settled is settled.
            try:
                await self._source.keep(moved=self.tally.moved, is_last=True)
            finally:
                await self._close()

    async def _close(self) -> None:
        for end in (self._source, self._target):
            try:
                await end.close()
            except PolyMQError as error:
                self._note(f"closing: {error}")

    async def _move(self) -> None:
        held = _Held(self._options)
        reading = asyncio.create_task(self._read(held), name="bridge reader")
        stopped = asyncio.create_task(self._stopping.wait(), name="bridge stop")
        try:
            while not self.has_stopped:
                taking = asyncio.ensure_future(held.take())
                await asyncio.wait({taking, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not taking.done():
                    taking.cancel()
                    return
                flight = taking.result()
                if flight is None:
                    return
                await self._fly(flight)
                await self._source.keep(moved=self.tally.moved, is_last=not held.has_waiting)
                await held.landed()
        finally:
            for task in (reading, stopped):
                task.cancel()
            await asyncio.wait({reading, stopped})
            if not reading.cancelled():
                reading.result()

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def _read(self, held: _Held) -> None:
        """Read ahead; ends at the end, at the count, or when the source is idle and everything is moved."""
        left = self._options.count
        trouble = _Trouble(self._options, self._monotonic, self._random)
        try:
            while True:
                was_empty = held.is_empty
                try:
                    batch = await self._source.read()
                except (TransportError, Refusal) as error:
                    seconds = trouble.wait_for(error)
                    self._note(f"source: {error}; trying again")
                    await asyncio.sleep(seconds)
                    continue
                trouble.over()
                if batch is None:
                    break
                if not batch:
                    if self._options.ends_when_idle and was_empty and held.is_empty:
                        self.has_idled = True
                        break
                    continue
                if left is not None:
                    batch = batch[:left]
                    left -= len(batch)
                await held.put(batch)
                if left == 0:
                    break
        except PolyMQError as error:
            await held.end(error)
        except Exception:
            await held.end()  # nobody shall wait for what does not come
            raise
        else:
            await held.end()

    # --- Sending ------------------------------------------------------------------------------------------------------

    async def _fly(self, flight: list[Carried]) -> None:
        """Have everything acknowledged, or left out for a reason, and settle it; raises _Stopped, or what makes it impossible."""
        trouble = _Trouble(self._options, self._monotonic, self._random)
        sent: set[int] = set()  # what the target may have, by id; a second time is counted once
        again: set[int] = set()
        while flight:
            now_ns = self._clock_ns()
            over = {id(each) for each in flight if each.expiry_ns is not None and each.expiry_ns <= now_ns}
            wanted = [each for each in flight if id(each) not in over and self._source.is_wanted(each)]
            self._count_again(again, sent.intersection(map(id, wanted)))
            sent.update(map(id, wanted))
            outcomes = await self._or_stop(self._target.send(wanted), _GRACE_SECONDS) if wanted else []
            self._count_again(again, {id(wanted[place]) for place in self._target.repeated} if wanted else set())
            done, lost = self._judge(wanted, outcomes)
            flight = await self._settle(flight, over, wanted, len(done))
            if lost is None:
                return
            if not self._is_passing(lost):
                raise lost
            if done:
                trouble.over()
            seconds = trouble.wait_for(lost)
            self._note(f"target: {lost}; trying again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()
            if self.has_stopped:
                raise _Stopped

    def _count_again(self, again: set[int], repeated: set[int]) -> None:
        """Count what was sent once more; a message counts once, however often that was."""
        self.tally.again += len(repeated - again)
        again |= repeated

    async def _settle(self, flight: list[Carried], over: set[int], wanted: list[Carried], done: int) -> list[Carried]:
        """Settle the first `done` of what was wanted, and what is over before the next one, in order; gives the rest of the flight.

        Where a source knows positions only, whatever stands before one that is settled counts as settled. What the source will give again is left out.
        """
        unsent = id(wanted[done]) if done < len(wanted) else None
        end = next((place for place, each in enumerate(flight) if id(each) == unsent), len(flight))
        sent = {id(each) for each in wanted[:done]}
        self.tally.expired += sum(id(each) in over for each in flight[:end])
        await self._source.settle([each for each in flight[:end] if id(each) in over or id(each) in sent])
        return flight[end:]

    async def _or_stop(self, work: Coroutine[Any, Any, _T], grace_seconds: float) -> _T:
        """Wait for some work; raises _Stopped when it is not done within the grace of a stop."""
        working = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await asyncio.wait({working}, timeout=grace_seconds)
            if not working.done():
                raise _Stopped
            return working.result()
        finally:
            for each in (working, stopped):
                each.cancel()
            await asyncio.wait({working, stopped})
            if not working.cancelled():
                working.exception()  # raised by now, or nobody waits for it any more

    def _judge(self, messages: Sequence[Carried], outcomes: Sequence[PolyMQError | None]) -> tuple[list[Carried], PolyMQError | None]:
        """Say what is done with, and why the rest is not: if that passes, it is sent again from the first such message on, in order."""
        done: list[Carried] = []
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome is None:
                self.tally.moved += 1
                self.tally.size_bytes += len(message.body)
            elif self._is_passing(outcome):
                return done, outcome
            elif (wrong := self._refused(message, outcome)) is not None:
                return done, wrong
            done.append(message)
        return done, None

    def _is_passing(self, error: PolyMQError) -> bool:
        if isinstance(error, Refusal):
            # The name servers of RocketMQ forget a broker that is away: what was there will be there again.
            return error.code in _PASSING or (error.code is RefusalCode.TOPIC_NOT_FOUND and self.tally.moved > 0)
        return isinstance(error, TransportError)

    def _refused(self, message: Carried, error: PolyMQError) -> PolyMQError | None:
        """Count a message that the target does not take; gives what ends the bridge, if that may not be or is not about this message."""
        is_about_all = isinstance(error, Refusal) and error.code in _FOR_ALL
        if is_about_all or not isinstance(error, Refusal | LocalProtocolError):
            return error
        if not self._options.skips_refused:
            return MessageRefused(
                f"the target refuses a message of {len(message.body)} bytes: {error}\n"
                "What came before it is moved. --skip-refused leaves out, and counts, what the target refuses."
            )
        if self.tally.skipped >= _SKIPPED_AT_FIRST_MAX and not self.tally.moved:
            return MessageRefused(f"the target has refused the first {self.tally.skipped} messages, and taken none: {error}")
        self.tally.skipped += 1
        return None


class _Trouble:
    """How long an end has been away, and how long to wait before it is tried again."""

    def __init__(self, options: BridgeOptions, monotonic: Callable[[], float], random: Callable[[], float]) -> None:
        self._patience_seconds = options.patience_seconds
        self._monotonic = monotonic
        self._backoff = Backoff(_BACKOFF_SECONDS_FIRST, _BACKOFF_SECONDS_MAX, random)
        self._since: float | None = None

    def wait_for(self, error: PolyMQError) -> float:
        """Give the seconds to wait; raises the error when patience is over, or when waiting would not help."""
        if isinstance(error, Refusal) and error.code not in _PASSING and error.code is not RefusalCode.TOPIC_NOT_FOUND:
            raise error
        now = self._monotonic()
        if self._since is None:
            self._since = now
        elif self._patience_seconds is not None and now - self._since >= self._patience_seconds:
            raise error
        return self._backoff.next_seconds()

    def over(self) -> None:
        """It is there again."""
        self._since = None
        self._backoff.succeeded()
