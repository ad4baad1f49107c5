"""A work group: every message goes to one consumer at a time, until it is settled.

New messages come from the partitions' logs in order. Who has what is in each share's `LeaseWindow`; how leases end other
than by a settle is in `leases.py`, from which this goes on. Read next: `broker.py`.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core import journal_entries
from polymq.core.ahead import LEFT_OUT, Ahead
from polymq.core.group import Delivery, GroupKind, Subscription
from polymq.core.lanes import Lanes
from polymq.core.latency import DeliveryTimes, LatencyWindow
from polymq.core.lease_window import LeaseWindow
from polymq.core.leases import Leases, Run, refusal_code
from polymq.core.renewing import Renewing
from polymq.core.retiring import Retiring
from polymq.core.share import Share
from polymq.wire.expiry import expiry_of, leading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polymq.core.kernel import Kernel
    from polymq.core.policies import GroupPolicy
    from polymq.core.ports import Listener
    from polymq.core.topic import Partition, Topic
    from polymq.errors import RefusalCode
    from polymq.wire.slices import Slice

__all__ = ["WorkGroup"]

# Deliveries of a group in one dispatch: those of single messages (given back, sampled, ordered) cost about 10 us each.
_DELIVERIES_MAX: Final = 256
# Given-back messages in one dispatch that have to be looked for in the log, if they lie in no order: 0.1 ms each.
_LOOKUPS_MAX: Final = 32
# Given-back messages that one dispatch finds to be over or tried too often: 3 us each, and more if they are moved.
_RETIRED_MAX: Final = 1_000


class WorkGroup(Leases):
    """Consumers that share the work of a topic; spans all its partitions."""

    kind = GroupKind.WORK

    def __init__(self, kernel: Kernel, topic: Topic, name: str, *, group_id: int, starts: list[int], ephemeral: bool) -> None:
        super().__init__(kernel, group_id=group_id, ephemeral=ephemeral)
        self.name = name
        self.topic = topic
        self.paused = False
        self.shares = [
            Share(partition, LeaseWindow(partition.number, start, kernel.slots_dense))
            for partition, start in zip(topic.partitions, starts, strict=True)
        ]
        self.by_number.update((share.partition.number, share) for share in self.shares)
        # Scheduled messages below these offsets (by partition number) are not for this group: it was emptied.
        self.schedule_floors: dict[int, int] = {}
        # Who retires messages, where a policy asks for it, or they say themselves when they are over; and who appends them anew.
        self.retiring: Retiring | None = None
        self.renewing: Renewing | None = None
        self.dead_letter_count = 0
        self.expired_count = 0
        self.dropped_count = 0
        self.settled_count = 0
        self.counted_from = list(starts)
        self._owners = 0
        self._turn = 0
        self._deliveries_max = _DELIVERIES_MAX
        self._lookups_left = _LOOKUPS_MAX
        self._retired_left = _RETIRED_MAX
        self._share_turn = 0
        self._dirty_shares: set[Share] = set()
        self.latency: LatencyWindow | None = None
        if kernel.latency_window_ns:
            self.latency = LatencyWindow(kernel.latency_window_ns, kernel.monotonic_ns())
            for share in self.shares:
                share.times = DeliveryTimes()

    # -- consumers -------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener, *, lease_ns: int, sample_percent: int) -> Subscription:
        """Add a consumer with no credit yet."""
        self._owners += 1
        subscription = Subscription(self, listener, owner=self._owners, lease_ns=lease_ns, sample_percent=sample_percent)
        self.consumers.append(subscription)
        self.by_owner[subscription.owner] = subscription
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a consumer. What it has out comes back when its leases end, or at once if the policy says so."""
        if subscription.open:
            now = self.policy.requeue_on_close
            if self._kernel.requeue_on_close if now is None else now:
                self.take_all_back(subscription)
            subscription.open = False
            subscription.credit = 0
            self.consumers.remove(subscription)
            del self.by_owner[subscription.owner]

    def set_policy(self, policy: GroupPolicy) -> None:
        """Choose how messages are treated from now on."""
        self.policy = policy
        if policy.max_attempts:
            self.retire()
        if policy.ordered and self.lanes is None:
            self.lanes = Lanes(self._kernel, self)
            self._clear_waiting()
        elif not policy.ordered and self.lanes is not None:
            for message_id in sorted(self.lanes.waiting()):
                self.waiting.append(message_id, 0)
            self.lanes = None
        self._kernel.wake(self)

    def retire(self) -> Retiring:
        """Give who retires messages that are not to be delivered."""
        if self.retiring is None:
            self.retiring = Retiring(self._kernel, self)
        return self.retiring

    def renew(self) -> Renewing:
        """Give who appends messages anew before they are settled."""
        if self.renewing is None:
            self.renewing = Renewing(self._kernel, self)
        return self.renewing

    def expire_old(self) -> None:
        """Step over new messages that are too old, also when there is nobody to ask for them."""
        for share in self.shares:
            self.retire().expire(share)

    def step_over(self) -> None:
        """Step over new messages that are over by their own time, also when there is nobody to ask for them; some at a time."""
        for share in self.shares:
            self.retire().step_over(share)

    @property
    def has_given_back(self) -> bool:
        """Whether there is anything for `sweep` to look at."""
        return bool(self.waiting) or (self.lanes is not None and len(self.lanes) > 0)

    def sweep(self, effort: int) -> int:
        """Retire given-back messages, also when there is nobody to ask for them; gives what is left of `effort`."""
        if not self.policy.max_attempts and not self.topic.policy.ttl_ns:
            return effort
        return self.retire().sweep(effort)

    def awaken(self) -> None:
        """Have a dispatch look at the group."""
        self._kernel.wake(self)

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
        self._deliveries_max = max(1, _DELIVERIES_MAX // len(ready))
        self._lookups_left = _LOOKUPS_MAX
        self._retired_left = _RETIRED_MAX
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
        for _ in range(self._deliveries_max):
            if room_messages <= 0 or room_bytes <= 0:
                break
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
        if self.lanes is not None:
            return self.lanes.next(consumer, now_ns)
        if self.waiting:
            again = self._next_again(consumer, now_ns)
            if again is not None or self._retired_left <= 0:
                return again  # what is new comes behind what has not been looked at
        if consumer.sample_percent:
            count = self._sample(consumer)
        for _ in self.shares:
            share = self.shares[self._share_turn]
            piece = self.take_new(share, self._before_given_back(share, count), size_bytes) if count else None
            if len(self.shares) > 1:
                self._share_turn = (self._share_turn + 1) % len(self.shares)
            if piece is not None:
                assert piece.offset == share.window.next
                attempts = share.attempts
                share.window.lease(piece.count, consumer.owner, attempts)
                self._out(consumer, share, piece, attempts=attempts, now_ns=now_ns)
                return Delivery(consumer, piece, attempts)
        return None

    def _before_given_back(self, share: Share, count: int) -> int:
        """Say how many of `count` new messages come before the first that was given back: those that were there then."""
        if not self.waiting:
            return count
        message_id, barrier = self.waiting.peek()
        ahead = barrier - share.window.next
        return min(count, ahead) if ahead > 0 and message_id >> limits.OFFSET_BITS == share.partition.number else count

    def take_new(self, share: Share, count: int, size_bytes: int) -> Slice | None:
        """Read the next messages that were never handed out, and are not too old."""
        piece = share.take(count, size_bytes)
        if piece is None:
            return None
        if not self.topic.policy.ttl_ns or not self.retire().is_too_old(piece):
            now_ns = self._kernel.wall_ns()
            alike = leading(piece, now_ns)
            return piece if alike == piece.count else self.retire().fresh(share, piece, alike, now_ns)
        stepped = self.retire().expire(share)
        if stepped is None:
            # Nobody can say how many are too old; what has been read is delivered.
            return piece
        if stepped:
            # What has been read lies behind; the next dispatch goes on from there.
            self._kernel.wake(self)
        return None

    def sampled_out(self, consumer: Subscription, share: Share, offset: int) -> bool:
        """Drop a waiting message by lot, if its consumer wants a sample."""
        if not consumer.sample_percent or self._kernel.random.randrange(100) <= consumer.sample_percent:
            return False
        share.window.discard(offset)
        self.dirty(share)
        return True

    def _sample(self, consumer: Subscription) -> int:
        """Drop messages by lot until one is to be delivered; gives 1, or 0 if there are none left."""
        for share in self.shares:
            share.pass_left_out()
            while share.window.next < share.limit:
                if self._kernel.random.randrange(100) <= consumer.sample_percent:
                    self._share_turn = share.partition.index
                    return 1
                share.window.skip(1)
                self.dirty(share)
        return 0

    def _next_again(self, consumer: Subscription, now_ns: int) -> Delivery | None:
        """Take the first given-back message whose turn has come."""
        while self.waiting:
            message_id, barrier = self.waiting.peek()
            if message_id in self.gone:
                self.gone.remove(message_id)
                self.waiting.pop()
                continue
            share = self.by_number[message_id >> limits.OFFSET_BITS]
            offset = message_id & limits.OFFSET_MAX
            if share.window.next < barrier and share.window.next < share.limit and not share.partition.log.failed:
                # A log that failed hands out nothing new: what waits behind that would wait until the next start.
                return None
            if self._lookups_left <= 0 or self._retired_left <= 0:
                self._kernel.wake(self)
                return None
            before = share.lookups
            piece = share.take_back(offset)
            self._lookups_left -= share.lookups - before
            if piece is None:
                if share.back is not None and share.back.waiting:
                    return None
                self.waiting.pop()
                self.cannot_read(share, offset)
                continue
            if self.retiring is not None or expiry_of(piece):
                retired = self.retire().takes(share, offset, piece)
                if retired is None:
                    return None
                if retired:
                    self.waiting.pop()
                    self._retired_left -= 1
                    continue
            self.waiting.pop()
            if not self.sampled_out(consumer, share, offset):
                return self.give_again(consumer, share, offset, piece, now_ns)
        return None

    def cannot_read(self, share: Share, offset: int) -> None:
        """Put aside a waiting message that the store has not got."""
        if offset < share.partition.log.start:
            # Trimmed: it can never be delivered.
            share.window.discard(offset)
            self.dirty(share)
        else:
            # Damage or a fault of the disk. It is not lost, and not settled: the next start looks again.
            self.unreadable.append(share.partition.number << limits.OFFSET_BITS | offset)

    def give_again(self, consumer: Subscription, share: Share, offset: int, piece: Slice, now_ns: int) -> Delivery:
        """Lease one message that waits."""
        attempts = share.window.lease_again(offset, consumer.owner)
        self._out(consumer, share, piece, attempts=attempts, now_ns=now_ns)
        return Delivery(consumer, piece, attempts)

    def _out(self, consumer: Subscription, share: Share, piece: Slice, *, attempts: int, now_ns: int) -> None:
        """Note a delivery: its lease ends for all of it at once."""
        consumer.leased += piece.count
        consumer.delivered += piece.count
        if share.times is not None:
            floor = share.window.floor
            share.times.note(piece.view, piece.position, piece.end, piece.batch_left, piece.base_time_ns, piece.offset, piece.count, floor)
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
            failed = len(failures)
            looked_at = share.window.settle(ids, at, end - at, subscription.owner, failures)
            if self.latency is not None:
                self._measure(share, ids, at, at + looked_at, [index for index, _code in failures[failed:]])
            at += looked_at
            self.dirty(share)
        done = count - len(failures)
        # Whoever had room before was given all that there was, so there is something to do only for who had none.
        if subscription.leased >= subscription.credit or self.lanes is not None:
            self._kernel.wake(self)
        subscription.leased -= done
        subscription.settled += done
        self.settled_count += done
        if subscription.touched:
            self.forget_touched(subscription, ids, first, count)
        if self.lanes is not None:
            self.lanes.settled(ids, first, count)
        return [(index, refusal_code(code)) for index, code in failures]

    def _measure(self, share: Share, ids: memoryview, first: int, end: int, left_out: list[int]) -> None:
        """Note how long the messages of `ids[first:end]` took that were settled: all but the indexes `left_out`."""
        assert self.latency is not None
        assert share.times is not None
        histogram = self.latency.current(self._kernel.monotonic_ns())
        wall_ns = self._kernel.wall_ns()
        for index in left_out:
            share.times.settled(ids, first, index - first, wall_ns, histogram)
            first = index + 1
        share.times.settled(ids, first, end - first, wall_ns, histogram)

    def dirty(self, share: Share) -> None:
        """Have what was settled in a partition journaled at the end of the turn."""
        self._dirty_shares.add(share)
        self._kernel.has_settled(self)

    def journal_settled(self) -> None:
        """Write what was settled in this turn to the journal; forget it, if the group does not outlive the process."""
        for share in self._dirty_shares:
            ranges = share.window.drain()
            if ranges and not self.ephemeral:
                self._kernel.journal(journal_entries.settled(self.id, share.partition.number, ranges))
        self._dirty_shares.clear()

    # -- management ------------------------------------------------------------------------------------------------

    def _clear_waiting(self) -> None:
        self.waiting.clear()
        self.gone.clear()

    def empty(self) -> None:
        """Drop everything that the group has: waiting, deferred and out."""
        self.journal_settled()
        for share in self.shares:
            # What was appended and waits for its sync, too: it may be a deferred message that was acknowledged long ago.
            end = max(share.window.next, share.partition.given_end)
            share.window.empty(end)
            share.ahead.cut_below(end)
            if not self.ephemeral:
                self._kernel.journal(journal_entries.emptied(self.id, share.partition.number, end))
        self._clear_waiting()
        self.unreadable.clear()
        self.deferred.clear()
        self.deferred_count = 0
        if self.lanes is not None:
            self.lanes.reset()
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

    def released(self, partition: Partition, base_offset: int, runs: bytes) -> None:
        """Leave out those of the messages now appended at `base_offset` that were scheduled before an emptying."""
        floor = self.schedule_floors.get(partition.number, 0)
        if not floor:
            return
        for first, count in struct.iter_unpack("<qq", runs):
            if first < floor:
                self.drop(partition.index, base_offset, base_offset + min(count, floor - first))
            base_offset += count

    def drop(self, partition_index: int, first: int, end: int) -> None:
        """Leave out offsets [first, end) that the group has not come to yet."""
        share = self.shares[partition_index]
        first = max(first, share.window.next)
        if first >= end:
            return
        share.ahead.leave_out(first, end)
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

    def rewind(self, share: Share, offset: int) -> None:
        """Go on at an offset of one partition, back or forth: whatever is out, waits or is deferred there is forgotten."""
        self.journal_settled()
        partition = share.partition
        offset = min(max(offset, partition.log.start), partition.log.readable)
        number = partition.number
        for consumer in self.consumers:
            for run in [run for run in consumer.runs if run.share is share]:
                consumer.leased -= len(share.window.leased_in(run.first, run.messages, consumer.owner, run.attempts))
            consumer.runs = deque(run for run in consumer.runs if run.share is not share)
            for message_id in [message_id for message_id in consumer.touched if message_id >> limits.OFFSET_BITS == number]:
                del consumer.touched[message_id]
        self.waiting.keep(lambda message_id: message_id >> limits.OFFSET_BITS != number)
        self.gone = {message_id for message_id in self.gone if message_id >> limits.OFFSET_BITS != number}
        self.renewed = {message_id for message_id in self.renewed if message_id >> limits.OFFSET_BITS != number}
        self.unreadable = [message_id for message_id in self.unreadable if message_id >> limits.OFFSET_BITS != number]
        self.deferred.drop_between(number << limits.OFFSET_BITS, (number + 1) << limits.OFFSET_BITS)
        self.deferred_count = len(self.deferred)
        share.window = LeaseWindow(number, offset, self._kernel.slots_dense)
        share.ahead = Ahead()
        if share.times is not None:
            share.times = DeliveryTimes()
        if self.lanes is not None:
            self.lanes.reset()
        if not self.ephemeral:
            self._kernel.journal(journal_entries.rewound(self.id, number, offset))
        self._kernel.wake(self)

    def never_had(self, partition_index: int, count: int) -> None:
        """Do not count messages that were dropped before the topic gave them to its groups."""
        self.counted_from[partition_index] += count

    def close(self) -> None:
        """Be gone: nothing of it is woken again."""
        if self.retiring is not None:
            self.retiring.forget()
        if self.renewing is not None:
            self.renewing.forget()
        self._clear_waiting()
        self.deferred.clear()
        self.armed_ns = None
        for consumer in self.consumers:
            consumer.runs.clear()
            consumer.touches.clear()

    def restore(self, windows: dict[int, LeaseWindow], due: dict[int, int], ahead: dict[int, list[tuple[int, int, int]]]) -> None:
        """Recovery: take over what the journal says. `due` gives the due times of deferred messages by id."""
        for share in self.shares:
            number = share.partition.number
            for first, end, attempts in ahead.get(number, ()):
                if attempts == LEFT_OUT:
                    share.ahead.leave_out(first, end)
                else:
                    share.ahead.append(first, end, attempts)
            if number not in windows:
                continue
            share.window = windows[number]
            share.ahead.recall(share.window)
            share.pass_left_out()
            for offset, _state, attempts in list(share.window.unsettled()):
                message_id = number << limits.OFFSET_BITS | offset
                if message_id in due:
                    share.window.restore(offset, attempts, deferred=True)
                    self.defer(message_id, due[message_id])
                else:
                    self.waiting.append(message_id, 0)

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

    def grown(self, count: int) -> None:
        """Work through new partitions from their beginning."""
        for partition in self.topic.partitions[-count:]:
            share = Share(partition, LeaseWindow(partition.number, 0, self._kernel.slots_dense))
            if self.latency is not None:
                share.times = DeliveryTimes()
            self.shares.append(share)
            self.by_number[partition.number] = share
            self.counted_from.append(0)

    def first_needed(self, partition_index: int) -> int:
        """Give the first offset of a partition that may still be delivered."""
        return self.shares[partition_index].window.first_unsettled()

    @property
    def depth(self) -> int:
        """How many messages wait: never handed out, or given back."""
        given_back = len(self.waiting) - len(self.gone) + len(self.unreadable)
        if self.lanes is not None:
            given_back += len(self.lanes) - self.leased - self.deferred_count
        if len(self.shares) == 1:
            return self.shares[0].untouched + given_back
        return sum(share.untouched for share in self.shares) + given_back

    @property
    def unfinished(self) -> int:
        """How many messages are not done with, in whatever state."""
        moving = (len(self.retiring) if self.retiring is not None else 0) + len(self.renewed)
        return self.depth + self.leased + self.deferred_count + moving

    @property
    def leased(self) -> int:
        """How many messages are out."""
        return sum(share.window.leased for share in self.shares)

    @property
    def message_count(self) -> int:
        """How many messages became the group's since this process started or it was made.

        Scheduled ones count from the beginning, those as well that an emptying has left out: they are appended later.
        """
        pairs = zip(self.shares, self.counted_from, strict=True)
        return sum(max(0, share.partition.limit - start) for share, start in pairs) + self.topic.scheduled

    @property
    def scheduled(self) -> int:
        """How many scheduled messages will be the group's. Cost: O(1), or O(scheduled) once the group was emptied."""
        if not self.schedule_floors:
            return self.topic.scheduled
        schedules = [partition.schedule for partition in self.topic.partitions if partition.schedule is not None]
        return sum(schedule.count_from(self.schedule_floors.get(schedule.partition.number, 0)) for schedule in schedules)
