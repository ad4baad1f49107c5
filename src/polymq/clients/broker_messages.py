"""What is published and what is delivered, the same for every protocol; and what each protocol has to do for it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from polymq.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping
    from datetime import datetime

__all__ = ["BrokerMessage", "Link", "OneByOne", "Outgoing", "Settling", "Source"]


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be published; `delay` is in seconds, 0 for at once."""

    topic: str
    body: bytes = field(repr=False)
    key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    tags: str = ""
    delay: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is wrong for every protocol."""
        if not isinstance(self.body, bytes):
            raise LocalProtocolError(f"a body is bytes, not {type(self.body).__name__}: encode it")
        _check_delay(self.delay)
        texts = [self.topic, self.key, self.tags, *self.headers, *self.headers.values()]
        if not all(isinstance(each, str) for each in texts):
            raise LocalProtocolError("topic, key, tags, and names and values of headers are texts")


class Settling(Protocol):
    """What becomes of one delivered message, in its protocol."""

    def done(self) -> None:
        """It does not come again."""

    def retry(self, delay: float) -> None:
        """It comes again, not before `delay` seconds have passed; raises Unsupported before anything is sent."""

    def discard(self) -> None:
        """It is given up: it goes to the dead letters, where the protocol has them."""


class BrokerMessage:
    """One delivered message: it is `done()`, or comes again by `retry()`, or is given up by `discard()`.

    `time` is when it was published, `attempts` how often it has come, 1 the first time: None where the protocol does not tell.
    """

    __slots__ = ("_settling", "attempts", "body", "headers", "is_settled", "key", "tags", "time")

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
    ) -> None:
        self.body = body
        self.headers = dict(headers or {})
        self.key = key
        self.tags = tags
        self.time = time
        self.attempts = attempts
        self.is_settled = False
        self._settling = settling

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

    def source(self, topic: str, group: str, window: int) -> Source:
        """Make a subscription; raises Unsupported or LocalProtocolError."""

    async def close(self) -> None:
        """Disconnect, with everything written that was published."""


def _check_delay(delay: float) -> None:
    if not (delay >= 0 and math.isfinite(delay)):
        raise LocalProtocolError(f"a delay of {delay} s: it is 0 or more")
