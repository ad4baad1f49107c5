"""Reading what is in the query of polymq's own endpoints: each argument is as it should be, or a 400 names it.

Durations are in ms, as everywhere in nsqd's HTTP interface; points in time are in ns since 1970, as the timestamp of
a message is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from polymq import limits
from polymq.gateways.nsq.http_answers import ApiError, arguments
from polymq.protocols.nsq.names import is_valid_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.wire.exchange import Request

__all__ = ["NS_PER_MS", "argument", "number", "page", "read_message_id", "read_number", "read_truth", "topic_argument"]

T = TypeVar("T")

NS_PER_MS: Final = 1_000_000
_MESSAGE_ID_MAX: Final = (1 << 63) - 1
_ID: Final = re.compile(r"[0-9a-f]{16}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}
# How many messages a page has if nobody says.
_PAGE_MESSAGES: Final = 100


def read_number(text: str, low: int = 0, high: int = limits.TIME_NS_MAX) -> int:
    """Read a whole number within bounds; raises ValueError."""
    if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
        raise ValueError(text)
    return int(text)


def read_truth(text: str) -> bool:
    """Read yes or no, in the words that nsqd takes; raises ValueError."""
    if text not in _TRUTH:
        raise ValueError(text)
    return _TRUTH[text]


def read_message_id(text: str) -> int:
    """Read the 16 hexadecimal digits that name a message; raises ValueError."""
    if not _ID.fullmatch(text) or int(text, 16) > _MESSAGE_ID_MAX:
        raise ValueError(text)
    return int(text, 16)


def argument(given: Mapping[str, str], name: str, read: Callable[[str], T], default: T | None = None) -> T:
    """Give one argument; raises ApiError if it is wrong, or missing where there is no default."""
    text = given.get(name)
    if text is None:
        if default is None:
            raise ApiError(400, f"MISSING_ARG_{name.upper()}")
        return default
    try:
        return read(text)
    except ValueError as error:
        raise ApiError(400, f"INVALID_{name.upper()}") from error


def number(given: Mapping[str, str], name: str, default: int | None, *, low: int = 0, high: int = limits.TIME_NS_MAX) -> int:
    """Give an argument that is a whole number within bounds; raises ApiError."""
    return argument(given, name, lambda text: read_number(text, low, high), default)


def page(given: Mapping[str, str]) -> tuple[int, int]:
    """Give the id behind which a page begins, and how many messages it may have; raises ApiError."""
    after = argument(given, "after", read_message_id, -1)
    return after, number(given, "count", _PAGE_MESSAGES, low=1, high=limits.PEEK_MESSAGES_MAX)


def topic_argument(request: Request) -> tuple[str, Mapping[str, str]]:
    """Give the name of the topic in the query, and all that the query has; raises ApiError."""
    given = arguments(request)
    topic = given.get("topic")
    if topic is None:
        raise ApiError(400, "MISSING_ARG_TOPIC")
    if not is_valid_name(topic.encode("utf-8")):
        raise ApiError(400, "INVALID_TOPIC")
    return topic, given
