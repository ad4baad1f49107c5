"""How leases end other than by a settle: given back, extended and run out, left behind. Half of a work group.

Given-back messages queue behind at most `_REQUEUE_DEPTH` of those that were there before them, as a queue would have
it. When leases run out is known per delivery (`Run`), not per message. The other half, handing out and settling, is
`work_group.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

from polymq import limits
from polymq.core import journal_entries
from polymq.core.deadlines import DueHeap
from polymq.core.lease_window import FAIL_NOT_OWNED
from polymq.core.pairs import PairQueue
from polymq.core.policies import NO_GROUP_POLICY
from polymq.errors import Refusal, RefusalCode

if TYPE_CHECKING:
    from polymq.core.group import Subscription
    from polymq.core.kernel import Kernel
    from polymq.core.lanes import Lanes
    from polymq.core.share import Share

__all__ = ["Leases", "Run", "refusal_code"]

# A given-back message waits behind this many at most: those behind a long backlog must not wait for all of it.
_REQUEUE_DEPTH: Final = 10_000
# What is among those that wait and does not is taken out when it is more than this and more than half.
_GONE_MIN: Final = 1024
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


class Leases(ABC):
    """What a work group's consumers have had and not settled."""

    def __init__(self, kernel: Kernel, *, group_id: int, ephemeral: bool) -> None:
        self.id = group_id
        self.ephemeral = ephemeral
        self.consumers: list[Subscription] = []
        self.by_owner: dict[int, Subscription] = {}
        self.by_number: dict[int, Share] = {}
        self.policy = NO_GROUP_POLICY
        # Who keeps keys apart, where the policy asks for it; then nothing is in `waiting`.
        self.lanes: Lanes | None = None
        # (message id, offset that new deliveries must reach first)
        self.waiting = PairQueue()
        # What is in `waiting` and waits no longer: whoever comes to it leaves it out. Nothing is looked for there.
        self.gone: set[int] = set()
        # What is being appended anew (`renewing.py`), out or not: if it comes back meanwhile, it waits for nobody.
        self.renewed: set[int] = set()
        # Given-back messages that the store could not read.
        self.unreadable: list[int] = []
        self.deferred = DueHeap()
        self.deferred_count = 0
        self.armed_ns: int | None = None
        self.requeue_count = 0
        self.timeout_count = 0
        self._kernel = kernel

    @abstractmethod
    def awaken(self) -> None:
        """Have a dispatch look at the group."""

    @abstractmethod
    def drop(self, partition_index: int, first: int, end: int) -> None:
        """Leave out offsets [first, end) that the group has not come to yet."""

    # -- giving back -----------------------------------------------------------------------------------------------

    def take_all_back(self, subscription: Subscription, *, foremost: bool = False) -> None:
        """End all leases of a consumer that leaves, or begins anew. `foremost`: what comes back goes before what is new."""
        for run in subscription.runs:
            for offset in run.share.window.leased_in(run.first, run.messages, subscription.owner, run.attempts):
                self.wait(run.share.partition.number << limits.OFFSET_BITS | offset, run.share, foremost=foremost)
                self.note_attempts(run.share, offset, run.share.window.put_back(offset, deferred=False))
        subscription.leased = 0
        subscription.runs.clear()
        subscription.touched.clear()
        self.awaken()

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
            self.defer(message_id, due_ns)
        else:
            self.wait(message_id, share)
        if not self.ephemeral:
            entry = journal_entries.requeued(self.id, share.partition.number, offset, attempts=attempts, due_ns=due_ns)
            self._kernel.journal(entry)
        self.awaken()

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

    def forget_touched(self, subscription: Subscription, ids: memoryview, first: int, count: int) -> None:
        """Drop the deadlines of messages that were just settled: going over them, or over the touched ones, whichever are fewer."""
        touched = subscription.touched
        if count <= len(touched):
            for index in range(first, first + count):
                touched.pop(ids[index], None)
            return
        for message_id in list(touched):
            share = self.by_number[message_id >> limits.OFFSET_BITS]
            if share.window.check(message_id & limits.OFFSET_MAX, subscription.owner):
                del touched[message_id]

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
            raise Refusal(refusal_code(code))
        return share, offset

    def wait_again(self, share: Share, offset: int) -> None:
        """Let a message wait that was to be retired, and could not be."""
        message_id = share.partition.number << limits.OFFSET_BITS | offset
        if self.lanes is not None:
            self.lanes.add(message_id)
        elif message_id in self.gone:
            self.gone.remove(message_id)
        else:
            self.waiting.append(message_id, 0)

    def wait(self, message_id: int, share: Share, *, foremost: bool = False) -> None:
        """Let a message wait for redelivery."""
        if message_id in self.renewed:
            if self.lanes is not None:
                self.lanes.leave(message_id)
            return
        if self.lanes is not None:
            self.lanes.back(message_id)
            return
        barrier = 0 if foremost else min(share.partition.limit, share.window.next + _REQUEUE_DEPTH)
        self.waiting.append(message_id, barrier)

    def leave_waiting(self, message_id: int) -> None:
        """Take a message that waits from among those that wait. Cost: O(1), amortised."""
        if self.lanes is not None:
            self.lanes.drop({message_id})
        elif message_id in self.unreadable:
            self.unreadable.remove(message_id)
        else:
            self.gone.add(message_id)
            if len(self.gone) > _GONE_MIN and 2 * len(self.gone) > len(self.waiting):
                self.waiting.keep(lambda each: each not in self.gone)
                self.gone.clear()

    def holder(self, owner: int) -> Subscription | None:
        """Find the consumer of a number, if it is there."""
        return self.by_owner.get(owner)

    def defer(self, message_id: int, due_ns: int) -> None:
        """Let a message wait until it is due (wall clock)."""
        self.deferred.push(due_ns, message_id)
        self.deferred_count += 1
        self._kernel.schedules.arm(self, due_ns)

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
                self.wait(message_id, share)
        if len(self.deferred):
            self._kernel.schedules.arm(self, self.deferred.first_due())
        self.awaken()

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
        self.awaken()

    def _take_back(self, subscription: Subscription, message_id: int, share: Share, offset: int) -> None:
        """End a lease that has run out."""
        if share.window.check(offset, subscription.owner):
            return
        self.note_attempts(share, offset, share.window.put_back(offset, deferred=False))
        subscription.leased -= 1
        self.timeout_count += 1
        self.wait(message_id, share)

    def note_attempts(self, share: Share, offset: int, attempts: int) -> None:
        """Journal how often a message was out that nobody gave back, where that is limited: a crash must not begin anew."""
        if self.policy.max_attempts and not self.ephemeral:
            self._kernel.journal(journal_entries.requeued(self.id, share.partition.number, offset, attempts=attempts, due_ns=0))


def refusal_code(failure: int) -> RefusalCode:
    """Say why a message could not be settled."""
    return RefusalCode.MESSAGE_NOT_OWNED if failure == FAIL_NOT_OWNED else RefusalCode.MESSAGE_NOT_LEASED
