"""`/channel/replay`, which nsqd does not have: sets a channel back, or forth, to another place in its topic.

Exactly one argument says where: `from=start|end`, `offset=`, `time=` (a point in time) or `ago=` (ms before now).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.nsq.http_answers import ApiError, arguments, done, endpoint
from polymq.gateways.nsq.http_arguments import NS_PER_MS, argument, read_number
from polymq.gateways.nsq.http_inspection import until_there
from polymq.gateways.nsq.http_topics import topic_and_channel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.gateways.nsq.http_context import NsqHttp
    from polymq.wire.exchange import Request, Response, Retry

__all__ = ["read_time_ns", "replay_channel"]

_PLACES: Final = ("from", "offset", "time", "ago")
_ENDS: Final = {"start": 0, "end": limits.OFFSET_MAX}
_DIGITS: Final = re.compile(r"[0-9]+")
# A number below this is no time in ns of any message (it is in 1973) but one in seconds, ms or us: to take it as it
# stands would deliver everything again.
_TIME_NS_MIN: Final = 10**17
_NS_PER_US: Final = 1000
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def read_time_ns(text: str) -> int:
    """Read a point in time: ns since 1970, or RFC 3339 with a time zone; raises ValueError."""
    if _DIGITS.fullmatch(text):
        return read_number(text, _TIME_NS_MIN)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    since = moment - _EPOCH
    time_ns = ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * _NS_PER_US
    return min(max(time_ns, 0), limits.TIME_NS_MAX)


@endpoint
def replay_channel(request: Request, context: NsqHttp) -> Response | Retry:
    """POST /channel/replay?topic=&channel=&from=|offset=|time=|ago=&partition=: all partitions if none is named."""
    topic, channel = topic_and_channel(request)
    given = arguments(request)
    offset, time_ns = _place(given, context.clock.wall_ns())
    session = context.session
    partition: int | None = None
    if "partition" in given:
        partition = argument(given, "partition", read_number)
        if partition >= session.partition_count(topic):
            raise ApiError(400, "INVALID_PARTITION")

    def look() -> bool | None:
        try:
            return session.replay(topic, channel, offset=offset, time_ns=time_ns, partition=partition) or None
        except Refusal as refusal:
            if refusal.code is RefusalCode.STORE_FAILED:
                raise ApiError(503, "STORE_FAILED") from refusal
            raise

    return until_there(context, look, lambda _: done(session.journaled()))


def _place(given: Mapping[str, str], now_ns: int) -> tuple[int | None, int | None]:
    """Give the offset or the time that the query names; raises ApiError."""
    named = [name for name in _PLACES if name in given]
    if not named:
        raise ApiError(400, "MISSING_ARG_FROM")
    if len(named) > 1:
        raise ApiError(400, "CONFLICTING_ARGS")
    [name] = named
    if name == "time":
        return None, argument(given, name, read_time_ns)
    if name == "ago":
        return None, max(0, now_ns - argument(given, name, read_number) * NS_PER_MS)
    return argument(given, name, _read_end if name == "from" else _read_offset), None


def _read_offset(text: str) -> int:
    return read_number(text, 0, limits.OFFSET_MAX)


def _read_end(text: str) -> int:
    if text not in _ENDS:
        raise ValueError(text)
    return _ENDS[text]
