"""`/topic/policy` and `/channel/policy`, which nsqd does not have: what is chosen about one topic or channel.

GET shows it, POST sets the fields that the query gives and leaves the others. Which fields there are, and how each is
read, are the two tables below. Read next: `core/policies.py`, which says what they mean.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from polymq import limits
from polymq.core.policies import Expired, Full, GroupPolicy, TopicPolicy, dead_letter_name
from polymq.gateways.nsq.http_answers import ApiError, arguments, endpoint, json
from polymq.gateways.nsq.http_arguments import NS_PER_MS, argument, read_number, read_truth, topic_argument
from polymq.gateways.nsq.http_topics import topic_and_channel
from polymq.protocols.nsq.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.gateways.nsq.http_context import NsqHttp
    from polymq.wire.exchange import Request, Response

__all__ = ["set_channel_policy", "set_topic_policy", "show_channel_policy", "show_topic_policy"]

Policy = TypeVar("Policy", TopicPolicy, GroupPolicy)

_NAMES: Final = ("topic", "channel")
_PLAIN: Final = re.compile(r"[a-z0-9_]{1,32}")
# What becomes of a consumer's messages when its connection ends, in the words of the broker's own setting.
_ON_DISCONNECT: Final = {"default": None, "wait": False, "requeue": True}


def _read_duration_ns(text: str) -> int:
    return read_number(text, 0, limits.TIME_NS_MAX // NS_PER_MS) * NS_PER_MS


def _read_attempts(text: str) -> int:
    return read_number(text, 0, limits.ATTEMPTS_MAX - 1)


def _read_dead_letter(text: str) -> str:
    """Read the name of a topic that any client can spell, and that stays; nothing stands for the default name."""
    name = text.encode("utf-8")
    if text and (not is_valid_name(name) or is_ephemeral(name)):
        raise ValueError(text)
    return text


def _read_on_disconnect(text: str) -> bool | None:
    if text not in _ON_DISCONNECT:
        raise ValueError(text)
    return _ON_DISCONNECT[text]


# Argument → field of the policy, and how it is read (ValueError: it cannot be).
_TOPIC_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "ttl": ("ttl_ns", _read_duration_ns),
    "expired": ("expired", Expired),
    "max_messages": ("messages_max", read_number),
    "max_bytes": ("bytes_max", read_number),
    "full": ("full", Full),
}
_CHANNEL_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "max_attempts": ("max_attempts", _read_attempts),
    "dead_letter": ("dead_letter", _read_dead_letter),
    "ordered": ("ordered", read_truth),
    "on_disconnect": ("requeue_on_close", _read_on_disconnect),
}


@endpoint
def show_topic_policy(request: Request, context: NsqHttp) -> Response:
    """GET /topic/policy?topic=."""
    topic, _given = topic_argument(request)
    return json(_shown_topic(topic, context.session.topic_policy(topic)))


@endpoint
def set_topic_policy(request: Request, context: NsqHttp) -> Response:
    """POST /topic/policy?topic=&ttl=&expired=&max_messages=&max_bytes=&full=: answers with what holds from now on."""
    topic, given = topic_argument(request)
    policy = _changed(context.session.topic_policy(topic), _TOPIC_FIELDS, given)
    context.session.set_topic_policy(topic, policy)
    return json(_shown_topic(topic, policy), context.session.journaled())


@endpoint
def show_channel_policy(request: Request, context: NsqHttp) -> Response:
    """GET /channel/policy?topic=&channel=."""
    topic, channel = topic_and_channel(request)
    return json(_shown_channel(topic, channel, context.session.group_policy(topic, channel)))


@endpoint
def set_channel_policy(request: Request, context: NsqHttp) -> Response:
    """POST /channel/policy?topic=&channel=&max_attempts=&dead_letter=&ordered=&on_disconnect=: as for topics."""
    topic, channel = topic_and_channel(request)
    policy = _changed(context.session.group_policy(topic, channel), _CHANNEL_FIELDS, arguments(request))
    if policy.dead_letter == topic:
        raise ApiError(400, "INVALID_DEAD_LETTER")
    context.session.set_group_policy(topic, channel, policy)
    return json(_shown_channel(topic, channel, policy), context.session.journaled())


def _changed(policy: Policy, fields: Mapping[str, tuple[str, Callable[[str], Any]]], given: Mapping[str, str]) -> Policy:
    """Take over what the query gives. A field that there is not is refused: who misspells it believes that it is set."""
    values: dict[str, Any] = {}
    for name in given:
        if name in fields:
            field, read = fields[name]
            values[field] = _value(given, name, read)
        elif name not in _NAMES:
            raise ApiError(400, f"UNKNOWN_ARG_{name.upper()}" if _PLAIN.fullmatch(name) else "UNKNOWN_ARG")
    if not values:
        raise ApiError(400, "MISSING_ARG")
    return replace(policy, **values)


def _value(given: Mapping[str, str], name: str, read: Callable[[str], Any]) -> Any:
    # In a tuple, because None is a value here and not a missing one.
    return argument(given, name, lambda text: (read(text),))[0]


def _shown_topic(topic: str, policy: TopicPolicy) -> dict[str, object]:
    return {
        "topic": topic,
        "ttl": -(-policy.ttl_ns // NS_PER_MS),
        "expired": policy.expired.value,
        "max_messages": policy.messages_max,
        "max_bytes": policy.bytes_max,
        "full": policy.full.value,
    }


def _shown_channel(topic: str, channel: str, policy: GroupPolicy) -> dict[str, object]:
    return {
        "topic": topic,
        "channel": channel,
        "max_attempts": policy.max_attempts,
        "dead_letter": policy.dead_letter,
        "dead_letter_topic": policy.dead_letter or dead_letter_name(topic, channel),
        "ordered": policy.ordered,
        "on_disconnect": next(word for word, value in _ON_DISCONNECT.items() if value is policy.requeue_on_close),
    }
