"""What a session reads by offset, and where its cursor groups are: a part of `session.py`, which says who may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.core.access import Action
from polymq.core.cursor_group import NOT_COMMITTED, CursorGroup
from polymq.core.group import GroupKind
from polymq.errors import Refusal, RefusalCode

if TYPE_CHECKING:
    from polymq.core.access import Principal
    from polymq.core.broker import Broker
    from polymq.core.group import Group
    from polymq.core.ports import Log
    from polymq.core.topic import Topic

__all__ = ["CursorDoor"]


class CursorDoor:
    """The methods of a Session that have to do with offsets. Every one raises Refusal."""

    if TYPE_CHECKING:
        broker: Broker
        principal: Principal

        def _authorize(self, action: Action, topic: str, group: str = "") -> None: ...
        def _authorize_look(self, topic: str, group: str = "") -> None: ...
        def _topic(self, name: str) -> Topic: ...
        def _group(self, topic: str, group: str) -> Group: ...
        def _ensure_group(self, topic: Topic, name: str, kind: GroupKind, *, ephemeral: bool) -> Group: ...

    def log(self, topic: str, partition: int) -> Log:
        """Give one partition for reading; `partition` counts within the topic."""
        self._authorize(Action.READ, topic)
        return self._log(topic, partition)

    def log_for(self, topic: str, group: str, partition: int) -> Log:
        """Give one partition for reading to a consumer of a cursor group, which need not be there."""
        self._authorize(Action.SUBSCRIBE, topic, group)
        return self._log(topic, partition)

    def _log(self, topic: str, partition: int) -> Log:
        return self._topic(topic).partition(partition).log

    def partition_count(self, topic: str) -> int:
        """Say how many partitions a topic has."""
        self._authorize_look(topic)
        return len(self._topic(topic).partitions)

    def place_of(self, number: int) -> tuple[str, int]:
        """Say of which topic a partition is, by its number, and which of the topic's; for who may read it."""
        found = self.broker.catalogue.owners.get(number)
        if found is None:
            raise Refusal(RefusalCode.MESSAGE_NOT_FOUND)
        topic, partition = found
        if self.broker.catalogue.topics.get((self.principal.namespace, topic.name)) is not topic:
            raise Refusal(RefusalCode.MESSAGE_NOT_FOUND)
        self._authorize(Action.READ, topic.name)
        return topic.name, partition.index

    def schedule_log(self, number: int) -> Log:
        """Give the log in which messages wait until they are due, or have waited, by its number; for who may read their topic."""
        found = self.broker.catalogue.schedules.get(number)
        if found is None or found.topic.namespace != self.principal.namespace:
            raise Refusal(RefusalCode.MESSAGE_NOT_FOUND)
        self._authorize(Action.READ, found.topic.name)
        return found.log

    def commit_offset(self, topic: str, group: str, partition: int, offset: int, *, ahead: bool = False) -> None:
        """Note where a cursor group goes on (NOT_COMMITTED: nowhere yet), behind the end only if it may be `ahead`; makes the group."""
        self.log_for(topic, group, partition)
        found = self._ensure_group(self._topic(topic), group, GroupKind.CURSOR, ephemeral=False)
        if not isinstance(found, CursorGroup):
            raise Refusal(RefusalCode.GROUP_NAME_INVALID, f"{group} is not a cursor group")
        found.commit(partition, offset, ahead=ahead)

    def committed(self, topic: str, group: str) -> list[int]:
        """Give a cursor group's committed offsets, one per partition; NOT_COMMITTED where there is none."""
        self._authorize(Action.READ, topic, group)
        found = self._group(topic, group)
        if not isinstance(found, CursorGroup):
            raise Refusal(RefusalCode.GROUP_NOT_FOUND, f"{group} is not a cursor group")
        return list(found.committed)

    def cursor(self, topic: str, group: str, partition: int) -> int:
        """Give what a cursor group has committed for one partition, for its consumers: NOT_COMMITTED, too, if there is no such group."""
        self.log_for(topic, group, partition)
        found = self._topic(topic).groups.get(group)
        if found is None:
            return NOT_COMMITTED
        if not isinstance(found, CursorGroup):
            raise Refusal(RefusalCode.GROUP_NAME_INVALID, f"{group} is not a cursor group")
        return found.committed[partition]
