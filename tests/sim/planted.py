"""Bugs that the simulator has to find: each is planted into the real code for as long as a context lasts.

They are the mistakes that brokers are known for. Most are one line of a method; the rest of the broker runs as it is.
When a method that is patched here changes its name or its meaning, the test that finds the bug fails, which is how it
is noticed that the list has to follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polymq.core import journal_entries, recovery
from polymq.core.group import Delivery
from polymq.core.leases import Leases
from polymq.core.schedule import Schedule
from polymq.core.session import Session
from polymq.core.work_group import WorkGroup
from polymq.gateways.outbox import Outbox
from polymq.store import frames
from polymq.store import recovery as store_recovery
from polymq.store.chain import Chain
from polymq.store.committer import Committer
from polymq.store.journal import Journal
from polymq.store.log import Log
from polymq.store.runs import Walk
from polymq.store.store import Store
from polymq.wire.slices import MessageBatch
from tests.sim.planting import bug, every, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__: list[str] = []


# Durability


@bug
def acknowledge_before_append() -> Iterator[None]:
    """A publish is answered in its turn and written in the next one."""

    def make(commit: Any) -> Any:
        def late_commit(self: Store) -> None:
            late = self.__dict__.setdefault("_late", [])
            touched, self._touched[:] = list(self._touched), late
            for log in touched:
                assert log._ticket is not None
                log._ticket.resolve()
            self.__dict__["_late"] = [log for log in touched if log not in self._touched]
            commit(self)

        return late_commit

    with replaced(Store, "commit", make):
        yield


@bug
def answer_does_not_wait_for_its_commit() -> Iterator[None]:
    """Output behind a gate is sent although the gate is closed."""
    with replaced(Outbox, "_limit", lambda _: lambda self: self.end):
        yield


@bug
def missing_sync_before_an_fsync_answer() -> Iterator[None]:
    """A topic that is synced first answers as soon as the page cache has it."""

    def make(flush: Any) -> Any:
        def hasty_flush(self: Log) -> None:
            flush(self)
            for ticket in self._sync_tickets:
                ticket.resolve()

        return hasty_flush

    with replaced(Log, "flush", make):
        yield


@bug
def missing_sync_of_the_journal() -> Iterator[None]:
    """The committer syncs partitions and forgets the journal."""

    def make(capture: Any) -> Any:
        def partial_capture(self: Committer) -> Any:
            captures, _, sequence, unsynced, doomed = capture(self)
            return captures, ([], []), sequence, unsynced, doomed

        return partial_capture

    with replaced(Committer, "capture", make):
        yield


@bug
def readers_see_what_is_not_synced() -> Iterator[None]:
    """A topic that is synced first shows messages before that."""

    def make(flush: Any) -> Any:
        def open_flush(self: Log) -> None:
            flush(self)
            self.readable = self._written_end

        return open_flush

    with replaced(Log, "flush", make):
        yield


@bug
def failed_sync_is_taken_for_a_good_one() -> Iterator[None]:
    """The result of a sync is not looked at."""

    def make(finish: Any) -> Any:
        def blind_finish(self: Committer, captures: Any, results: Any, sequence: int, tickets: Any) -> None:
            finish(self, captures, [""] * len(results), sequence, tickets)

        return blind_finish

    with replaced(Committer, "finish", make):
        yield


# The log


@bug
def off_by_one_at_a_segment_roll() -> Iterator[None]:
    """A new segment says that it begins one record later than it does."""

    def make(roll: Any) -> Any:
        def shifted_roll(self: Chain, base_offset: int, **rest: Any) -> Any:
            first = self.active is None or not self.suffix.endswith("seg")
            return roll(self, base_offset if first else base_offset + 1, **rest)

        return shifted_roll

    with replaced(Chain, "roll", make):
        yield


@bug
def stale_batch_behind_a_cut_tail() -> Iterator[None]:
    """Recovery does not blank what it cuts off, and takes a batch for the next one if only its offset fits."""

    class Uncut:
        """A file that is not changed by recovery."""

        def __init__(self, file: Any) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def truncate(self, size: int) -> None:
            """Leave everything where it is."""

    def make_mismatch(mismatch: Any) -> Any:
        def trusting(self: Walk, header: Any) -> str | None:
            self.epoch = min(self.epoch, header.epoch)
            self.time_ns = min(self.time_ns, header.base_time_ns)
            found: str | None = mismatch(self, header)
            return found

        return trusting

    def make_segment(segment: Any) -> Any:
        return lambda self, file, base: segment(self, Uncut(file), base)

    with replaced(store_recovery._Recovery, "segment", make_segment), replaced(Walk, "_mismatch", make_mismatch):
        yield


@bug
def multi_publish_is_split() -> Iterator[None]:
    """A large MPUB becomes two batches, the second of which is written in the next turn."""

    def make(append: Any) -> Any:
        def split_append(self: Log, batch: MessageBatch, *, now_ns: int, origin: int) -> Any:
            bodies = batch.bodies()
            if len(bodies) < 2:
                return append(self, batch, now_ns=now_ns, origin=origin)
            self._batch_origin = -1 if self._batch_origin == -1 else self._batch_origin
            append(self, MessageBatch.of(bodies[:1]), now_ns=now_ns, origin=origin)
            return append(self, MessageBatch.of(bodies[1:]), now_ns=now_ns, origin=origin + 1)

        return split_append

    with replaced(Log, "append", make):
        yield


@bug
def damaged_batch_is_accepted() -> Iterator[None]:
    """Recovery believes a batch whose checksum is wrong."""
    from polymq.store import runs

    with replaced(runs, "check", lambda check: lambda data, at, end: None if _whole(data, at, end) else check(data, at, end)):
        yield


def _whole(data: Any, at: int, end: int) -> bool:
    size = int.from_bytes(data[at + 8 : at + 12], "little")
    return bytes(data[at + 4 : at + 8]) == b"PYMQ" and 80 < size <= end - at


# The journal


@bug
def lost_journal_entry() -> Iterator[None]:
    """One in twenty of the core's entries is not written."""
    strikes = every(20)

    def make(append: Any) -> Any:
        def leaky_append(self: Journal, entry: bytes) -> None:
            if entry[0] < 32 or not strikes():
                append(self, entry)

        return leaky_append

    with replaced(Journal, "append", make):
        yield


@bug
def torn_journal_frame_is_accepted() -> Iterator[None]:
    """Replay believes a frame whose checksum is wrong."""

    def make(check_frame: Any) -> Any:
        def trusting(data: bytes, at: int, segment_id: int) -> Any:
            found = check_frame(data, at, segment_id)
            if isinstance(found, str) and found.startswith("the checksum"):
                return frames.Frame._make(frames._HEADER.unpack_from(data, at))
            return found

        return trusting

    with replaced(frames, "check_frame", make):
        yield


@bug
def settle_is_not_journaled() -> Iterator[None]:
    """One in five turns forgets to write down what was settled."""
    strikes = every(5)

    def make(journal_settled: Any) -> Any:
        def forgetful(self: WorkGroup) -> None:
            if strikes():
                for share in self._dirty_shares:
                    share.window.drain()
                self._dirty_shares.clear()
            else:
                journal_settled(self)

        return forgetful

    with replaced(WorkGroup, "journal_settled", make):
        yield


@bug
def snapshot_forgets_what_is_out() -> Iterator[None]:
    """A snapshot has the place of a group, and nothing of what it has not settled before that."""

    def make(entries: Any) -> Any:
        return lambda self: (entry for entry in entries(self) if entry[0] != journal_entries.UNSETTLED)

    with replaced(WorkGroup, "entries", make):
        yield


# Leases


@bug
def lease_is_granted_twice() -> Iterator[None]:
    """Now and then a delivery goes to two consumers."""
    strikes = every(30)

    def make(serve: Any) -> Any:
        def generous(self: WorkGroup, consumer: Any, quota: int, deliveries: list[Delivery]) -> bool:
            before = len(deliveries)
            served: bool = serve(self, consumer, quota, deliveries)
            others = [other for other in self.consumers if other is not consumer and other.leased < other.credit]
            if served and others and strikes():
                given = deliveries[before]
                deliveries.append(Delivery(others[0], given.slice, given.attempts))
            return served

        return generous

    with replaced(WorkGroup, "_serve", make):
        yield


@bug
def lease_ends_early() -> Iterator[None]:
    """Leases last three quarters of what was agreed."""

    def make(subscribe: Any) -> Any:
        return lambda self, listener, *, lease_ns, **rest: subscribe(self, listener, lease_ns=lease_ns * 3 // 4, **rest)

    with replaced(WorkGroup, "subscribe", make):
        yield


@bug
def timeouts_are_ignored() -> Iterator[None]:
    """A lease that has run out is forgotten."""

    def make(_: Any) -> Any:
        def forget(self: Leases, subscription: Any, now_ns: int) -> None:
            while subscription.runs and subscription.runs[0].deadline_ns <= now_ns:
                subscription.runs.popleft()

        return forget

    with replaced(Leases, "expire", make):
        yield


@bug
def credit_off_by_one() -> Iterator[None]:
    """A consumer gets one message more than it asked for."""

    def make(credit: Any) -> Any:
        return lambda self, subscription, messages: credit(self, subscription, messages + 1)

    with replaced(Session, "credit", make):
        yield


@bug
def foreign_settle_is_accepted() -> Iterator[None]:
    """A FIN that was refused is not reported, as if anybody could settle anything."""
    with replaced(WorkGroup, "settle", lambda settle: lambda self, *rest: settle(self, *rest) and []):
        yield


@bug
def attempts_are_not_counted() -> Iterator[None]:
    """A redelivery says that it is the first."""

    def make(next_again: Any) -> Any:
        def first_again(self: WorkGroup, consumer: Any, now_ns: int) -> Delivery | None:
            again = next_again(self, consumer, now_ns)
            return None if again is None else Delivery(again.subscription, again.slice, 1)

        return first_again

    with replaced(WorkGroup, "_next_again", make):
        yield


# Later


@bug
def requeue_is_lost() -> Iterator[None]:
    """One in five deferred messages never falls due."""
    strikes = every(5)

    def make(defer: Any) -> Any:
        return lambda self, message_id, due_ns: None if strikes() else defer(self, message_id, due_ns)

    with replaced(Leases, "defer", make):
        yield


@bug
def requeue_forgets_its_delay_in_a_crash() -> Iterator[None]:
    """Replay gives back at once what was given back for later."""

    def make(restore: Any) -> Any:
        return lambda self, windows, due, skips: restore(self, windows, {}, skips)

    with replaced(WorkGroup, "restore", make):
        yield


@bug
def deferred_is_released_twice() -> Iterator[None]:
    """Replay does not know what was released."""
    with replaced(recovery, "_APPLY", lambda apply: {**apply, journal_entries.RELEASED_RUNS: lambda self, entry: None}):
        yield


@bug
def release_that_the_journal_lost_is_forgotten() -> Iterator[None]:
    """The start does not look at what the batches behind the checkpoint say."""

    def make(reconcile: Any) -> Any:
        def blind(log: Any, schedule_log: Any, waiting: Any, releases: Any) -> Any:
            unmarked = {offset: (target, due_ns, False) for offset, (target, due_ns, _has_note) in releases.items()}
            log.notes = []
            return reconcile(log, schedule_log, waiting, unmarked)

        return blind

    with replaced(recovery, "reconcile", make):
        yield


@bug
def deferred_is_lost_in_a_crash() -> Iterator[None]:
    """Replay takes a release for done although the append never came."""

    def make(reconcile: Any) -> Any:
        return lambda log, schedule_log, waiting, _releases: reconcile(log, schedule_log, waiting, {})

    with replaced(recovery, "reconcile", make):
        yield


@bug
def deferred_comes_early() -> Iterator[None]:
    """A deferred publish waits nine tenths of its delay."""

    def make(publish: Any) -> Any:
        def impatient(self: Schedule, batch: Any, *, due_ns: int, wall_ns: int, origin: int) -> Any:
            return publish(self, batch, due_ns=wall_ns + (due_ns - wall_ns) * 9 // 10, wall_ns=wall_ns, origin=origin)

        return impatient

    with replaced(Schedule, "publish", make):
        yield
