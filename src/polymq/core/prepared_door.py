"""How a session prepares batches that nobody sees until they are committed: a part of `session.py`, which says who may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq import limits
from polymq.core.access import Action
from polymq.errors import Refusal, RefusalCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.core.access import Principal
    from polymq.core.broker import Broker
    from polymq.core.ports import Ticket
    from polymq.core.prepared import Named, Staged
    from polymq.core.topic import Topic

__all__ = ["PreparedDoor"]


class PreparedDoor:
    """The methods of a Session that have to do with prepared batches. Every one raises Refusal; see `prepared.py`."""

    if TYPE_CHECKING:
        broker: Broker
        principal: Principal

        def _authorize(self, action: Action, topic: str, group: str = "") -> None: ...
        def _refuse_when_stopping(self) -> None: ...
        def _ensure(self, name: str, *, partitions: int | None = None) -> Topic: ...

    def prepare(self, sink: str, part: str, request: int, staged: Sequence[Staged]) -> Ticket:
        """Store what a task has written; whoever prepares has to be allowed to publish, and makes the topics."""
        self._refuse_when_stopping()
        for name in (sink, part):
            if not name or len(name.encode()) > limits.NAME_SIZE_BYTES_MAX:
                raise Refusal(RefusalCode.GROUP_NAME_INVALID, "a sink's or a part's name is empty or too long")
        for topic in {topic: None for topic, *_rest in staged}:
            self._ready(topic)
        return self.broker.prepared.stage((self.principal.namespace, sink), part, request, staged)

    def prepared_topic(self, topic: str) -> int:
        """Make a topic that is to be prepared for, if it is not there, and say how many partitions it has."""
        return len(self._ready(topic).partitions)

    def commit_prepared(self, sink: str, batch: int, named: Sequence[Named], *, once: bool) -> bool:
        """Make parts visible, or look how far that is: True once it is done, durably."""
        key = self.principal.namespace, sink
        return self.broker.prepared.commit(key, batch, named, once=once, authorize=self._ready)

    def abort_prepared(self, sink: str, parts: Sequence[str]) -> None:
        """Drop parts that will not be committed."""
        self.broker.prepared.abort((self.principal.namespace, sink), parts)

    def _ready(self, topic: str) -> Topic:
        self._authorize(Action.PUBLISH, topic)
        return self._ensure(topic)
