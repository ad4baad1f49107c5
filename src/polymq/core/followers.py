"""Who is told which topics and groups come and go: directories that others look into, and whoever prepares new topics.

Told in the middle of a change, so a follower only takes note; what it wants to do about it, it does in a later call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.core.group import Group, GroupKind
    from polymq.core.topic import Topic

__all__ = ["CatalogueListener", "Followers", "tell"]


class CatalogueListener(Protocol):
    """A follower. Groups that go with their topic are named before it."""

    def topic_created(self, namespace: str, topic: str) -> None: ...
    def topic_deleted(self, namespace: str, topic: str) -> None: ...
    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None: ...
    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None: ...


class Followers:
    """All followers, in the order in which they came."""

    def __init__(self) -> None:
        self._listeners: dict[CatalogueListener, None] = {}

    def add(self, listener: CatalogueListener) -> None:
        """Tell `listener` of every change from here on."""
        self._listeners[listener] = None

    def remove(self, listener: CatalogueListener) -> None:
        """Tell `listener` nothing more."""
        self._listeners.pop(listener, None)

    def topic_created(self, topic: Topic) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.topic_created(topic.namespace, topic.name)

    def topic_deleted(self, topic: Topic) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.topic_deleted(topic.namespace, topic.name)

    def group_created(self, group: Group) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.group_created(group.topic.namespace, group.topic.name, group.name, group.kind)

    def group_deleted(self, group: Group) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.group_deleted(group.topic.namespace, group.topic.name, group.name, group.kind)


def tell(listener: CatalogueListener, topics: Iterable[Topic]) -> None:
    """Tell one follower what there is already, as if it were being created."""
    for topic in topics:
        listener.topic_created(topic.namespace, topic.name)
        for group in topic.groups.values():
            listener.group_created(topic.namespace, topic.name, group.name, group.kind)
