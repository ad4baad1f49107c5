"""What a pull wants: the tags of its own subscription, or of its group's."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from polymq.core.access import Action
from polymq.errors import RemoteProtocolError
from polymq.gateways.rocketmq.answers import SEE, Answer, RequestProblem, failed
from polymq.protocols.rocketmq.bodies import parse_client_config, subscription_of
from polymq.protocols.rocketmq.codes import ResponseCode
from polymq.rocketmq_limits import (
    EXPRESSION_SIZE_MAX,
    FILTERS_REMEMBERED_MAX,
    FILTERS_REMEMBERED_SIZE_BYTES_MAX,
    TAGS_PER_SUBSCRIPTION_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.gateways.rocketmq.house import House
    from polymq.gateways.rocketmq.pulls import Lane
    from polymq.protocols.rocketmq.events import Request

__all__ = ["EVERYTHING", "NOT_LATEST", "Wanted", "check_filter", "wanted_of"]

TAG: Final = "TAG"
NOT_LATEST: Final = "the consumer's subscription not latest"
_NO_GROUP: Final = "the consumer's group info not exist" + SEE
_NO_SUBSCRIPTION: Final = "the consumer's subscription not exist" + SEE
_PARSE_FAILED: Final = "parse the consumer's subscription failed"
_KIND_SHOWN_MAX: Final = 64
# About as much memory as they take; of expressions with the hashes of their tags.
_ENTRY_SIZE_BYTES: Final = 300
_CHARACTER_SIZE_BYTES: Final = 4
_CODE_SIZE_BYTES: Final = 64


class Wanted:
    """Hashes of the tags that are wanted, as the encoder takes them; None: everything."""

    __slots__ = ("codes",)

    def __init__(self, codes: Iterable[int]) -> None:
        found = array("i", sorted(codes))
        self.codes: array[int] | None = found if len(found) else None


EVERYTHING: Final = Wanted(())


class Remembered:
    """Filters by expression, and by the hashes of a group's subscription: they can be worked out again."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._found: dict[str | frozenset[int], Wanted] = {}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: str | frozenset[int]) -> Wanted | None:
        """Give what has been worked out."""
        return self._found.get(key)

    def add(self, key: str | frozenset[int], wanted: Wanted) -> Wanted:
        """Remember a filter; nothing else, if there is no room."""
        size_bytes = _ENTRY_SIZE_BYTES + len(key) * (_CHARACTER_SIZE_BYTES if isinstance(key, str) else _CODE_SIZE_BYTES)
        if len(self._found) >= FILTERS_REMEMBERED_MAX or self.size_bytes + size_bytes > FILTERS_REMEMBERED_SIZE_BYTES_MAX:
            self._found.clear()
            self.size_bytes = 0
        self._found[key] = wanted
        self.size_bytes += size_bytes
        return wanted


_remembered: Final = Remembered()


def wanted_of(house: House, lane: Lane, client: RocketmqClient) -> Wanted | Answer | None:
    """Say what a pull wants; an answer if that cannot be known; None: it knows of a newer subscription than we do."""
    if lane.expression is not None:
        if isinstance(lane.expression, Wanted):
            return lane.expression
        kind, text = lane.expression
        found = _of_expression(text) if kind == TAG else _not_supported(kind)
        if isinstance(found, Wanted):
            # It may wait for long: its words are not needed any more.
            lane.expression = found
        return found
    subscription = house.members.subscription(lane.group, lane.topic, client)
    if subscription is None:
        text = _NO_SUBSCRIPTION if house.members.knows(lane.group) else _NO_GROUP
        return Answer(ResponseCode.SUBSCRIPTION_NOT_EXIST, text)
    if subscription.version < lane.version:
        return None
    if (subscription.expression_type or TAG) != TAG:
        return _not_supported(subscription.expression_type)
    codes = subscription.codes
    return _remembered.get(codes) or _remembered.add(codes, Wanted(codes)) if codes else EVERYTHING


def _of_expression(text: str) -> Wanted | Answer:
    if text == "*":
        return EVERYTHING
    found = _remembered.get(text)
    if found is not None:
        return found
    if len(text) > EXPRESSION_SIZE_MAX or text.count("||") >= TAGS_PER_SUBSCRIPTION_MAX:
        return Answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, _PARSE_FAILED)
    try:
        return _remembered.add(text, Wanted(subscription_of("", text).codes))
    except RemoteProtocolError:
        return Answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, _PARSE_FAILED)


def _not_supported(kind: str) -> Answer:
    return failed(f"The broker does not support consumer to filter message by {kind[:_KIND_SHOWN_MAX]}")


def check_filter(client: RocketmqClient, request: Request) -> Answer:
    """Say whether a consumer may filter as it wants to: by tags it may."""
    try:
        _client_id, group, subscription = parse_client_config(request.body)
    except RemoteProtocolError as error:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, error.reason) from None
    client.session.require(Action.SUBSCRIBE, client.house.topics.core_name(subscription.topic), group)
    if (subscription.expression_type or TAG) != TAG:
        return _not_supported(subscription.expression_type)
    return Answer()
