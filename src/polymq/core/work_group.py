"""A work group: every message goes to one consumer at a time, until it is settled.

New messages come from the partitions' logs in order; given-back ones queue behind at most `_REQUEUE_DEPTH` of those
that were there before them, as a queue would have it. Who has what is in each share's `LeaseWindow`; when leases run
out is known per delivery (`Run`), not per message. Read next: `broker.py`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from polymq import limits
from polymq.core import journal_entries
from polymq.core.ahead import LEFT_OUT, Ahead
from polymq.core.deadlines import DueHeap
from polymq.core.group import Delivery, GroupKind, Subscription
from polymq.core.lease_window import FAIL_NOT_OWNED, LeaseWindow
from polymq.core.reading import reach
from polymq.errors import Refusal, RefusalCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polymq.core.kernel import Kernel
    from polymq.core.ports import Listener, Reader
    from polymq.core.topic import Partition, Topic
    from polymq.wire.slices import Slice

__all__ = ["Run", "Share", "WorkGroup"]

# A given-back message waits behind this many at most: those behind a long backlog must not wait for all of it.
_REQUEUE_DEPTH: Final = 10_000
# Deferred messages woken in one step: a few milliseconds.
_WAKE_MAX: Final = 2_000


class Run(NamedTuple):
    """One delivery: `messages` offsets of one share from `first`, whose lease ends at `deadline_ns`."""

    deadline_ns: int
    share: Share
    first: int
    messages: int
    attempts: int

    def is_over(self, owner: int) -> bool:
        """Whether nothing of it is out any more."""
        return self.share.window.is_over(self.first, self.messages, owner, self.attempts)


class Share:
    """A work group's state in one partition."""

    __slots__ = ("ahead", "back", "partition", "reader", "window")

    def __init__(self, partition: Partition, window: LeaseWindow) -> None:
        self.partition = partition
        self.window = window
        self.reader: Reader | None = None
        self.back: Reader | None = None
        self.ahead = Ahead()

    @property
    def limit(self) -> int:
        """The offset before which messages may be handed out without looking further."""
        limit = self.partition.limit
        return self.ahead.boundary(self.window.next, limit) if self.ahead else limit

    @property
    def untouched(self) -> int:
        """How many messages were never handed out."""
        next_offset: int = self.window.next
        return max(0, self.partition.limit - next_offset - self.ahead.left_out)

    @property
    def attempts(self) -> int:
        """The attempt that handing out the next message is."""
        return min(self.ahead.attempts_at(self.window.next) + 1, limits.ATTEMPTS_MAX) if self.ahead else 1

    def pass_left_out(self) -> None:
        """Step over what is left out, if the group has come to it."""
        next_offset: int = self.window.next
        end = self.ahead.pass_to(next_offset)
        if end > next_offset:
            self.window.skip(end - next_offset)

    def take(self, count: int, size_bytes: int) -> Slice | None:
        """Read the next messages that were never handed out."""
        if self.ahead:
            self.pass_left_out()
        start = self.window.next
        count = min(count, self.limit - start)
        if count <= 0:
            return None
        if self.reader is None:
            self.reader = self.partition.log.reader(start)
        elif self.reader.offset != start and not reach(self.reader, start):
            return None
        return self.reader.take(count, size_bytes)

    def take_back(self, offset: int) -> Slice | None:
        """Read one message that was handed out before; None while the disk is read."""
        if self.back is None:
            self.back = self.partition.log.reader(offset)
        elif self.back.offset != offset:
            self.back.seek(offset)
        piece = self.back.take(1, limits.SLICE_SIZE_BYTES_MAX)
        return piece if piece is None or piece.offset == offset else None

    @property
    def waiting_for_disk(self) -> bool:
        """Whether a read is under way."""
        return (self.reader is not None and self.reader.waiting) or (self.back is not None and self.back.waiting)


class WorkGroup:
    """Consumers that share the work of a topic; spans all its partitions."""

    kind = GroupKind.WORK

    def __init__(self, kernel: Kernel, topic: Topic, name: str, *, group_id: int, starts: list[int], ephemeral: bool) -> None:
        self.id = group_id
        self.name = name
        self.topic = topic
        self.ephemeral = ephemeral
        self.paused = False
        self.consumers: list[Subscription] = []
        self.shares = [
            Share(partition, LeaseWindow(partition.number, start, kernel.slots_dense))
            for partition, start in zip(topic.partitions, starts, strict=True)
        ]
        self.by_number = {share.partition.number: share for share in self.shares}
        # (message id, offset that new deliveries must reach first)
        self.waiting: deque[tuple[int, int]] = deque()
        # Given-back messages that the store could not read.
        self.unreadable: list[int] = []
        self.deferred = DueHeap()
        self.deferred_count = 0
        self.armed_ns: int | None = None
        # Scheduled messages below these offsets (by partition number) are not for this group: it was emptied.
        self.schedule_floors: dict[int, int] = {}
        self.requeue_count = 0
        self.timeout_count = 0
        self.counted_from = list(starts)
        self._kernel = kernel
        self._owners = 0
        self._turn = 0
        self._share_turn = 0
        self._dirty_shares: set[Share] = set()

    # -- consumers -------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener, *, lease_ns: int, sample_percent: int) -> Subscription:
        """Add a consumer with no credit yet."""
        self._owners += 1
        subscription = Subscription(self, listener, owner=self._owners, lease_ns=lease_ns, sample_percent=sample_percent)
        self.consumers.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a consumer. What it has out comes back when its leases end, as with the servers we stand in for."""
        if subscription.open:
            subscription.open = False
            subscription.credit = 0
            self.consumers.remove(subscription)

    # -- handing out -----------------------------------------------------------------------------------------------

    def dispatch(self, deliveries: list[Delivery]) -> bool:
        """Hand out what can be handed out, one share of a turn per consumer; True if there is more at once."""
        if self.paused:
            return False
        ready = [consumer for consumer in self.consumers if consumer.leased < consumer.credit and not consumer.held]
        if not ready:
            return False
        if len(ready) == 1:
            quota = limits.SLICE_MESSAGES_MAX
        else:
            # Whoever was first when something was there is last the next time.
            start = self._turn % len(ready)
            ready = ready[start:] + ready[:start]
            quota = max(1, -(-self.depth // len(ready)))
        more = served = False
        for consumer in ready:
            if self._serve(consumer, quota, deliveries):
                served = True
                more = more or consumer.ready
        self._turn += served
        return more

    def _serve(self, consumer: Subscription, quota: int, deliveries: list[Delivery]) -> bool:
        """Give one consumer up to its credit, its quota and a slice's bytes; False if nothing was there."""
        room_messages = min(quota, consumer.credit - consumer.leased)
        room_bytes = limits.SLICE_SIZE_BYTES_MAX
        now_ns = self._kernel.monotonic_ns()
        served = False
        while room_messages > 0 and room_bytes > 0:
            delivery = self._next(consumer, room_messages, room_bytes, now_ns)
            if delivery is None:
                break
            served = True
            piece = delivery.slice
            room_messages -= piece.count
            room_bytes -= piece.end - piece.position
            deliveries.append(delivery)
        if not served and any(share.waiting_for_disk for share in self.shares):
            self._kernel.wait_for_disk(self)
        return served

    def _next(self, consumer: Subscription, count: int, size_bytes: int, now_ns: int) -> Delivery | None:
        if self.waiting:
            again = self._next_again(consumer, now_ns)
            if again is not None:
                return again
        if consumer.sample_percent:
            count = self._sample(consumer)
        for _ in self.shares:
            share = self.shares[self._share_turn]
            piece = share.take(count, size_bytes) if count else None
            if len(self.shares) > 1:
                self._share_turn = (self._share_turn + 1) % len(self.shares)
            if piece is not None:
                assert piece.offset == share.window.next
                attempts = share.attempts
                share.window.lease(piece.count, consumer.owner, attempts)
                self._out(consumer, share, piece, attempts=attempts, now_ns=now_ns)
                return Delivery(consumer, piece, attempts)
        return None

    def _sample(self, consumer: Subscription) -> int:
        """Drop messages by lot until one is to be delivered; gives 1, or 0 if there are none left."""
        for share in self.shares:
            share.pass_left_out()
            while share.window.next < share.limit:
                if self._kernel.random.randrange(100) <= consumer.sample_percent:
                    self._share_turn = share.partition.index
                    return 1
                share.window.skip(1)
                self._dirty(share)
        return 0

    def _next_again(self, consumer: Subscription, now_ns: int) -> Delivery | None:
        """Take the first given-back message whose turn has come."""
        while self.waiting:
            message_id, barrier = self.waiting[0]
            share = self.by_number[message_id >> limits.OFFSET_BITS]
            offset = message_id & limits.OFFSET_MAX
            if share.window.next < barrier and share.window.next < share.limit:
                return None
            piece = share.take_back(offset)
            if piece is None:
                if share.back is not None and share.back.waiting:
                    return None
                self.waiting.popleft()
                if offset < share.partition.log.start:
                    # Trimmed: it can never be delivered.
                    share.window.discard(offset)
                    self._dirty(share)
                else:
                    # Damage or a fault of the disk. It is not lost, and not settled: the next start looks again.
                    self.unreadable.append(message_id)
                continue
            self.waiting.popleft()
            attempts = share.window.lease_again(offset, consumer.owner)
            self._out(consumer, share, piece, attempts=attempts, now_ns=now_ns)
            return Delivery(consumer, piece, attempts)
        return None

    def _out(self, consumer: Subscription, share: Share, piece: Slice, *, attempts: int, now_ns: int) -> None:
        """Note a delivery: its lease ends for all of it at once."""
        consumer.leased += piece.count
        consumer.delivered += piece.count
        runs = consumer.runs
        while runs and runs[0].is_over(consumer.owner):
            runs.popleft()
        if len(runs) > consumer.runs_pruned_at:
            self._prune(consumer)
        runs.append(Run(now_ns + consumer.lease_ns, share, piece.offset, piece.count, attempts))
        if consumer.armed_ns is None:
            self._kernel.leases.arm(consumer, now_ns + consumer.lease_ns)

    def _prune(self, consumer: Subscription) -> None:
        """Forget deliveries of which nothing is out any more, when there are many."""
        alive = [run for run in consumer.runs if not run.is_over(consumer.owner)]
        consumer.runs = deque(alive)
        consumer.runs_pruned_at = max(1024, 2 * len(alive))

    # -- settling --------------------------------------------------------------------------------------------------

    def settle(self, subscription: Subscription, ids: memoryview, first: int, count: int) -> list[tuple[int, RefusalCode]]:
        """Settle `ids[first : first + count]`; gives (index, why) for each that could not be."""
        failures: list[tuple[int, int]] = []
        end = first + count
        at = first
        while at < end:
            share = self.by_number.get(ids[at] >> limits.OFFSET_BITS)
            if share is None:
                failures.append((at, 0))
                at += 1
                continue
            at += share.window.settle(ids, at, end - at, subscription.owner, failures)
            self._dirty(share)
        done = count - len(failures)
        subscription.leased -= done
        subscription.settled += done
        if subscription.touched:
            for index in range(first, end):
                subscription.touched.pop(ids[index], None)
        self._kernel.wake(self)
        return [(index, _refusal_code(code)) for index, code in failures]

    def requeue(self, subscription: Subscription, message_id: int, *, delay_ns: int) -> None:
        """Give one message back, for now or for later; raises Refusal."""
        share, offset = self._leased(subscription, message_id)
        attempts = share.window.put_back(offset, deferred=delay_ns > 0)
        subscription.leased -= 1
        subscription.requeued += 1
        subscription.touched.pop(message_id, None)
        self.requeue_count += 1
        due_ns = self._kernel.wall_ns() + delay_ns if delay_ns > 0 else 0
        if due_ns:
            self._defer(message_id, due_ns)
        else:
            self._wait(message_id, share)
        if not self.ephemeral:
            entry = journal_entries.requeued(self.id, share.partition.number, offset, attempts=attempts, due_ns=due_ns)
            self._kernel.journal(entry)
        self._kernel.wake(self)

    def extend(self, subscription: Subscription, message_id: int, *, lease_ns: int, lease_ns_max: int) -> None:
        """Start the lease of one message anew, at most to `lease_ns_max` after its delivery; raises Refusal."""
        share, offset = self._leased(subscription, message_id)
        now_ns = self._kernel.monotonic_ns()
        known = subscription.touched.get(message_id)
        cap_ns = known[1] if known else self._delivered_ns(subscription, share, offset, now_ns) + lease_ns_max
        deadline_ns = min(now_ns + lease_ns, cap_ns)
        if known is None:
            subscription.touches.push(deadline_ns, message_id)
            self._kernel.leases.arm(subscription, deadline_ns)
        elif deadline_ns <= known[0]:
            return
        subscription.touched[message_id] = (deadline_ns, cap_ns)

    def _delivered_ns(self, subscription: Subscription, share: Share, offset: int, now_ns: int) -> int:
        """Say when a message that is out was delivered."""
        attempts = share.window.slot(offset)[1]
        for run in reversed(subscription.runs):
            if run.share is share and run.attempts == attempts and run.first <= offset < run.first + run.messages:
                return run.deadline_ns - subscription.lease_ns
        return now_ns

    def _leased(self, subscription: Subscription, message_id: int) -> tuple[Share, int]:
        """Find a message that this consumer has out; raises Refusal."""
        share = self.by_number.get(message_id >> limits.OFFSET_BITS)
        if share is None:
            raise Refusal(RefusalCode.MESSAGE_NOT_LEASED)
        offset = message_id & limits.OFFSET_MAX
        code = share.window.check(offset, subscription.owner)
        if code:
            raise Refusal(_refusal_code(code))
        return share, offset

    def _wait(self, message_id: int, share: Share) -> None:
        barrier = min(share.partition.limit, share.window.next + _REQUEUE_DEPTH)
        self.waiting.append((message_id, barrier))

    def _defer(self, message_id: int, due_ns: int) -> None:
        self.deferred.push(due_ns, message_id)
        self.deferred_count += 1
        self._kernel.schedules.arm(self, due_ns)

    def _dirty(self, share: Share) -> None:
        self._dirty_shares.add(share)
        self._kernel.has_settled(self)

    def journal_settled(self) -> None:
        """Write what was settled in this turn to the journal; forget it, if the group does not outlive the process."""
        for share in self._dirty_shares:
            ranges = share.window.drain()
            if ranges and not self.ephemeral:
                self._kernel.journal(journal_entries.settled(self.id, share.partition.number, ranges))
        self._dirty_shares.clear()

    # -- time ------------------------------------------------------------------------------------------------------

    def fire(self, now_ns: int) -> None:
        """Deferred messages may be due (wall clock); so many per step that a turn stays short."""
        for _ in range(_WAKE_MAX):
            if not len(self.deferred) or self.deferred.first_due() > now_ns:
                break
            message_id = self.deferred.pop()
            share = self.by_number[message_id >> limits.OFFSET_BITS]
            if share.window.wake(message_id & limits.OFFSET_MAX):
                self.deferred_count -= 1
                self._wait(message_id, share)
        if len(self.deferred):
            self._kernel.schedules.arm(self, self.deferred.first_due())
        self._kernel.wake(self)

    def expire(self, subscription: Subscription, now_ns: int) -> None:
        """Take back what `subscription` has kept too long (monotonic clock)."""
        runs, touched, touches = subscription.runs, subscription.touched, subscription.touches
        while runs and runs[0].deadline_ns <= now_ns:
            run = runs.popleft()
            for offset in run.share.window.leased_in(run.first, run.messages, subscription.owner, run.attempts):
                message_id = run.share.partition.number << limits.OFFSET_BITS | offset
                if message_id not in touched:
                    self._take_back(subscription, message_id, run.share, offset)
        while len(touches) and touches.first_due() <= now_ns:
            message_id = touches.pop()
            deadline_ns, _cap_ns = touched.get(message_id, (0, 0))
            if deadline_ns > now_ns:
                touches.push(deadline_ns, message_id)
            elif touched.pop(message_id, None) is not None:
                share = self.by_number[message_id >> limits.OFFSET_BITS]
                self._take_back(subscription, message_id, share, message_id & limits.OFFSET_MAX)
        while runs and runs[0].is_over(subscription.owner):
            runs.popleft()
        if runs:
            self._kernel.leases.arm(subscription, runs[0].deadline_ns)
        if len(touches):
            self._kernel.leases.arm(subscription, touches.first_due())
        self._kernel.wake(self)

    def _take_back(self, subscription: Subscription, message_id: int, share: Share, offset: int) -> None:
        """End a lease that has run out."""
        if share.window.check(offset, subscription.owner):
            return
        share.window.put_back(offset, deferred=False)
        subscription.leased -= 1
        self.timeout_count += 1
        self._wait(message_id, share)

    # -- management ------------------------------------------------------------------------------------------------

    def empty(self) -> None:
        """Drop everything that the group has: waiting, deferred and out."""
        self.journal_settled()
        for share in self.shares:
            end = max(share.window.next, share.partition.limit)
            share.window.empty(end)
            share.ahead.cut_below(end)
            if not self.ephemeral:
                self._kernel.journal(journal_entries.emptied(self.id, share.partition.number, end))
        self.waiting.clear()
        self.unreadable.clear()
        self.deferred.clear()
        self.deferred_count = 0
        for consumer in self.consumers:
            consumer.leased = 0
            consumer.runs.clear()
            consumer.touched.clear()
            consumer.touches.clear()
        for partition in self.topic.partitions:
            if partition.schedule is not None:
                self._leave_out_scheduled(partition.number, partition.schedule.log.end)

    def _leave_out_scheduled(self, number: int, floor: int) -> None:
        self.schedule_floors[number] = floor
        if not self.ephemeral:
            self._kernel.journal(journal_entries.schedule_floor(self.id, number, floor))

    def released(self, partition: Partition, base_offset: int, offsets: list[int]) -> None:
        """Leave out those of the messages now appended at `base_offset` that were scheduled before an emptying."""
        floor = self.schedule_floors.get(partition.number, 0)
        for index, offset in enumerate(offsets):
            if offset < floor:
                self.drop(partition.index, base_offset + index, base_offset + index + 1)

    def drop(self, partition_index: int, first: int, end: int) -> None:
        """Leave out offsets [first, end) that the group has not come to yet."""
        share = self.shares[partition_index]
        first = max(first, share.window.next)
        if first >= end:
            return
        share.ahead.append(first, end, LEFT_OUT)
        if not self.ephemeral:
            self._kernel.journal(journal_entries.dropped(self.id, share.partition.number, first, end))

    def foresee(self, partition_index: int, ranges: Iterable[tuple[int, int, int]]) -> None:
        """Learn of offsets that the group has not come to: (first, end, attempts so far or LEFT_OUT), in order."""
        share = self.shares[partition_index]
        assert not share.ahead
        share.ahead.extend(ranges)
        if not self.ephemeral:
            for piece in share.ahead.pieces():
                self._kernel.journal(journal_entries.ahead(self.id, share.partition.number, piece))

    def close(self) -> None:
        """Be gone: nothing of it is woken again."""
        self.waiting.clear()
        self.deferred.clear()
        self.armed_ns = None
        for consumer in self.consumers:
            consumer.runs.clear()
            consumer.touches.clear()

    def restore(self, windows: dict[int, LeaseWindow], due: dict[int, int], ahead: dict[int, list[tuple[int, int, int]]]) -> None:
        """Recovery: take over what the journal says. `due` gives the due times of deferred messages by id."""
        for share in self.shares:
            number = share.partition.number
            share.ahead.extend(ahead.get(number, ()))
            if number not in windows:
                continue
            share.window = windows[number]
            share.ahead.recall(share.window)
            for offset, _state, attempts in list(share.window.unsettled()):
                message_id = number << limits.OFFSET_BITS | offset
                if message_id in due:
                    share.window.restore(offset, attempts, deferred=True)
                    self._defer(message_id, due[message_id])
                else:
                    self.waiting.append((message_id, 0))

    def entries(self) -> Iterator[bytes]:
        """Give the journal entries that rebuild the group's place in every partition."""
        for share in self.shares:
            window, number = share.window, share.partition.number
            yield journal_entries.lease_state(self.id, number, next_offset=window.next, floor=window.floor)
            for pairs in window.unsettled_pairs():
                yield journal_entries.unsettled(self.id, number, pairs)
            for piece in share.ahead.pieces():
                yield journal_entries.ahead(self.id, number, piece)
        for pairs in self.deferred.pairs():
            yield journal_entries.deferred(self.id, pairs)
        for number, floor in self.schedule_floors.items():
            yield journal_entries.schedule_floor(self.id, number, floor)

    def first_needed(self, partition_index: int) -> int:
        """Give the first offset of a partition that may still be delivered."""
        return self.shares[partition_index].window.first_unsettled()

    @property
    def depth(self) -> int:
        """How many messages wait: never handed out, or given back."""
        if len(self.shares) == 1:
            return self.shares[0].untouched + len(self.waiting) + len(self.unreadable)
        return sum(share.untouched for share in self.shares) + len(self.waiting) + len(self.unreadable)

    @property
    def leased(self) -> int:
        """How many messages are out."""
        return sum(share.window.leased for share in self.shares)

    @property
    def message_count(self) -> int:
        """How many messages became the group's since this process started or it was made."""
        pairs = zip(self.shares, self.counted_from, strict=True)
        return sum(max(0, share.partition.limit - start) for share, start in pairs) + self.scheduled

    @property
    def scheduled(self) -> int:
        """How many scheduled messages will be the group's. Cost: O(1), or O(scheduled) once the group was emptied."""
        if not self.schedule_floors:
            return self.topic.scheduled
        schedules = [partition.schedule for partition in self.topic.partitions if partition.schedule is not None]
        return sum(schedule.count_from(self.schedule_floors.get(schedule.partition.number, 0)) for schedule in schedules)


def _refusal_code(failure: int) -> RefusalCode:
    return RefusalCode.MESSAGE_NOT_OWNED if failure == FAIL_NOT_OWNED else RefusalCode.MESSAGE_NOT_LEASED
