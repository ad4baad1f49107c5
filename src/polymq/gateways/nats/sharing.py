"""One NATS client's memberships in work groups: it shares their work with NSQ's channels and PHPMQ's queues of the same name.

    SUB orders workers 1      a member of the work group `workers` of the topic `orders`, if the settings name `workers`
    MSG orders 1 5, PING      what the group gives it, and a PING behind each piece
    PONG                      the client has read the piece: its messages are settled

NATS has no acknowledgements, but a client answers each PING in its place, so a PONG says that its library has read all that stood before. What
is not read when the client leaves goes to another member. What it has read and not handled is gone: nobody is told of that.

Messages are objects here: some ten thousand a second. Nothing of this is in the way of other subscriptions. ADR 0027 has the reasons.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, Final

from polymq.core.group import GroupKind
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.effects import Send
from polymq.limits import NATS_MEMBERSHIPS_MAX, NATS_UNREAD_MESSAGES_MAX, OFFSET_BITS
from polymq.protocols.nats import problems
from polymq.protocols.nats.encode import PING, error_line
from polymq.protocols.nats.subjects import has_wildcards, is_valid_literal
from polymq.wire.batch import read_messages

if TYPE_CHECKING:
    from collections.abc import Collection

    from polymq.core.access import LiveRules
    from polymq.core.group import Delivery, Subscription
    from polymq.core.ports import Listener
    from polymq.core.session import Session
    from polymq.gateways.effects import Effect
    from polymq.gateways.nats.pings import Pings
    from polymq.gateways.nats.records import NatsCodec
    from polymq.gateways.outbox import Outbox
    from polymq.protocols.nats.events import Subscribe
    from polymq.wire.live import LiveMessage

__all__ = ["PRIVATE", "Memberships", "WorkGroups"]

# Who has not answered for so long has not read it: somebody else gets it.
_LEASE_NS: Final = 60_000_000_000
# Answers to questions, and what is between servers: a topic for each would be many, and of no use to anybody.
PRIVATE: Final = (b"_INBOX.", b"_R_.", b"_GR_.", b"$")


class WorkGroups:
    """Which queue groups are work groups of the topic that their subject names; `codec` says what NATS clients see of a stored message."""

    def __init__(self, names: Collection[str], codec: NatsCodec) -> None:
        self.codec = codec
        self._names = frozenset(name.encode() for name in names)

    def mean(self, event: Subscribe) -> bool:
        """Say whether a subscription is one to a work group: by its queue group's name, and a subject that can be one topic."""
        subject = event.subject
        return event.queue in self._names and is_valid_literal(subject) and not has_wildcards(subject) and not subject.startswith(PRIVATE)


class _Member:
    """One subscription. `left` is how many messages it may still be given, None: any number."""

    __slots__ = ("left", "queue", "session", "sid", "subject", "subscription")

    def __init__(self, event: Subscribe, session: Session, subscription: Subscription) -> None:
        self.session = session
        self.sid = event.sid
        self.subject = event.subject
        self.queue = event.queue
        self.subscription = subscription
        self.left: int | None = None


_NO_MEMBERS: Final[dict[bytes, _Member]] = {}
_NO_SUBSCRIPTIONS: Final[dict[Subscription, _Member]] = {}
_NOTHING_UNREAD: Final[deque[tuple[int, _Member, array[int]]]] = deque()


class Memberships:
    """Those of one client, by the sids of its subscriptions. Next to no room as long as there are none."""

    __slots__ = ("_by_subscription", "_groups", "_held", "_members", "_pings", "_unread")

    def __init__(self, groups: WorkGroups | None, pings: Pings) -> None:
        self._groups = groups
        self._pings = pings
        self._held = False
        self._members = _NO_MEMBERS
        # Also those that have had all they asked for, until that is read.
        self._by_subscription = _NO_SUBSCRIPTIONS
        # What has not been read: the number of the PING behind it, whose it is, ids.
        self._unread = _NOTHING_UNREAD

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_subscription)

    def __contains__(self, sid: bytes) -> bool:
        """Whether the client calls one of them so."""
        return sid in self._members

    def mean(self, event: Subscribe) -> bool:
        """Say whether a subscription is to be one of them."""
        return bool(event.queue) and self._groups is not None and self._groups.mean(event)

    def join(self, event: Subscribe, session: Session, listener: Listener) -> None:
        """Become a member; the topic and the group are made if need be. Raises Refusal."""
        if len(self) >= NATS_MEMBERSHIPS_MAX:
            raise Refusal(RefusalCode.LIMIT_REACHED, str(NATS_MEMBERSHIPS_MAX))
        try:
            topic, group = event.subject.decode(), event.queue.decode()
        except UnicodeDecodeError as error:
            raise Refusal(RefusalCode.TOPIC_NAME_INVALID, "no topic is called so") from error
        subscription = session.subscribe(topic, group, kind=GroupKind.WORK, listener=listener, lease_ns=_LEASE_NS)
        member = _Member(event, session, subscription)
        if self._members is _NO_MEMBERS:
            self._members, self._by_subscription, self._unread = {}, {}, deque()
        self._members[event.sid] = self._by_subscription[subscription] = member
        session.hold(subscription, held=self._held)
        session.credit(subscription, NATS_UNREAD_MESSAGES_MAX)

    def leave(self, sid: bytes, deliveries_max: int = 0) -> None:
        """Be no member any more, if it is one: at once, or behind so many messages, those included that it has been given."""
        member = self._members.get(sid)
        if member is None:
            return
        left = deliveries_max - member.subscription.delivered
        if left > 0:
            member.left = left
            self._lend(member)
        else:
            self._part(member)

    def deliver(self, delivery: Delivery, outbox: Outbox, *, headers: bool) -> tuple[int, int]:
        """Write MSG frames, and a PING; gives how many, and the bytes of their payloads."""
        assert self._groups is not None
        piece = delivery.slice
        member = self._by_subscription[delivery.subscription]
        count = size_bytes = 0
        frames: list[bytes] = []
        for message in read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end):
            live = self._groups.codec.live(member.subject, message)
            if live is not None:  # else it is larger than any, and counted
                payload = live.payload if headers else live.payload[live.header_size :]
                frames += _frame(member, live, payload, headers=headers)
                count += 1
                size_bytes += len(payload)
        outbox.write(b"".join((*frames, PING)))
        first_id = piece.partition << OFFSET_BITS | piece.offset
        self._unread.append((self._pings.mark(), member, array("q", range(first_id, first_id + piece.count))))
        if member.left is not None:
            member.left -= piece.count
            self._lend(member)
        return count, size_bytes

    def answered(self) -> None:
        """A PONG has come: settle what stood before its PING."""
        unread, number = self._unread, self._pings.answered_count
        while unread and unread[0][0] <= number:
            _, member, ids = unread.popleft()
            if member.subscription.open:
                with memoryview(ids) as view:
                    member.session.settle(member.subscription, view, 0, len(ids))
                self._lend(member)

    def hold(self, *, held: bool) -> None:
        """Take no more for now, or again: the connection's output waits."""
        self._held = held
        for subscription, member in self._by_subscription.items():
            member.session.hold(subscription, held=held)

    def revise(self, session: Session, rules: LiveRules | None, effects: list[Effect]) -> None:
        """End those that the client may not have any more, or that are of another account, and tell it."""
        for member in list(self._members.values()):
            is_same = session.principal.namespace == member.subscription.group.topic.namespace
            if not is_same or not (rules is None or rules.may_listen(member.subject, member.queue)):
                effects.append(Send(error_line(problems.subscription_revoked(member.subject, member.sid))))
                self._part(member)

    def end(self) -> None:
        """End all of them: what is not read waits for others."""
        for member in list(self._by_subscription.values()):
            self._part(member)

    def _lend(self, member: _Member) -> None:
        """Say how many messages a member may have unread; one that has had all it asked for leaves when they are read."""
        subscription = member.subscription
        if member.left is None:
            return
        if member.left <= 0:
            self._members.pop(member.sid, None)
            if not subscription.leased:
                self._part(member)
                return
        member.session.credit(subscription, min(NATS_UNREAD_MESSAGES_MAX, subscription.leased + max(0, member.left)))

    def _part(self, member: _Member) -> None:
        subscription = member.subscription
        if self._members.get(member.sid) is member:
            del self._members[member.sid]
        if self._by_subscription.pop(subscription, None) is not None and subscription.open:
            member.session.give_back(subscription)
            member.session.unsubscribe(subscription)


def _frame(member: _Member, live: LiveMessage, payload: bytes, *, headers: bool) -> tuple[bytes, ...]:
    """Write one message."""
    reply = b"%b " % live.reply if live.reply else b""
    if headers and live.header_size:
        line = b"HMSG %b %b %b%d %d\r\n" % (member.subject, member.sid, reply, live.header_size, len(payload))
    else:
        line = b"MSG %b %b %b%d\r\n" % (member.subject, member.sid, reply, len(payload))
    return line, payload, b"\r\n"
