"""One NATS client's memberships in work groups: it shares their work with NSQ's channels and PHPMQ's queues of the same name.

    SUB orders workers 1      a member of the work group `workers` of the topic `orders`, if the settings name `workers`
    MSG orders 1 5, PING      what the group gives it, and a PING behind each 16 messages at most
    PONG                      the client has read what stood before: it is settled, and what stands behind is waited for anew

NATS has no acknowledgements, but a client answers each PING in its place, so a PONG says that its library has read all that stood before. What
is not read when the client leaves goes to another member. What it has read and not handled is gone: nobody is told of that.

Messages are objects here: some ten thousand a second. Nothing of this is in the way of other subscriptions. ADR 0027 has the reasons.
"""

from __future__ import annotations

from array import array
from collections import deque
from contextlib import suppress
from itertools import islice
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
# So slow a library may be for this many messages: there is a PING behind them …
_MESSAGES_PER_PING: Final = 16
# … and with each PONG, the leases of so many pieces begin anew that are a while old: 1,024 messages, 2 ms.
_PIECES_ANEW: Final = 64
_ANEW_AFTER_NS: Final = _LEASE_NS // 4
# In all, what a member has may take it so long.
_LEASE_NS_MAX: Final = _LEASE_NS * NATS_UNREAD_MESSAGES_MAX
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

    @property
    def is_spent(self) -> bool:
        """Whether it has been given all that it asked for."""
        return self.left is not None and self.left <= 0


class _Piece:
    """Messages that a member has not read: the number of the PING behind them, their ids, when their leases began."""

    __slots__ = ("begun_ns", "ids", "member", "ping")

    def __init__(self, ping: int, member: _Member, ids: array[int], begun_ns: int) -> None:
        self.ping = ping
        self.member = member
        self.ids = ids
        self.begun_ns = begun_ns


_NO_MEMBERS: Final[dict[bytes, _Member]] = {}
_NO_SUBSCRIPTIONS: Final[dict[Subscription, _Member]] = {}
_NOTHING_UNREAD: Final[deque[_Piece]] = deque()


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
        # What has not been read, in the order in which it went out.
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
        """Write MSG frames, and PINGs; gives how many frames, and the bytes of their payloads."""
        assert self._groups is not None
        piece = delivery.slice
        member = self._by_subscription[delivery.subscription]
        room = piece.count if member.left is None else max(0, min(piece.count, member.left))
        first_id = piece.partition << OFFSET_BITS | piece.offset
        now_ns = self._pings.now_ns()
        size_bytes = marked = 0
        frames: list[bytes] = []
        messages = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)
        for count, message in enumerate(islice(messages, room), 1):
            # However large its headers make it: what is left out would be settled as well.
            live = self._groups.codec.whole(member.subject, message)
            payload = live.payload if headers else live.payload[live.header_size :]
            frames += _frame(member, live, payload, headers=headers)
            size_bytes += len(payload)
            if count == room or count - marked == _MESSAGES_PER_PING:
                frames.append(PING)
                ids = array("q", range(first_id + marked, first_id + count))
                self._unread.append(_Piece(self._pings.mark(), member, ids, now_ns))
                marked = count
        if frames:
            outbox.write(b"".join(frames))
        for message_id in range(first_id + room, first_id + piece.count):
            # Leases have run out since its credit was reckoned, and its library would throw this away.
            member.session.requeue(member.subscription, message_id, delay_ns=0)
        if member.left is not None:
            member.left -= room
            self._lend(member)
        return room, size_bytes

    def answered(self) -> None:
        """A PONG has come: settle what stood before its PING."""
        unread, number = self._unread, self._pings.answered_count
        while unread and unread[0].ping <= number:
            piece = unread.popleft()
            member, ids = piece.member, piece.ids
            if member.subscription.open:
                with memoryview(ids) as view:
                    member.session.settle(member.subscription, view, 0, len(ids))
                self._lend(member)
        if unread:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Let the client have what it comes to next for a minute from now on: it reads, if slowly."""
        now_ns = self._pings.now_ns()
        for piece in islice(self._unread, _PIECES_ANEW):
            member = piece.member
            if now_ns - piece.begun_ns < _ANEW_AFTER_NS or not member.subscription.open:
                continue
            piece.begun_ns = now_ns
            for message_id in piece.ids:
                with suppress(Refusal):  # it was too late for this one
                    member.session.extend(member.subscription, message_id, lease_ns=_LEASE_NS, lease_ns_max=_LEASE_NS_MAX)

    def hold(self, *, held: bool) -> None:
        """Take no more for now, or again: the connection's output waits."""
        self._held = held
        for subscription, member in self._by_subscription.items():
            member.session.hold(subscription, held=held or member.is_spent)

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
        if member.left > 0:
            member.session.credit(subscription, min(NATS_UNREAD_MESSAGES_MAX, subscription.leased + member.left))
            return
        if self._members.get(member.sid) is member:
            del self._members[member.sid]
        if subscription.leased:
            # It gets nothing more, also when its leases run out: the client knows its sid no longer.
            member.session.hold(subscription, held=True)
        else:
            self._part(member)

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
