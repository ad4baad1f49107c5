"""Planted bugs in what managing topics and channels promises, in retention, epochs and the log's HTTP port.

The rest of the list, and how it works, is in `planted.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polymq.admin import records
from polymq.core import journal_entries, recovery
from polymq.core.catalogue import Catalogue
from polymq.core.schedule import Schedule
from polymq.core.topic import Partition
from polymq.core.work_group import WorkGroup
from polymq.errors import StoreError, StoreFailed
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.store import store as store_module
from polymq.store.committer import Committer
from polymq.store.journal import Journal
from polymq.store.log import Log
from polymq.store.store import Store
from tests.sim.planting import bug, every, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__: list[str] = []


def ignored_in_replay(kind: int) -> Any:
    """Leave out one kind of entry when the journal is read."""
    return replaced(recovery, "_APPLY", lambda apply: {**apply, kind: lambda self, entry: None})


def not_journaled(operation: str) -> Any:
    """Leave one kind of change of the catalogue out of the journal."""
    needle = f'"op":"{operation}"'.encode()

    def make(append: Any) -> Any:
        def forgetful(self: Journal, entry: bytes) -> None:
            if entry[0] != journal_entries.CATALOGUE or needle not in entry:
                append(self, entry)

        return forgetful

    return replaced(Journal, "append", make)


# Pausing


@bug
def pause_of_a_channel_is_not_kept() -> Iterator[None]:
    """A restart resumes a paused channel."""
    with not_journaled("group_paused"):
        yield


@bug
def paused_channel_delivers_now_and_then() -> Iterator[None]:
    """One dispatch in ten does not look whether the channel is paused."""
    strikes = every(10)

    def make(dispatch: Any) -> Any:
        def careless(self: WorkGroup, deliveries: Any) -> bool:
            if not self.paused or not strikes():
                return bool(dispatch(self, deliveries))
            self.paused = False
            more = bool(dispatch(self, deliveries))
            self.paused = True
            return more

        return careless

    with replaced(WorkGroup, "dispatch", make):
        yield


@bug
def pause_of_a_topic_is_not_kept() -> Iterator[None]:
    """A restart gives the channels what a paused topic has kept."""

    def make(held: Any) -> Any:
        def resumed(self: Any, *, namespace: str, name: str, paused: bool, held: list[int | None]) -> None:
            topic = self.topics[namespace, name]
            topic.held = [None] * len(held) if paused else held

        return resumed

    with replaced(recovery._Replay, "op_topic_held", make):
        yield


# Emptying and deleting


@bug
def emptied_messages_come_back() -> Iterator[None]:
    """Replay does not know that a channel was emptied."""
    with ignored_in_replay(journal_entries.EMPTIED):
        yield


@bug
def emptied_messages_come_back_when_they_are_due() -> Iterator[None]:
    """Emptying a channel says nothing about what is scheduled for it."""
    with replaced(WorkGroup, "_leave_out_scheduled", lambda leave: lambda self, number, floor: None):
        yield


@bug
def emptying_forgets_what_is_being_synced() -> Iterator[None]:
    """Emptying a channel leaves what readers cannot see yet."""
    with replaced(Partition, "given_end", lambda given_end: Partition.limit):
        yield


@bug
def emptying_a_topic_takes_from_its_channels() -> Iterator[None]:
    """A topic that is emptied empties its channels, too."""

    def make(empty_topic: Any) -> Any:
        def thorough(self: Catalogue, topic: Any) -> None:
            empty_topic(self, topic)
            for group in topic.groups.values():
                group.empty()

        return thorough

    with replaced(Catalogue, "empty_topic", make):
        yield


@bug
def deleted_channel_comes_back() -> Iterator[None]:
    """The journal is not told that a channel was deleted."""
    with not_journaled("group_deleted"):
        yield


@bug
def deleted_topic_keeps_its_messages() -> Iterator[None]:
    """A topic that is deleted loses its channels, and is there again with its messages when somebody asks for it."""

    def make(delete_topic: Any) -> Any:
        def lazy(self: Catalogue, topic: Any) -> None:
            for group in list(topic.groups.values()):
                self.delete_group(group)

        return lazy

    with replaced(Catalogue, "delete_topic", make):
        yield


@bug
def ephemeral_channel_outlives_its_process() -> Iterator[None]:
    """An ephemeral channel is made like any other."""

    def make(create_group: Any) -> Any:
        return lambda self, topic, name, kind, *, ephemeral: create_group(self, topic, name, kind, ephemeral=False)

    with replaced(Catalogue, "create_group", make):
        yield


@bug
def ephemeral_topic_outlives_its_process() -> Iterator[None]:
    """A start keeps ephemeral topics."""

    def make(created: Any) -> Any:
        return lambda self, **fields: created(self, **{**fields, "ephemeral": False})

    with replaced(recovery._Replay, "op_topic_created", make):
        yield


# Deliveries


@bug
def order_is_broken_now_and_then() -> Iterator[None]:
    """What one turn hands out of a channel leaves in reverse."""
    strikes = every(5)

    def make(dispatch: Any) -> Any:
        def reversed_dispatch(self: WorkGroup, deliveries: Any) -> bool:
            before = len(deliveries)
            more = bool(dispatch(self, deliveries))
            if len(deliveries) > before + 1 and strikes():
                deliveries[before:] = [*deliveries[:before:-1], deliveries[before]]
            return more

        return reversed_dispatch

    with replaced(WorkGroup, "dispatch", make):
        yield


@bug
def messages_follow_close_wait() -> Iterator[None]:
    """CLS is answered and changes nothing."""

    def make(cls: Any) -> Any:
        def polite(self: NsqGateway, event: Any, effects: Any) -> None:
            assert self._subscription is not None
            credit = self._subscription.credit
            cls(self, event, effects)
            self._session.credit(self._subscription, credit)

        return polite

    handlers = dict(NsqGateway._handlers)
    event, original = next((event, handler) for event, handler in handlers.items() if handler.__name__ == "_cls")
    with replaced(NsqGateway, "_handlers", lambda _: {**handlers, event: make(original)}):
        yield


@bug
def deferred_comes_late() -> Iterator[None]:
    """A deferred publish waits three seconds longer."""

    def make(publish: Any) -> Any:
        def patient(self: Schedule, batch: Any, *, due_ns: int, **rest: Any) -> Any:
            return publish(self, batch, due_ns=due_ns + 3_000_000_000, **rest)

        return patient

    with replaced(Schedule, "publish", make):
        yield


# Retention, epochs, and the log's HTTP port


@bug
def retention_drops_what_a_group_needs() -> Iterator[None]:
    """A group is said to need only what it was not given yet."""

    def make(_: Any) -> Any:
        return lambda self, partition_index: self.shares[partition_index].window.next

    with replaced(WorkGroup, "first_needed", make):
        yield


@bug
def retention_is_impatient() -> Iterator[None]:
    """Messages go as soon as nobody needs them."""

    def make(retain: Any) -> Any:
        return lambda self, first_needed, *, now_ns, age_ns, size_bytes: retain(self, first_needed, now_ns=now_ns, age_ns=0, size_bytes=0)

    with replaced(Log, "retain", make):
        yield


@bug
def epoch_is_not_written_down() -> Iterator[None]:
    """Every start after another boot is in the second epoch."""
    with replaced(store_module, "encode_start", lambda encode: lambda start: encode(replace(start, epoch=1))):
        yield


@bug
def log_port_skips_a_record() -> Iterator[None]:
    """After what one segment gives, the log is read on one record too late."""

    def make(measured: Any) -> Any:
        def generous(view: memoryview, end: int) -> tuple[int, int]:
            size_bytes, offset = measured(view, end)
            return size_bytes, offset + 1

        return generous

    with replaced(records, "_measured", make):
        yield


@bug
def log_port_repeats_a_batch() -> Iterator[None]:
    """After what one segment gives, the log is now and then read on one record too early."""
    strikes = every(3)

    def make(measured: Any) -> Any:
        def nervous(view: memoryview, end: int) -> tuple[int, int]:
            size_bytes, offset = measured(view, end)
            return size_bytes, max(0, offset - 1) if offset < end and strikes() else offset

        return nervous

    with replaced(records, "_measured", make):
        yield


# What a disk that fails must lead to


@bug
def journal_goes_on_after_a_failed_sync() -> Iterator[None]:
    """The result of the journal's sync is not looked at."""

    def make(finish: Any) -> Any:
        def blind_finish(self: Committer, captures: Any, results: Any, sequence: int, tickets: Any) -> None:
            finish(self, captures, [*results[:-1], ""], sequence, tickets)

        return blind_finish

    with replaced(Committer, "finish", make):
        yield


@bug
def start_that_fails_does_not_say_why() -> Iterator[None]:
    """Whatever is wrong with the disk, the broker says only that it cannot start."""

    def make(start: Any) -> Any:
        def mumbling(self: Store, *rest: Any) -> None:
            try:
                start(self, *rest)
            except StoreError as error:
                raise StoreFailed("cannot start") from error

        return mumbling

    with replaced(Store, "_start", make):
        yield


@bug
def failed_sync_is_kept_to_itself() -> Iterator[None]:
    """A partition that cannot be synced takes no more writes, and nobody is told."""

    def make(health: Any) -> Any:
        return lambda self: [problem for problem in health(self) if "cannot be synced" not in problem]

    with replaced(Store, "health", make):
        yield
