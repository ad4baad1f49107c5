"""The values of one HTTP exchange, for every package that answers over HTTP.

They lie this deep because the product's own endpoints and the gateways both make them, and neither may import the
other. Nothing here knows how they travel. Read next: `polymq/protocols/http`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["BodyState", "Promise", "Request", "Response", "Retry"]


class BodyState(enum.Enum):
    """What became of a request's body."""

    WHOLE = "whole"
    TOO_LARGE = "larger than the endpoint takes: not read, and the connection will be closed"
    BROKEN = "its framing makes no sense: the connection will be closed"
    EXPECTATION = "the peer expects what nobody can do: the connection will be closed"
    UNREAD = "the endpoint does not want it and the peer has not sent it: the connection will be closed"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, head and body.

    `path` is decoded, `query` is not; `arguments` holds the first value of each name in the query, or is None if the
    query cannot be decoded. Header names are lower case. `body_view` is only valid until the endpoint returns;
    `content_length` is what the head declares (None: nothing, or chunks). `parameters` are the parts of the path
    that the route names; `connection` is who an endpoint names as the listener of a subscription (`Consumer`).
    """

    method: str
    path: str
    query: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body_view: memoryview = field(default_factory=lambda: memoryview(b""))
    body_state: BodyState = BodyState.WHOLE
    content_length: int | None = None
    arguments: Mapping[str, str] | None = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    version_minor: int = 1
    keep_alive: bool = True
    connection: Any = None


class Promise(Protocol):
    """As much of a store's ticket as has to be known here."""

    @property
    def state(self) -> Any:
        """Where the promised write stands, in the words of whoever promised."""

    @property
    def failure(self) -> str:
        """Why it failed, for people."""


class Consumer(Protocol):
    """Who makes the pieces of a body that deliveries are sent as."""

    beat: bytes
    """What is sent when there has been nothing to send for a while, so that a peer that is gone is noticed."""

    def take(self, delivery: Any) -> bytes:
        """Write a delivery, of which nothing may be kept."""

    def hold(self, *, held: bool) -> None:
        """Stop taking deliveries, or go on."""

    def woken(self) -> None:
        """Do what could not be done while something was delivered, after `ring()` of the connection."""

    def ended(self) -> None:
        """The answer has come to its end, however that was: leave."""


@dataclass(frozen=True, slots=True)
class Response:
    """What to answer.

    `body` is bytes, or an iterator that is asked for the next chunk once the last one has been sent; it yields b""
    when it has nothing yet and wants to be asked again soon, and raises StopIteration at the end. A body whose
    iterator raises anything of PolyMQError is cut off, which the peer can tell from a complete one.

    With a `ticket`, the answer is sent once that is durable; if it fails, `failure(reason)` is sent instead. An answer
    that `publishes` makes the connection one that is not read while the disk is slow.
    `close` ends the connection behind the answer. With a `consumer` the body goes on, behind what `body` has, with
    whatever is delivered to the request's connection, until the connection or the subscription ends.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | Iterator[bytes] = b""
    ticket: Promise | None = None
    failure: Callable[[str], Response] | None = None
    close: bool = False
    consumer: Consumer | None = None
    publishes: bool = True


def _nobody_minds() -> None:
    """Do nothing about an answer that is not wanted any more."""


@dataclass(frozen=True, slots=True)
class Retry:
    """There is no answer yet: call `again` at `due_ns` on the monotonic clock, until it gives one.

    It is called earlier when the request's connection is rung for (`ring()`), and `dropped` instead when that has ended.
    """

    due_ns: int
    again: Callable[[], Response | Retry]
    dropped: Callable[[], None] = _nobody_minds
