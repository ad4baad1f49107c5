"""What is published and what is delivered, the same for every protocol; and what each protocol has to do for it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from polymq.errors import LocalProtocolError, PolyMQError, Refusal, TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

__all__ = ["Begin", "BrokerMessage", "Link", "OneByOne", "Outgoing", "Settling", "Source", "cut", "in_turn", "together"]

# Where a new group begins: "" leaves it to the protocol, "first", "last", or a time.
Begin: TypeAlias = "str | datetime"


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be published; `delay` and `ttl` are in seconds, 0 for at once and for ever.

    Messages of one `order` stay in order: a text is a name for what they have in common, a number the place of a queue.
    """

    topic: str
    body: bytes = field(repr=False)
    key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    tags: str = ""
    delay: float = 0.0
    ttl: float = 0.0
    order: str | int | None = None

    def __post_init__(self) -> None:
        """Refuse what is wrong for every protocol."""
        if not isinstance(self.body, bytes):
            raise LocalProtocolError(f"a body is bytes, not {type(self.body).__name__}: encode it")
        _check_delay(self.delay)
        if not (self.ttl >= 0 and math.isfinite(self.ttl)):
            raise LocalProtocolError(f"a TTL of {self.ttl} s: it is more than 0, or 0 for none")
        texts = [self.topic, self.key, self.tags, *self.headers, *self.headers.values()]
        if not all(isinstance(each, str) for each in texts):
            raise LocalProtocolError("topic, key, tags, and names and values of headers are texts")


class Settling(Protocol):
    """What becomes of one delivered message, in its protocol."""

    @property
    def is_current(self) -> bool:
        """Whether settling still has an effect, as far as is known."""

    def done(self) -> None:
        """It does not come again."""

    def retry(self, delay: float) -> None:
        """It comes again, not before `delay` seconds have passed; raises Unsupported before anything is sent."""

    def discard(self) -> None:
        """It is given up: it goes to the dead letters, where the protocol has them."""


class BrokerMessage:
    """One delivered message: it is `done()`, or comes again by `retry()`, or is given up by `discard()`.

    `time` is when it was published, `attempts` how often it has come, 1 the first time, `ttl` the seconds that are left of its life:
    None where the protocol does not tell. `order` is what `Outgoing` has, `reply_to` where an answer is waited for.
    """

    __slots__ = ("_settling", "attempts", "body", "headers", "is_settled", "key", "order", "reply_to", "tags", "time", "ttl")

    def __init__(
        self,
        settling: Settling,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        tags: str = "",
        time: datetime | None = None,
        attempts: int | None = None,
        ttl: float | None = None,
        order: str | int | None = None,
        reply_to: str = "",
    ) -> None:
        self.body = body
        self.headers = dict(headers or {})
        self.key = key
        self.tags = tags
        self.time = time
        self.attempts = attempts
        self.ttl = ttl
        self.order = order
        self.reply_to = reply_to
        self.is_settled = False
        self._settling = settling

    @property
    def is_current(self) -> bool:
        """Whether settling still has an effect: it has not been settled, and the server has not given it to somebody else, as far as is known."""
        return not self.is_settled and self._settling.is_current

    async def done(self) -> None:
        """Say that the message has been handled; raises LocalProtocolError when it was settled before."""
        self._check()
        self._settling.done()
        self.is_settled = True

    async def retry(self, delay: float = 0.0) -> None:
        """Have the message come again, not before `delay` seconds have passed.

        Raises:  Unsupported, and the message is not settled then; LocalProtocolError when it was settled before.
        """
        self._check()
        _check_delay(delay)
        self._settling.retry(delay)
        self.is_settled = True

    async def discard(self) -> None:
        """Give the message up: to the dead letters, where the protocol has them; raises as `done` does."""
        self._check()
        self._settling.discard()
        self.is_settled = True

    def _check(self) -> None:
        if self.is_settled:
            raise LocalProtocolError("this message has been settled before")


class OneByOne(Generic[_T]):
    """The items of what can be iterated over, one for each call; a wait that is cancelled loses nothing, and tasks take turns."""

    def __init__(self, items: AsyncIterable[_T]) -> None:
        self._items = items
        self._iterator: AsyncIterator[_T] | None = None
        self._turn = asyncio.Lock()

    async def next(self) -> _T | None:
        """Wait for the next one; None at the end."""
        async with self._turn:
            if self._iterator is None:
                self._iterator = aiter(self._items)
            try:
                return await anext(self._iterator)
            except StopAsyncIteration:
                return None
            except BaseException:
                self._iterator = None  # it has ended by that
                raise


class Source(Protocol):
    """A subscription of one protocol."""

    async def open(self) -> None:
        """Subscribe."""

    async def next(self) -> BrokerMessage | None:
        """Wait for the next message; None when this is closed. A wait that is cancelled loses nothing."""

    async def take(self) -> list[BrokerMessage]:
        """Wait for messages and give those that are here, some window's worth at most; none when this is closed. Loses nothing either."""

    async def close(self) -> None:
        """End; what has been settled is on its way before that."""


class Link(Protocol):
    """One protocol's way to its servers."""

    async def open(self) -> None:
        """Connect."""

    def check(self, message: Outgoing) -> None:
        """Raise Unsupported for what the protocol cannot carry."""

    async def publish(self, message: Outgoing) -> None:
        """Publish a message that has been checked."""

    async def publish_each(self, messages: Sequence[Outgoing], repeated: set[int]) -> list[PolyMQError | None]:
        """Publish messages that have been checked, together and in their order; says of each what went wrong, None when the server has it.

        `repeated` gets the places of those that were sent more than once on the way, so that they may be there several times.
        """

    def source(self, topic: str, group: str, window: int, begin: Begin, *, holds: bool) -> Source:
        """Make a subscription, whose client gives nothing back by itself if it `holds`; raises Unsupported or LocalProtocolError."""

    async def close(self) -> None:
        """Disconnect, with everything written that was published."""


def cut(messages: Sequence[Outgoing], alike: Callable[[Outgoing], object], *, count_max: int, size_bytes_max: int) -> list[list[int]]:
    """Cut messages into runs of neighbours that are alike and fit into one request: lists of their places. None is alike to nothing."""
    runs: list[list[int]] = []
    size_bytes = 0
    last: object = None
    for place, message in enumerate(messages):
        kind = alike(message)
        own = len(message.body) + sum(len(name) + len(value) for name, value in message.headers.items())
        size_bytes += own
        if kind is None or kind != last or len(runs[-1]) == count_max or size_bytes > size_bytes_max:
            runs.append([])
            size_bytes = own
        runs[-1].append(place)
        last = kind
    return runs


async def together(
    messages: Sequence[Outgoing], publish_run: Callable[[Sequence[Outgoing]], Awaitable[object]]
) -> list[PolyMQError | None]:
    """Publish a run that the server takes or refuses as a whole; when it refuses, one message after the other, to see which it is."""
    try:
        await publish_run(messages)
    except (Refusal, LocalProtocolError) as error:
        if len(messages) == 1:
            return [error]
        return [(await together([each], publish_run))[0] for each in messages]
    except PolyMQError as error:
        return [error] * len(messages)
    return [None] * len(messages)


async def in_turn(
    messages: Sequence[Outgoing], runs: Sequence[Sequence[int]], publish_run: Callable[[Sequence[Outgoing]], Awaitable[object]]
) -> list[PolyMQError | None]:
    """Publish runs one after the other; when one is lost, what is behind it is not sent: it would be there before it."""
    outcomes: list[PolyMQError | None] = [None] * len(messages)
    lost: PolyMQError | None = None
    for run in runs:
        found = await together([messages[place] for place in run], publish_run) if lost is None else [lost] * len(run)
        for place, outcome in zip(run, found, strict=True):
            outcomes[place] = outcome
            if isinstance(outcome, TransportError):
                lost = outcome
    return outcomes


def _check_delay(delay: float) -> None:
    if not (delay >= 0 and math.isfinite(delay)):
        raise LocalProtocolError(f"a delay of {delay} s: it is 0 or more")
