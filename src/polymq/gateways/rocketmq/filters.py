"""What a pull wants: the tags of its own subscription, or of its group's."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from polymq.core.access import Action
from polymq.errors import RemoteProtocolError
from polymq.gateways.rocketmq.answers import Answer, RequestProblem, failed
from polymq.protocols.rocketmq.bodies import parse_client_config, subscription_of
from polymq.protocols.rocketmq.codes import ResponseCode
from polymq.rocketmq_limits import FILTERS_REMEMBERED_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.gateways.rocketmq.house import House
    from polymq.gateways.rocketmq.pulls import Pull
    from polymq.protocols.rocketmq.events import Request

__all__ = ["NOT_LATEST", "Wanted", "check_filter", "wanted_of"]

TAG: Final = "TAG"
NOT_LATEST: Final = "the consumer's subscription not latest"
_NO_GROUP: Final = "the consumer's group info not exist"
_NO_SUBSCRIPTION: Final = "the consumer's subscription not exist"
_PARSE_FAILED: Final = "parse the consumer's subscription failed"


class Wanted:
    """Hashes of the tags that are wanted, as the encoder takes them; None: everything."""

    __slots__ = ("codes",)

    def __init__(self, codes: Iterable[int]) -> None:
        found = array("i", sorted(codes))
        self.codes: array[int] | None = found if len(found) else None


EVERYTHING: Final = Wanted(())
# By expression, and by the hashes of a group's subscription: they can be worked out again.
_by_expression: dict[str, Wanted] = {}
_by_codes: dict[frozenset[int], Wanted] = {}


def wanted_of(house: House, pull: Pull) -> Wanted | Answer | None:
    """Say what a pull wants; an answer if that cannot be known; None: it knows of a newer subscription than we do."""
    if pull.expression is not None:
        kind, text = pull.expression
        if kind != TAG:
            return _not_supported(kind)
        return _of_expression(text)
    subscription = house.members.subscription(pull.group, pull.topic, pull.client)
    if subscription is None:
        text = _NO_SUBSCRIPTION if house.members.knows(pull.group) else _NO_GROUP
        return Answer(ResponseCode.SUBSCRIPTION_NOT_EXIST, text)
    if subscription.version < pull.version:
        return None
    if (subscription.expression_type or TAG) != TAG:
        return _not_supported(subscription.expression_type)
    codes = subscription.codes
    if not codes:
        return EVERYTHING
    found = _by_codes.get(codes)
    if found is None:
        if len(_by_codes) >= FILTERS_REMEMBERED_MAX:
            _by_codes.clear()
        found = _by_codes[codes] = Wanted(codes)
    return found


def _of_expression(text: str) -> Wanted | Answer:
    if text == "*":
        return EVERYTHING
    found = _by_expression.get(text)
    if found is None:
        try:
            found = Wanted(subscription_of("", text).codes)
        except RemoteProtocolError:
            return Answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, _PARSE_FAILED)
        if len(_by_expression) >= FILTERS_REMEMBERED_MAX:
            _by_expression.clear()
        _by_expression[text] = found
    return found


def _not_supported(kind: str) -> Answer:
    return failed(f"The broker does not support consumer to filter message by {kind}")


def check_filter(client: RocketmqClient, request: Request) -> Answer:
    """Say whether a consumer may filter as it wants to: by tags it may."""
    try:
        _client_id, group, subscription = parse_client_config(request.body)
    except RemoteProtocolError as error:
        raise RequestProblem(ResponseCode.SUBSCRIPTION_PARSE_FAILED, error.reason) from None
    client.session.require(Action.SUBSCRIBE, client.house.topics.core_name(subscription.topic), group)
    if (subscription.expression_type or TAG) != TAG:
        return _not_supported(subscription.expression_type)
    return Answer()
