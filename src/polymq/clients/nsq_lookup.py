"""Ask nsqlookupd which servers have a topic. Knows its answers, and nothing of consuming."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from polymq.errors import ConnectFailed, DeadlineExceeded, LocalProtocolError, RemoteProtocolError
from polymq.protocols.http.client import Answer, Exchange, Failure, Question, where

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["LookupOptions", "find_servers", "lookup_url"]

_OK: Final = 200
_NOT_FOUND: Final = 404
_PORT_MAX: Final = 65535
# Each costs a connection and a task; who names more of them for a topic is not to be believed. nsqlookupd has no limit.
_SERVERS_MAX: Final = 10_000
# An answer that has room for so many. One that has no end is not nsqlookupd's.
_ANSWER_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
_READ_SIZE_BYTES: Final = 64 * 1024
_NS_PER_SECOND: Final = 10**9
# What is shown of an entry that is no server.
_SHOWN_SIZE_MAX: Final = 80

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LookupOptions:
    """How often to ask, and how long to wait for an answer. The jitter spreads clients that started together.

    Units:   seconds; `jitter` is the part of the interval that is added to it at most. `timeout_seconds` is for
             everything that one nsqlookupd is asked: its name, the connection, the whole answer.
    Raises:  LocalProtocolError when a number makes no sense.
    """

    interval_seconds: float = 60.0
    jitter: float = 0.3
    timeout_seconds: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what would ask without a pause, or never get an answer."""
        if not (self.interval_seconds > 0 and self.timeout_seconds > 0 and 0 <= self.jitter <= 1):
            raise LocalProtocolError(f"an interval and a timeout are more than 0 seconds, the jitter is 0 to 1: {self}")


def lookup_url(address: str) -> str:
    """Make a URL of `host:port` or `http://host:port`; raises LocalProtocolError when it is neither."""
    url = (address if "://" in address else f"http://{address}").rstrip("/")
    place = where(url)
    if place is None or place.secure or place.target != "/" or not url.rpartition(":")[2].isdecimal():
        raise LocalProtocolError(f"{address!r} is not the HTTP address of an nsqlookupd, which is HOST:PORT")
    return url


async def _ask(question: Question) -> Answer | Failure:
    place = where(question.url)
    assert place is not None
    exchange = Exchange(question, place)
    reader, writer = await asyncio.open_connection(place.host, place.port)
    try:
        writer.write(exchange.request())
        while True:
            data = await reader.read(_READ_SIZE_BYTES)
            result = exchange.receive(data) if data else exchange.eof()
            if result is not None:
                return result
    finally:
        writer.transport.abort()


async def find_servers(
    address: str,
    topic: str,
    *,
    secret: str = "",
    timeout_seconds: float = 5.0,
    ask: Callable[[Question], Awaitable[Answer | Failure]] = _ask,
) -> set[str]:
    """Ask one nsqlookupd; returns addresses, none when it does not know the topic.

    An entry without a usable address is left out, and logged: the other servers are there all the same.

    Limits:  an answer has 4 MiB and 10,000 servers at most.
    Raises:  ConnectFailed, DeadlineExceeded, RemoteProtocolError; LocalProtocolError when there is no asking with
             this address or this secret.
    """
    headers = [("Accept", "application/vnd.nsq; version=1.0")]
    if secret:
        if not (secret.isascii() and secret.isprintable()):
            raise LocalProtocolError("a secret that is more than printable ASCII cannot be shown to nsqlookupd")
        headers.append(("Authorization", f"Bearer {secret}"))
    timeout_ns = int(timeout_seconds * _NS_PER_SECOND)
    url = f"{lookup_url(address)}/lookup?{urlencode({'topic': topic})}"
    question = Question(url, timeout_ns, timeout_ns, headers=tuple(headers), body_size_bytes_max=_ANSWER_SIZE_BYTES_MAX)
    try:
        async with asyncio.timeout(timeout_seconds):
            answer = await ask(question)
    except TimeoutError as error:
        raise DeadlineExceeded(f"nsqlookupd at {address} did not answer within {timeout_seconds:g} s") from error
    except (OSError, ValueError) as error:
        raise ConnectFailed(f"nsqlookupd at {address}: {error}") from error
    if isinstance(answer, Failure):
        raise RemoteProtocolError(f"nsqlookupd at {address}: {answer.reason}")
    if answer.status == _NOT_FOUND:
        return set()
    if answer.status != _OK:
        raise RemoteProtocolError(f"nsqlookupd at {address} answered with status {answer.status}")
    try:
        producers = _producers(json.loads(answer.body))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise RemoteProtocolError(f"nsqlookupd at {address}: its answer makes no sense: {error!r}") from error
    found = [_address(producer) for producer in producers]
    if None in found:
        example = repr(producers[found.index(None)])[:_SHOWN_SIZE_MAX]
        log.warning("nsqlookupd at %s: %d of %d servers have no usable address: %s", address, found.count(None), len(found), example)
        if not any(found):
            raise RemoteProtocolError(f"nsqlookupd at {address}: none of its servers has a usable address")
    return {server for server in found if server is not None}


def _producers(answer: Any) -> list[Any]:
    """Find the list: as version 1.0 of the API gives it, or wrapped in "data" as nsqlookupd did before 1.0."""
    producers = (answer.get("data") or answer)["producers"]
    if not isinstance(producers, list):
        raise TypeError("no list of servers")
    if len(producers) > _SERVERS_MAX:
        raise ValueError(f"{len(producers)} servers")
    return producers


def _address(producer: Any) -> str | None:
    """Write where a server is; None if that cannot be known."""
    if not isinstance(producer, dict):
        return None
    host, port = producer.get("broadcast_address") or producer.get("hostname"), producer.get("tcp_port")
    if not isinstance(host, str) or not host or type(port) is not int or not 0 < port <= _PORT_MAX:
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
