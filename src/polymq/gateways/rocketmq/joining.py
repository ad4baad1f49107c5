"""What requests about groups have in common: reading their bodies, and whether a group may be joined.

To be in a group that reads a topic is to SUBSCRIBE to that topic in that group; what a group has sent back or given up
is the group's own, so its retry and dead-letter topics need the same of no topic in particular.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from polymq.core.access import Action
from polymq.errors import RemoteProtocolError
from polymq.gateways.rocketmq.answers import RequestProblem
from polymq.protocols.rocketmq.codes import ResponseCode
from polymq.protocols.rocketmq.names import group_of, group_problem, is_valid_topic, retry_topic, to_core
from polymq.rocketmq_limits import JSON_BODY_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.core.session import Session
    from polymq.protocols.rocketmq.events import Request

__all__ = ["read_body", "require_group"]

_Body = TypeVar("_Body")


def read_body(request: Request, parse: Callable[[bytes], _Body]) -> _Body:
    """Read a body in JSON; raises RequestProblem."""
    if len(request.body) > JSON_BODY_SIZE_BYTES_MAX:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"a body of more than {JSON_BODY_SIZE_BYTES_MAX} bytes")
    try:
        return parse(request.body)
    except RemoteProtocolError as error:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, error.reason) from None


def require_group(session: Session, group: str, topics: Iterable[str] = ()) -> None:
    """See that a group may be joined for these topics; raises RequestProblem, Refusal."""
    problem = group_problem(group)
    if problem is not None:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, problem)
    session.require(Action.SUBSCRIBE, to_core(retry_topic(group)), group)
    for topic in topics:
        if is_valid_topic(topic) and group_of(topic) != group:
            session.require(Action.SUBSCRIBE, to_core(topic), group)
