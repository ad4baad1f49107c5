"""Messages that go on as new ones: to the end of their own topic with another lifetime, or to the dead letters, at a consumer's word.

The copy is appended first. The consumer keeps the old message until the copy is written: so a slot that is free says that the copy is
there, whatever happens to the process. If it comes back earlier it is handed out to nobody (`Leases.renewed`). The old one is settled when
the copy is durable (`Retiring.settle_later`): a crash in between leaves both, never none. What cannot be copied waits again.

To everybody but its group the copy is nothing new: other work groups leave it out, and by its mark (ATTRIBUTE_RENEWED) so does whoever reads
the log, unless the copy lasts longer than what is shown there. Whoever begins behind that knowledge gets copies as well: a group that is
replayed, or made while its topic is paused. To its group it is the same message: what it has been tried before is journaled before the copy is written, and goes on counting.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core import journal_entries
from polymq.core.lease_window import DEFERRED, LEASED, WAITING
from polymq.core.leases import Leases
from polymq.core.ports import TicketState
from polymq.core.reading import reach
from polymq.errors import Refusal, RefusalCode, StoreFailed, StoreFull
from polymq.wire.batch import ATTRIBUTE_RENEWED, ORIGIN_NONE, encode_message, read_messages

if TYPE_CHECKING:
    from polymq.core.kernel import Kernel
    from polymq.core.lease_window import LeaseWindow
    from polymq.core.ports import Log, Reader, Ticket
    from polymq.core.share import Share
    from polymq.core.topic import Topic
    from polymq.core.work_group import WorkGroup
    from polymq.wire.records import Message

__all__ = ["RENEWALS_MAX", "Renewing"]

# Requests of one group that wait for the disk, 200 bytes each. Who brings more is not to be read until there are fewer …
RENEWALS_MAX: Final = 10_000
# … and is refused when there are so many all the same.
_RENEWALS_END: Final = 100_000
# What a copy costs beside its bytes, in bytes that could have been copied.
_COPY_COST_BYTES: Final = 4096
# Groups that are told to leave a copy out, for what one more such cost.
_GROUPS_PER_COPY_COST: Final = 16
_REJECTED: Final = b"rejected"
# In a copy that readers of the log are not shown: when the message ends that they are shown for it, 0: never.
_SHOWN: Final = b"shown"
_NANOSECONDS: Final = struct.Struct("<q")


@dataclass(slots=True)
class _Request:
    """One message that a consumer has, or has just given back. `lifetime_ns` 0: for ever; None: it is a dead letter."""

    share: Share
    window: LeaseWindow
    offset: int
    owner: int
    attempts: int
    lifetime_ns: int | None
    # Once the copy is appended: what says that it is written, and where it is.
    ticket: Ticket | None = None
    log: Log | None = None
    end: int = 0


class Renewing:
    """One per group that has a use for it."""

    __slots__ = ("_appended", "_group", "_is_new", "_kernel", "_readers", "_wanted")

    def __init__(self, kernel: Kernel, group: WorkGroup) -> None:
        self._kernel = kernel
        self._group = group
        self._wanted: deque[_Request] = deque()
        self._appended: deque[_Request] = deque()
        self._is_new = False
        self._readers: dict[Share, Reader] = {}

    def __len__(self) -> int:
        return len(self._wanted) + len(self._appended)

    @property
    def is_crowded(self) -> bool:
        """Whether more are waiting than should."""
        return len(self) >= RENEWALS_MAX

    def want(self, share: Share, offset: int, lifetime_ns: int | None) -> bool:
        """Begin with a message that is out or waits; False if it is neither. Raises Refusal if there are far too many."""
        group = self._group
        state, attempts, owner = share.window.slot(offset)
        message_id = share.partition.number << limits.OFFSET_BITS | offset
        if state not in {LEASED, WAITING} or message_id in group.renewed:
            return False
        if len(self) >= _RENEWALS_END:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"{_RENEWALS_END} messages wait to be appended anew")
        if state == WAITING:
            if message_id in group.gone or group.retire().is_moving(message_id, share.window):
                return False  # on its way already
            group.leave_waiting(message_id)
        group.renewed.add(message_id)
        self._wanted.append(_Request(share, share.window, offset, owner, attempts, lifetime_ns))
        if len(self._wanted) == 1:
            self._append()
        self._kernel.moves(self)
        return True

    def settle(self) -> bool:
        """Let go of what is written by now, and append what has been read; True if nothing is left to do."""
        while self._appended:
            request = self._appended[0]
            assert request.ticket is not None
            if request.ticket.state is TicketState.PENDING:
                break
            self._appended.popleft()
            self._end(request, is_done=request.ticket.state is TicketState.DONE)
        if self._wanted:
            self._append()
        if self._is_new or (self._wanted and self._kernel.copy_room <= 0):
            # This turn's commit writes it, and the next turn is to know, or goes on. If it takes longer, the store says when it is done.
            self._is_new = False
            self._kernel.uncommitted = True
        return not self._wanted and not self._appended

    def forget(self) -> None:
        """The group is gone."""
        self._wanted.clear()
        self._appended.clear()
        self._group.renewed.clear()
        self._readers.clear()

    def _append(self) -> None:
        """Append copies as long as the disk need not be waited for, and this turn has room for more."""
        before = len(self._appended)
        while self._wanted and self._group.retire().has_room and self._kernel.copy_room > 0:
            request = self._wanted[0]
            if self._is_current(request) and not self._is_tried_enough(request):
                try:
                    message = self._read(request.share, request.offset)
                    if message is None:
                        break
                    self._kernel.copy_room -= len(message.body) + _COPY_COST_BYTES * (
                        1 + len(self._group.topic.groups) // _GROUPS_PER_COPY_COST
                    )
                    self._copy(request, message)
                except (Refusal, StoreFull, StoreFailed):
                    pass
            self._wanted.popleft()
            if request.ticket is None:
                self._end(request, is_done=False)
        self._is_new = self._is_new or len(self._appended) > before

    def _read(self, share: Share, offset: int) -> Message | None:
        """Read one message by a reader of our own, which is near it as a rule; None while the disk is read. Raises StoreFailed."""
        reader = self._readers.get(share)
        if reader is None:
            reader = self._readers[share] = share.partition.log.reader(offset)
        elif not reach(reader, offset):
            return None
        piece = reader.take(1, limits.SLICE_SIZE_BYTES_MAX)
        if piece is None and reader.waiting:
            return None
        if piece is None or piece.offset != offset:
            raise StoreFailed("a message that is out cannot be read")
        (message,) = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, 1, piece.end)
        return message

    def _is_current(self, request: _Request) -> bool:
        """Say whether the message is still where it was, or has come back since: then nobody else has got it."""
        if request.share.window is not request.window:
            return False
        state, attempts, owner = request.window.slot(request.offset)
        return state in {WAITING, DEFERRED} or (state == LEASED and (attempts, owner) == (request.attempts, request.owner))

    def _is_tried_enough(self, request: _Request) -> bool:
        """Say whether the message is not to go on: it waits again, and is retired when its turn has come."""
        most = self._group.policy.max_attempts
        return request.lifetime_ns is not None and 0 < most <= request.attempts

    def _copy(self, request: _Request, message: Message) -> None:
        """Append what a message becomes; raises Refusal, StoreFull, StoreFailed."""
        topic, share = self._group.topic, request.share
        is_shown = False
        if request.lifetime_ns is None:
            topic, copy = self._group.retire().letter(share, request.offset, request.attempts, message, _REJECTED)
        else:
            expiry_ns = self._kernel.wall_ns() + request.lifetime_ns if request.lifetime_ns else None
            copy, is_shown = _renewed(message, expiry_ns)
        partition = share.partition if topic is self._group.topic else topic.pick()
        log = partition.log
        partition.last_time_ns = now_ns = max(partition.last_time_ns, log.last_time_ns, self._kernel.wall_ns())
        mark = ATTRIBUTE_RENEWED if topic is self._group.topic and not is_shown else 0
        request.ticket = log.append_records(encode_message(copy, now_ns), 1, now_ns=now_ns, origin=ORIGIN_NONE, attributes=mark)
        request.log, request.end = log, log.end
        topic.expires = topic.expires or copy.expiry_ns is not None
        if topic is self._group.topic:
            self._carry_attempts(share, log.end, request.attempts)
            self._leave_out(topic, partition.index, log.end)
        else:
            topic.message_count += 1
            topic.message_bytes += len(copy.body)
            self._group.dead_letter_count += 1
        self._appended.append(request)
        self._kernel.appended(topic)

    def _carry_attempts(self, share: Share, end: int, attempts: int) -> None:
        """Let the copy before `end` be a message that was tried so often."""
        share.ahead.append(end - 1, end, attempts)
        if not self._group.ephemeral:
            row = journal_entries.integers((end - 1, end, attempts))
            self._kernel.journal(journal_entries.ahead(self._group.id, share.partition.number, row))

    def _leave_out(self, topic: Topic, partition_index: int, end: int) -> None:
        for group in topic.groups.values():
            if group is not self._group and isinstance(group, Leases):
                group.drop(partition_index, end - 1, end)

    def _end(self, request: _Request, *, is_done: bool) -> None:
        """Take a message whose copy is written from whoever has it; one that cannot be copied waits again."""
        group, share, offset = self._group, request.share, request.offset
        message_id = share.partition.number << limits.OFFSET_BITS | offset
        group.renewed.discard(message_id)
        if not self._is_current(request):
            return  # settled meanwhile: if there is a copy, that is another message by now
        state = request.window.slot(offset)[0]
        if state == LEASED:
            self._take_from_consumer(request, message_id, is_done=is_done)
        elif state == DEFERRED and is_done:
            request.window.wake(offset)
            group.deferred_count -= 1
        if is_done:
            assert request.log is not None
            if group.lanes is not None:
                group.lanes.leave(message_id)
            group.retire().settle_later(request.log, request.end, share, [offset])
        elif state == LEASED:
            group.wait(message_id, share)
        elif state == WAITING:
            group.wait_again(share, offset)
        group.awaken()

    def _take_from_consumer(self, request: _Request, message_id: int, *, is_done: bool) -> None:
        group = self._group
        attempts = request.window.put_back(request.offset, deferred=False)
        if not is_done:
            group.note_attempts(request.share, request.offset, attempts)
        is_requeue = is_done and request.lifetime_ns is not None
        group.requeue_count += is_requeue
        holder = group.holder(request.owner)
        if holder is not None:
            holder.leased -= 1
            holder.requeued += is_requeue
            holder.touched.pop(message_id, None)


def _renewed(message: Message, expiry_ns: int | None) -> tuple[Message, bool]:
    """Give a message another end, and say whether readers of the log are to see it: if it lasts longer than what they see already."""
    shown_ns = message.expiry_ns
    for origin, data in message.extras:
        if origin == ORIGIN_NONE and len(data) == len(_SHOWN) + _NANOSECONDS.size and data.startswith(_SHOWN):
            shown_ns = _NANOSECONDS.unpack(data[len(_SHOWN) :])[0] or None
    is_shown = shown_ns is not None and (expiry_ns is None or expiry_ns > shown_ns)
    extras = tuple(extra for extra in message.extras if extra[0] != ORIGIN_NONE)
    if not is_shown:
        extras = (*extras, (ORIGIN_NONE, _SHOWN + _NANOSECONDS.pack(shown_ns or 0)))
    return replace(message, expiry_ns=expiry_ns, extras=extras), is_shown
