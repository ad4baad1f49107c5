"""IDENTIFY: a client's wishes as JSON, what of them is legal, and the answer.

How the JSON is read is in `wire/go_json.py`. Observed on nsqd 1.3.0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from polymq.limits import IDENTIFY_SIZE_BYTES_MAX
from polymq.protocols.nsq import problems
from polymq.wire.go_json import INT32, INT64, decode_struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.protocols.nsq.settings import NsqSettings

__all__ = ["Agreement", "Wishes", "first_agreement", "negotiate", "parse_wishes"]

_HEARTBEAT_INTERVAL_MS_MIN: Final = 1000
_MESSAGE_TIMEOUT_MS_MIN: Final = 1000
_OUTPUT_BUFFER_SIZE_BYTES_MIN: Final = 64
_SAMPLE_PERCENT_MAX: Final = 99
_DEFLATE_LEVEL: Final = 6


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a client asked for. 0 and "" mean that it did not ask."""

    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    feature_negotiation: bool = False
    heartbeat_interval: int = 0
    output_buffer_size: int = 0
    output_buffer_timeout: int = 0
    sample_rate: int = 0
    msg_timeout: int = 0
    tls_v1: bool = False
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = 0


@dataclass(frozen=True, slots=True)
class Agreement:
    """What holds for the connection from here on. `reply` is the data of the response frame.

    A heartbeat interval of 0 means none; an output buffer timeout of 0 means that nothing is flushed by time.
    `client_id` and `hostname` are "" when the client did not say: the gateway puts the peer's address there only for
    a client that has not identified itself at all.
    """

    reply: bytes
    client_id: str
    hostname: str
    user_agent: str
    heartbeat_interval_ms: int
    output_buffer_size_bytes: int
    output_buffer_timeout_ms: int
    sample_percent: int
    message_timeout_ms: int
    tls: bool = False
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = _DEFLATE_LEVEL


_TYPES: Final[Mapping[str, type | range]] = {
    "client_id": str,
    "hostname": str,
    "user_agent": str,
    "feature_negotiation": bool,
    "heartbeat_interval": INT64,
    "output_buffer_size": INT64,
    "output_buffer_timeout": INT64,
    "sample_rate": INT32,
    "msg_timeout": INT64,
    "tls_v1": bool,
    "snappy": bool,
    "deflate": bool,
    "deflate_level": INT64,
}
assert set(_TYPES) == set(Wishes.__dataclass_fields__)


def parse_wishes(body: bytes) -> Wishes | None:
    """Read the body of IDENTIFY; None if Go would not, or if it is too long to be looked into.

    Limits:  limits.IDENTIFY_SIZE_BYTES_MAX.
    Source: Go, encoding/json; NSQ 1.3.0, nsqd/client_v2.go, identifyDataV2.
    """
    found = decode_struct(body, _TYPES) if len(body) <= IDENTIFY_SIZE_BYTES_MAX else None
    return None if found is None else Wishes(**found)


def first_agreement(settings: NsqSettings) -> Agreement:
    """What holds before IDENTIFY, and without one."""
    return Agreement(
        reply=b"",
        client_id="",
        hostname="",
        user_agent="",
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        output_buffer_size_bytes=settings.output_buffer_size_bytes,
        output_buffer_timeout_ms=settings.output_buffer_timeout_ms,
        sample_percent=0,
        message_timeout_ms=settings.message_timeout_ms,
    )


def negotiate(body: bytes, settings: NsqSettings, current: Agreement) -> Agreement | bytes:
    """Answer IDENTIFY: what holds now, or the text of the error frame that ends the connection.

    What a client does not ask for stays as it is in `current`, since IDENTIFY may come several times. Without
    feature_negotiation the numbers count all the same, but nothing is switched on and the reply is a plain OK.
    """
    wishes = parse_wishes(body)
    if wishes is None:
        return problems.identify_failed(b"failed to decode JSON body")
    problem = _problem(wishes, settings)
    if problem:
        return problems.identify_failed(problem)
    agreement = _apply(wishes, current)
    if not wishes.feature_negotiation:
        return replace(agreement, reply=b"OK")
    deflate = settings.deflate and wishes.deflate
    snappy = settings.snappy and wishes.snappy
    if deflate and snappy:
        return problems.COMPRESSION_CONFLICT
    level = wishes.deflate_level if deflate and wishes.deflate_level > 0 else _DEFLATE_LEVEL
    agreement = replace(
        agreement,
        tls=settings.tls and wishes.tls_v1,
        snappy=snappy,
        deflate=deflate,
        deflate_level=min(level, settings.deflate_level_max),
    )
    return replace(agreement, reply=_reply(agreement, settings))


def _problem(wishes: Wishes, settings: NsqSettings) -> bytes:
    """Name the first number that is out of its range, in nsqd's order."""
    checks = (
        (b"heartbeat interval", wishes.heartbeat_interval, (-1, 0), _HEARTBEAT_INTERVAL_MS_MIN, settings.heartbeat_interval_ms_max),
        (
            b"output buffer timeout",
            wishes.output_buffer_timeout,
            (-1, 0),
            settings.output_buffer_timeout_ms_min,
            settings.output_buffer_timeout_ms_max,
        ),
        (b"output buffer size", wishes.output_buffer_size, (-1, 0), _OUTPUT_BUFFER_SIZE_BYTES_MIN, settings.output_buffer_size_bytes_max),
        (b"sample rate", wishes.sample_rate, (0,), 0, _SAMPLE_PERCENT_MAX),
        (b"msg timeout", wishes.msg_timeout, (0,), _MESSAGE_TIMEOUT_MS_MIN, settings.message_timeout_ms_max),
    )
    for name, value, special, value_min, value_max in checks:
        if value not in special and not value_min <= value <= value_max:
            return b"%b (%d) is invalid" % (name, value)
    return b""


def _apply(wishes: Wishes, current: Agreement) -> Agreement:
    """Put legal wishes in place of what holds; 0 asks for no change, -1 switches off."""
    timeout_ms = max(0, wishes.output_buffer_timeout or current.output_buffer_timeout_ms)
    if wishes.output_buffer_size == -1:
        timeout_ms = 0
    return replace(
        current,
        client_id=wishes.client_id,
        hostname=wishes.hostname,
        user_agent=wishes.user_agent,
        heartbeat_interval_ms=max(0, wishes.heartbeat_interval or current.heartbeat_interval_ms),
        output_buffer_size_bytes=abs(wishes.output_buffer_size) or current.output_buffer_size_bytes,
        output_buffer_timeout_ms=timeout_ms,
        sample_percent=wishes.sample_rate,
        message_timeout_ms=wishes.msg_timeout or current.message_timeout_ms,
    )


def _reply(agreement: Agreement, settings: NsqSettings) -> bytes:
    """Write the answer with its keys in nsqd's order, which tests of clients compare."""
    return json.dumps(
        {
            "max_rdy_count": settings.ready_count_max,
            "version": settings.version,
            "max_msg_timeout": settings.message_timeout_ms_max,
            "msg_timeout": agreement.message_timeout_ms,
            "tls_v1": agreement.tls,
            "deflate": agreement.deflate,
            "deflate_level": agreement.deflate_level,
            "max_deflate_level": settings.deflate_level_max,
            "snappy": agreement.snappy,
            "sample_rate": agreement.sample_percent,
            "auth_required": settings.auth_required,
            "output_buffer_size": agreement.output_buffer_size_bytes,
            "output_buffer_timeout": agreement.output_buffer_timeout_ms,
        },
        separators=(",", ":"),
    ).encode()
