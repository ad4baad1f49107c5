"""A topic and its partitions: where messages go in. Who takes them out is in `work_group.py` and its siblings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.core.group import GroupKind
from polymq.core.policies import NO_TOPIC_POLICY
from polymq.errors import Refusal, RefusalCode, StoreFailed, StoreFull
from polymq.wire.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.core.group import Group
    from polymq.core.ports import Log, Ticket
    from polymq.core.schedule import Schedule
    from polymq.wire.records import Message
    from polymq.wire.slices import MessageBatch

__all__ = ["Partition", "Topic"]


class Partition:
    """One partition of a topic: its log, and the schedule of what is to be appended later.

    `held_from` is the first offset that no group may have yet: while there is no group, or since the topic was
    paused; None if nothing is held. What came before `old` (a time, the offset of the first message from then on) is
    known from the last answer of the log to such a question; `asked_ns` is one that it has not answered yet.
    """

    __slots__ = ("asked_ns", "held_from", "index", "last_time_ns", "log", "number", "old", "schedule")

    def __init__(self, index: int, log: Log) -> None:
        self.index = index
        self.number = log.number
        self.log = log
        self.schedule: Schedule | None = None
        self.held_from: int | None = None
        self.last_time_ns = 0
        self.asked_ns: int | None = None
        self.old = (0, 0)

    @property
    def limit(self) -> int:
        """The offset before which groups may read."""
        readable = self.log.readable
        return readable if self.held_from is None else min(readable, self.held_from)

    @property
    def given_end(self) -> int:
        """The offset before which messages are the groups', readable or not yet."""
        return self.log.end if self.held_from is None else min(self.log.end, self.held_from)

    @property
    def held(self) -> int:
        """How many messages no group may have yet."""
        return 0 if self.held_from is None else max(0, self.log.readable - max(self.held_from, self.log.start))

    def end_of_old(self, cutoff_ns: int, beyond: int) -> int | None:
        """Tell an offset before which all is earlier than a time, behind `beyond` if there is one that is.

        None: the disk is being read, ask again after a poll, with a later time if need be: a question stays the same
        until it is answered, as long as it is not for more than is wanted, and whoever asks shares the answer. Raises
        StoreFailed.
        """
        known_ns, end = self.old
        if known_ns <= cutoff_ns and end > beyond:
            return end
        asked_ns = cutoff_ns if self.asked_ns is None else min(self.asked_ns, cutoff_ns)
        # Whatever the log raises: the next question is a new one.
        self.asked_ns = None
        found = self.log.offset_at(asked_ns)
        if found is None:
            self.asked_ns = asked_ns
        else:
            self.old = asked_ns, found
        return found

    def append_records(self, records: memoryview, count: int, *, time_ns: int, origin: int) -> Ticket:
        """Stage encoded records as one batch whose time is `time_ns`, to which their own times are differences.

        Asserts that nothing later was appended. Raises Refusal.
        """
        assert time_ns >= self.last_time_ns
        self.last_time_ns = time_ns
        try:
            return self.log.append_records(records, count, now_ns=time_ns, origin=origin)
        except (StoreFull, StoreFailed) as error:
            code = RefusalCode.STORE_FULL if isinstance(error, StoreFull) else RefusalCode.STORE_FAILED
            raise Refusal(code, str(error)) from error

    def append(self, batch: MessageBatch, *, wall_ns: int, origin: int) -> Ticket:
        """Stage a batch for this turn's write; raises Refusal when the store cannot take it.

        The time of a record never goes backwards within a partition, whatever the wall clock does.
        """
        self.last_time_ns = max(self.last_time_ns, wall_ns)
        try:
            return self.log.append(batch, now_ns=self.last_time_ns, origin=origin)
        except StoreFull as error:
            raise Refusal(RefusalCode.STORE_FULL, str(error)) from error
        except StoreFailed as error:
            raise Refusal(RefusalCode.STORE_FAILED, str(error)) from error

    def append_run(self, records: memoryview, count: int, *, wall_ns: int, origin: int) -> Ticket:
        """Stage encoded records that have no time of their own; raises Refusal."""
        self.last_time_ns = max(self.last_time_ns, wall_ns)
        try:
            return self.log.append_run(records, count, now_ns=self.last_time_ns, origin=origin)
        except StoreFull as error:
            raise Refusal(RefusalCode.STORE_FULL, str(error)) from error
        except StoreFailed as error:
            raise Refusal(RefusalCode.STORE_FAILED, str(error)) from error

    def append_messages(self, messages: Sequence[Message], *, wall_ns: int, origin: int) -> Ticket:
        """Stage messages that have more than a body, as a batch of their own; raises Refusal."""
        self.last_time_ns = max(self.last_time_ns, wall_ns)
        try:
            return self.log.append_messages(messages, now_ns=self.last_time_ns, origin=origin)
        except StoreFull as error:
            raise Refusal(RefusalCode.STORE_FULL, str(error)) from error
        except StoreFailed as error:
            raise Refusal(RefusalCode.STORE_FAILED, str(error)) from error


class Topic:
    """A named set of partitions and the groups that read them."""

    __slots__ = (
        "_turn",
        "ephemeral",
        "expires",
        "groups",
        "message_bytes",
        "message_count",
        "name",
        "namespace",
        "partitions",
        "paused",
        "policy",
        "sync",
        "withheld",
    )

    def __init__(
        self,
        namespace: str,
        name: str,
        partitions: list[Partition],
        *,
        sync: bool = False,
        ephemeral: bool = False,
    ) -> None:
        assert partitions
        self.namespace = namespace
        self.name = name
        self.partitions = partitions
        self.sync = sync
        self.ephemeral = ephemeral
        self.paused = False
        self.policy = NO_TOPIC_POLICY
        # Some of its messages are known to end at a time of their own.
        self.expires = False
        self.withheld = False  # until all the groups are there that are to have its first messages
        self.groups: dict[str, Group] = {}
        # What was published since this process started, scheduled messages from the moment that they were accepted.
        self.message_count = 0
        self.message_bytes = 0
        self._turn = 0

    def partition(self, index: int) -> Partition:
        """Give one of the partitions; raises Refusal when there is none of that index."""
        if not 0 <= index < len(self.partitions):
            raise Refusal(RefusalCode.TOPIC_NOT_FOUND, f"topic {self.name} has partitions 0 … {len(self.partitions) - 1}")
        return self.partitions[index]

    def pick(self) -> Partition:
        """Choose where the next batch goes: in turn, passing over partitions that take no writes."""
        count = len(self.partitions)
        for _ in range(count):
            self._turn = (self._turn + 1) % count
            partition = self.partitions[self._turn]
            if not partition.log.failed:
                return partition
        raise Refusal(RefusalCode.STORE_FAILED, self.partitions[0].log.failed)

    def pick_for(self, key: bytes) -> Partition:
        """Choose where messages with a key go: always to the same partition, so that they keep their order."""
        return self.partitions[crc32c(key) % len(self.partitions)]

    def hold(self) -> None:
        """Keep what is published from here on from every group (paused, or nobody to give it to)."""
        for partition in self.partitions:
            if partition.held_from is None:
                partition.held_from = partition.log.end

    def release(self) -> None:
        """Give the groups everything."""
        for partition in self.partitions:
            partition.held_from = None

    @property
    def held_anywhere(self) -> bool:
        """Whether some partition keeps messages from the groups."""
        return any(partition.held_from is not None for partition in self.partitions)

    @property
    def has_work_group(self) -> bool:
        """Whether anybody works through the topic; only then is nothing held back for the first who will."""
        return any(group.kind is GroupKind.WORK for group in self.groups.values())

    @property
    def held(self) -> int:
        """How many messages no group may have yet."""
        return sum(partition.held for partition in self.partitions)

    @property
    def log_size_bytes(self) -> int:
        """How much of the disk the partitions' logs take."""
        return sum(partition.log.size_bytes for partition in self.partitions)

    @property
    def scheduled(self) -> int:
        """How many messages wait for their due time."""
        return sum(len(partition.schedule) for partition in self.partitions if partition.schedule is not None)

    @property
    def settled_to_readers(self) -> bool:
        """Whether readers can see all that was appended."""
        return all(partition.log.readable >= partition.log.end for partition in self.partitions)
