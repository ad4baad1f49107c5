"""Ask nsqlookupd which servers have a topic. Knows HTTP and JSON, and nothing of consuming."""

from __future__ import annotations

import asyncio
import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from polymq.errors import ConnectFailed, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LookupOptions", "find_servers"]

_OK: Final = 200
_NOT_FOUND: Final = 404
_PORT_MAX: Final = 65535
# Some ten thousand servers. nsqlookupd has no limit; an answer that has no end is not one of it.
_ANSWER_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LookupOptions:
    """How often to ask, and how long to wait for an answer. The jitter spreads clients that started together."""

    interval_seconds: float = 60.0
    jitter: float = 0.3
    timeout_seconds: float = 5.0


def _ask(address: str, topic: str, secret: str, timeout_seconds: float) -> tuple[int, bytes]:
    headers = {"Accept": "application/vnd.nsq; version=1.0"}
    if secret:
        headers["Authorization"] = f"Bearer {secret}"
    connection = http.client.HTTPConnection(address, timeout=timeout_seconds)
    try:
        connection.request("GET", f"/lookup?{urlencode({'topic': topic})}", headers=headers)
        response = connection.getresponse()
        return response.status, response.read(_ANSWER_SIZE_BYTES_MAX)
    finally:
        connection.close()


async def find_servers(
    address: str,
    topic: str,
    *,
    secret: str = "",
    timeout_seconds: float = 5.0,
    ask: Callable[[str, str, str, float], tuple[int, bytes]] = _ask,
) -> set[str]:
    """Ask one nsqlookupd; returns addresses, none when it does not know the topic.

    Raises:  ConnectFailed, RemoteProtocolError.
    """
    try:
        status, body = await asyncio.to_thread(ask, address, topic, secret, timeout_seconds)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ConnectFailed(f"nsqlookupd at {address}: {error}") from error
    if status == _NOT_FOUND:
        return set()
    if status != _OK:
        raise RemoteProtocolError(f"nsqlookupd at {address} answered with status {status}")
    try:
        return _servers(json.loads(body))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise RemoteProtocolError(f"nsqlookupd at {address}: its answer makes no sense: {error!r}") from error


def _servers(answer: Any) -> set[str]:
    """Read the answer: as version 1.0 of the API gives it, or wrapped in "data" as nsqlookupd did before 1.0."""
    answer = answer.get("data") or answer
    found = set()
    for producer in answer["producers"]:
        host, port = producer.get("broadcast_address") or producer["hostname"], producer["tcp_port"]
        if not isinstance(host, str) or type(port) is not int or not 0 < port <= _PORT_MAX:
            raise ValueError(f"no address: {host!r} {port!r}")
        found.add(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return found
