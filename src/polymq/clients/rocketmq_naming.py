"""What topics and groups are called: in the program without, on the wire with their namespace; and what no broker would take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from polymq.errors import LocalProtocolError, RemoteProtocolError
from polymq.protocols.rocketmq.bodies import Subscription, subscription_of
from polymq.protocols.rocketmq.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, group_problem, is_system_topic, topic_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["checked_group", "subscribed", "with_namespace", "without_namespace"]

# Begins and ends what a broker keeps for a group: the namespace is that of the group.
_PREFIXES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


def with_namespace(namespace: str, name: str) -> str:
    """Write a topic or a group as it is called on the wire: `namespace%name`, `%RETRY%namespace%name`."""
    if not namespace or is_system_topic(name):
        return name
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix + with_namespace(namespace, name.removeprefix(prefix))
    return name if name.startswith(f"{namespace}%") else f"{namespace}%{name}"


def without_namespace(namespace: str, name: str) -> str:
    """Write a topic or a group as the program calls it."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix + without_namespace(namespace, name.removeprefix(prefix))
    return name.removeprefix(f"{namespace}%") if namespace else name


def checked_group(group: str, namespace: str) -> str:
    """Write a group as it is called on the wire; raises LocalProtocolError when none can be called that."""
    name = with_namespace(namespace, group)
    problem = group_problem(name)
    if problem is not None:
        raise LocalProtocolError(problem)
    return name


def subscribed(topics: str | Sequence[str] | Mapping[str, str], namespace: str) -> dict[str, Subscription]:
    """Read what is subscribed to: topics, or topics with tag expressions; raises LocalProtocolError."""
    if isinstance(topics, str):
        pairs = [(topics, "*")]
    elif isinstance(topics, Mapping):
        pairs = list(topics.items())
    else:
        pairs = [(each, "*") for each in topics]
    version = time.time_ns() // 1_000_000
    found = {}
    for topic, expression in pairs:
        name = with_namespace(namespace, topic)
        problem = topic_problem(name)
        if problem is not None:
            raise LocalProtocolError(f"{topic!r}: {problem}")
        try:
            found[name] = subscription_of(name, expression, version)
        except RemoteProtocolError as error:
            raise LocalProtocolError(f"{topic!r}: {error}") from error
    return found
