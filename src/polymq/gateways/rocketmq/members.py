"""Who consumes and who produces: members of groups as their heartbeats say (34, 35, 38, 40).

A member is a client id within a group, not a socket: whoever comes again by another connection is the same one, and the
end of the old connection does not matter. Who says nothing for two minutes is gone. When the members of a group or what
they subscribe to have changed all of them are told (40), so that they share the queues anew: a newcomer before its
heartbeat is answered, the others once for all that happened in a turn, and a large group not more often than it can
take.

Every member has its own subscriptions: two that differ for a while (one was started with another filter) do not spoil
each other's messages.

Source: RocketMQ 4.9.8, ConsumerManager, ConsumerGroupInfo, ProducerManager, ClientManageProcessor. Read next: `heartbeats.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from polymq.core.statistics import Family, Kind, Sample
from polymq.protocols.rocketmq.bodies import encode_consumer_list
from polymq.protocols.rocketmq.codes import RequestCode
from polymq.rocketmq_limits import (
    MEMBERS_MAX,
    MEMBERS_PER_CONNECTION_MAX,
    SUBSCRIPTIONS_MAX,
    SUBSCRIPTIONS_PER_MEMBER_MAX,
    SUBSCRIPTIONS_SIZE_BYTES_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.core.deadlines import Timers
    from polymq.core.statistics import Registry

__all__ = ["Channel", "ConsumerGroup", "Joining", "Member", "Members", "Subscription"]

# As the real broker has it: a client says something every 30 seconds.
SILENCE_NS_MAX: Final = 120_000_000_000
# A group of n members is told at most once in n times this: 1,000 members ten times a second.
_NOTICE_GAP_NS: Final = 100_000
# Notices in one turn: about 5 ms.
_NOTICES_PER_TURN: Final = 2_000
_EXPIRED_PER_TURN: Final = 2_000

# With its entry in a dictionary; and a hash in its set.
_SUBSCRIPTION_SIZE_BYTES: Final = 500
_CODE_SIZE_BYTES: Final = 64

_Key = TypeVar("_Key")


class Channel(Protocol):
    """A connection, as far as members need one. Identity is its hash."""

    def send_request(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Send a request that wants no answer, in this turn."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants of one topic. `codes`: hashes of the tags that are wanted; None: everything."""

    topic: str
    expression: str
    expression_type: str
    version: int
    codes: frozenset[int] | None
    class_filter: bool = False

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return _SUBSCRIPTION_SIZE_BYTES + 4 * len(self.expression) + _CODE_SIZE_BYTES * len(self.codes or ())


@dataclass(frozen=True, slots=True)
class Joining:
    """What a heartbeat says of one group of consumers. `subscriptions` None: nothing new about them."""

    group: str
    consume_type: str
    message_model: str
    consume_from: str
    subscriptions: Mapping[str, Subscription] | None


@dataclass(slots=True, eq=False)
class Member:
    """One client in one group, of consumers or of producers. `told` is the state of the group that it knows of."""

    group: str
    client_id: str
    channel: Channel
    consumes: bool
    language: str = ""
    version: int = 0
    heard_ns: int = 0
    told: int = 0
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """The members of one group. `state` counts the changes that members are told of."""

    name: str
    consume_type: str = ""
    message_model: str = ""
    consume_from: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    newest: dict[str, Subscription] = field(default_factory=dict)  # by topic, whoever said it
    wanted: dict[str, int] = field(default_factory=dict)  # how many members have subscribed to a topic
    state: int = 0
    told_ns: int = 0
    _told: tuple[int, bytes] = (-1, b"")

    def client_ids(self) -> list[str]:
        """List the members, in an order that is the same for everybody who asks."""
        return sorted(self.members)

    def consumer_list(self) -> bytes:
        """Write the list of members, once for each state: all of them ask for it."""
        if self._told[0] != self.state:
            self._told = (self.state, encode_consumer_list(tuple(self.client_ids())))
        return self._told[1]


class Members:
    """All groups. Bounded by MEMBERS_MAX registrations and SUBSCRIPTIONS_MAX subscriptions of all of them.

    `heard(group)` is called when a member has said something new of what it subscribes to.
    """

    def __init__(self, timers: Timers, monotonic_ns: Callable[[], int], heard: Callable[[str], None] = lambda _group: None) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[str, Member]] = {}
        self.subscription_count = 0
        self.subscription_size_bytes = 0
        self.notice_count = 0
        self.armed_ns: int | None = None
        self._timers = timers
        self._on_news = heard
        self._monotonic_ns = monotonic_ns
        # Everybody, who has been silent for longest first.
        self._heard: OrderedDict[Member, None] = OrderedDict()
        self._channels: dict[Channel, dict[Member, None]] = {}
        self._clients: dict[str, dict[Member, None]] = {}
        # The member of a group of consumers that is at a connection: the last one heard of, if there are several.
        self._at: dict[tuple[Channel, str], Member] = {}
        # Groups whose members have not been told of all changes.
        self._changed: OrderedDict[ConsumerGroup, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._heard)

    # -- what others ask -------------------------------------------------------------------------------------------

    def group(self, name: str) -> ConsumerGroup | None:
        """Give a group that has members now."""
        return self.groups.get(name)

    def knows(self, group: str) -> bool:
        """Say whether a group has members."""
        return group in self.groups

    def subscription(self, group: str, topic: str, channel: Channel | None = None) -> Subscription | None:
        """Say what is wanted of a topic: by the member behind this connection, or else by whoever said it last."""
        found = self.groups.get(group)
        if found is None:
            return None
        member = None if channel is None else self._at.get((channel, group))
        return found.newest.get(topic) if member is None else member.subscriptions.get(topic)

    def producer_channel(self, group: str) -> Channel | None:
        """Find somebody of a group of producers to talk to: whoever was heard of last."""
        members = self.producers.get(group)
        return max(members.values(), key=lambda member: member.heard_ns).channel if members else None

    def client_channel(self, client_id: str) -> Channel | None:
        """Find the connection of a client, as a producer or as a consumer."""
        members = self._clients.get(client_id)
        return max(members, key=lambda member: member.heard_ns).channel if members else None

    # -- coming and going ------------------------------------------------------------------------------------------

    def join(self, client_id: str, channel: Channel, joining: Joining, *, language: str = "", version: int = 0) -> str | None:
        """Take a consumer's heartbeat for one group: tells the member of what has changed, and the others soon. Gives a problem."""
        group = self.groups.get(joining.group)
        member = None if group is None else group.members.get(client_id)
        problem = self._crowd(member, channel) or self._excess(member, joining)
        if problem is not None:
            return problem
        if group is None:
            group = self.groups[joining.group] = ConsumerGroup(joining.group)
        changed = member is None
        if member is None:
            member = self._enter(Member(joining.group, client_id, channel, consumes=True))
            group.members[client_id] = member
        self._hear(member, channel, language, version)
        group.consume_type, group.message_model, group.consume_from = joining.consume_type, joining.message_model, joining.consume_from
        if joining.subscriptions is not None:
            changed |= self._subscribe(group, member, joining.subscriptions)
        if changed:
            self._change(group)
            self._tell(group, member)
        return None

    def _crowd(self, member: Member | None, channel: Channel) -> str | None:
        """Say where there is no room for one more member."""
        if member is None and len(self._heard) >= MEMBERS_MAX:
            return f"there are {MEMBERS_MAX} members of groups already"
        here = member is not None and member.channel is channel
        if not here and len(self._channels.get(channel, ())) >= MEMBERS_PER_CONNECTION_MAX:
            return f"there are {MEMBERS_PER_CONNECTION_MAX} members of groups at this connection already"
        return None

    def _excess(self, member: Member | None, joining: Joining) -> str | None:
        """Say what there would be too much of."""
        count = 0 if joining.subscriptions is None else len(joining.subscriptions)
        if count > SUBSCRIPTIONS_PER_MEMBER_MAX:
            return f"more than {SUBSCRIPTIONS_PER_MEMBER_MAX} subscriptions of one member"
        before = 0 if member is None else len(member.subscriptions)
        if count > before and self.subscription_count + count - before > SUBSCRIPTIONS_MAX:
            return f"there are {SUBSCRIPTIONS_MAX} subscriptions already"
        size = _size_bytes(joining.subscriptions or {})
        size_before = 0 if member is None else _size_bytes(member.subscriptions)
        if size > size_before and self.subscription_size_bytes + size - size_before > SUBSCRIPTIONS_SIZE_BYTES_MAX:
            return f"all subscriptions together take {SUBSCRIPTIONS_SIZE_BYTES_MAX} bytes already"
        return None

    def produce(self, client_id: str, channel: Channel, group: str, *, language: str = "", version: int = 0) -> str | None:
        """Take a producer's heartbeat for one group; gives a problem."""
        member = self.producers.get(group, {}).get(client_id)
        problem = self._crowd(member, channel)
        if problem is not None:
            return problem
        if member is None:
            member = self._enter(Member(group, client_id, channel, consumes=False))
            self.producers.setdefault(group, {})[client_id] = member
        self._hear(member, channel, language, version)
        return None

    def leave(self, client_id: str, channel: Channel, *, consumers: str = "", producers: str = "") -> None:
        """Let a client go that says so itself, by the connection that it is at."""
        group = self.groups.get(consumers)
        for member in (
            None if group is None else group.members.get(client_id),
            self.producers.get(producers, {}).get(client_id),
        ):
            if member is not None and member.channel is channel:
                self._remove(member)

    def departed(self, channel: Channel) -> None:
        """A connection has ended: those go who have not come again by another one."""
        for member in list(self._channels.get(channel, ())):
            self._remove(member)

    def _enter(self, member: Member) -> Member:
        self._heard[member] = None
        self._channels.setdefault(member.channel, {})[member] = None
        self._clients.setdefault(member.client_id, {})[member] = None
        return member

    def _hear(self, member: Member, channel: Channel, language: str, version: int) -> None:
        """Note that a member is there, and by which connection."""
        member.heard_ns = self._monotonic_ns()
        member.language, member.version = language, version
        self._heard.move_to_end(member)
        if member.channel is not channel:
            self._part(member)
            member.channel = channel
            self._channels.setdefault(channel, {})[member] = None
            # Whatever was on its way to the old connection may be lost.
            member.told = -1
            if member.consumes:
                self._notify_soon(self.groups[member.group])
        if member.consumes:
            self._at[channel, member.group] = member
        self._timers.arm(self, member.heard_ns + SILENCE_NS_MAX)

    def _part(self, member: Member) -> None:
        """Take a member away from its connection."""
        _drop(self._channels, member.channel, member)
        if self._at.get((member.channel, member.group)) is member:
            del self._at[member.channel, member.group]

    def _remove(self, member: Member) -> None:
        del self._heard[member]
        self._part(member)
        _drop(self._clients, member.client_id, member)
        if not member.consumes:
            members = self.producers[member.group]
            del members[member.client_id]
            if not members:
                del self.producers[member.group]
            return
        group = self.groups[member.group]
        del group.members[member.client_id]
        self._subscribe(group, member, {})
        if group.members:
            self._change(group)
        else:
            del self.groups[member.group]
            self._changed.pop(group, None)

    def _subscribe(self, group: ConsumerGroup, member: Member, wanted: Mapping[str, Subscription]) -> bool:
        """Set what a member wants; tells whether topics have come or gone. What is not newer stays as it was."""
        before = member.subscriptions
        after: dict[str, Subscription] = {}
        news = False
        for topic, subscription in wanted.items():
            known = before.get(topic)
            newer = known is None or subscription.version > known.version
            after[topic] = subscription if known is None or newer else known
            news |= newer
            newest = group.newest.get(topic)
            if newest is None or after[topic].version > newest.version:
                group.newest[topic] = after[topic]
        member.subscriptions = after
        self.subscription_count += len(after) - len(before)
        self.subscription_size_bytes += _size_bytes(after) - _size_bytes(before)
        gone, new = before.keys() - after.keys(), after.keys() - before.keys()
        for topic in new:
            group.wanted[topic] = group.wanted.get(topic, 0) + 1
        for topic in gone:
            group.wanted[topic] -= 1
            if not group.wanted[topic]:
                del group.wanted[topic], group.newest[topic]
        if news:
            self._on_news(group.name)
        return bool(gone) or bool(new)

    # -- telling of changes ----------------------------------------------------------------------------------------

    def _change(self, group: ConsumerGroup) -> None:
        group.state += 1
        self._notify_soon(group)

    def _notify_soon(self, group: ConsumerGroup) -> None:
        """Have all members told who do not know of the last change."""
        self._changed[group] = None
        self._timers.arm(self, max(self._monotonic_ns(), group.told_ns + _NOTICE_GAP_NS * len(group.members)))

    def _tell(self, group: ConsumerGroup, member: Member) -> None:
        member.told = group.state
        self.notice_count += 1
        member.channel.send_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name})

    def fire(self, now_ns: int) -> None:
        """Let those go who have been silent for too long, and tell of changes: some in each turn."""
        for _ in range(_EXPIRED_PER_TURN):
            member = next(iter(self._heard), None)
            if member is None or member.heard_ns + SILENCE_NS_MAX > now_ns:
                break
            self._remove(member)
        self._notify(now_ns)
        first = next(iter(self._heard), None)
        if first is not None:
            self._timers.arm(self, first.heard_ns + SILENCE_NS_MAX)

    def _notify(self, now_ns: int) -> None:
        left = _NOTICES_PER_TURN
        for _ in range(len(self._changed)):
            group, _none = self._changed.popitem(last=False)
            due_ns = group.told_ns + _NOTICE_GAP_NS * len(group.members)
            if left > 0 and due_ns <= now_ns:
                untold = [member for member in group.members.values() if member.told != group.state]
                for member in untold[:left]:
                    self._tell(group, member)
                left -= len(untold)
                if left >= 0:
                    group.told_ns = now_ns
                    continue
            self._changed[group] = None
            self._timers.arm(self, max(now_ns, due_ns))

    # -- statistics ------------------------------------------------------------------------------------------------

    def register(self, registry: Registry) -> None:
        """Show in the metrics who is there."""

        def family(name: str, kind: Kind, text: str, count: Callable[[], int]) -> None:
            registry.register(Family(name, kind, text, lambda: [Sample({}, count())]))

        family("polymq_rocketmq_groups", Kind.GAUGE, "Groups of RocketMQ consumers that have members.", lambda: len(self.groups))
        consumers = "Members of all groups of RocketMQ consumers."
        family("polymq_rocketmq_consumers", Kind.GAUGE, consumers, lambda: len(self) - self._producer_count())
        family("polymq_rocketmq_producers", Kind.GAUGE, "Members of all groups of RocketMQ producers.", self._producer_count)
        family("polymq_rocketmq_subscriptions", Kind.GAUGE, "Subscriptions of all RocketMQ consumers.", lambda: self.subscription_count)
        notices = "How often a RocketMQ consumer was told that its group has changed."
        family("polymq_rocketmq_notices_total", Kind.COUNTER, notices, lambda: self.notice_count)

    def _producer_count(self) -> int:
        return sum(len(members) for members in self.producers.values())


def _size_bytes(subscriptions: Mapping[str, Subscription]) -> int:
    return sum(subscription.size_bytes for subscription in subscriptions.values())


def _drop(table: dict[_Key, dict[Member, None]], key: _Key, member: Member) -> None:
    """Take a member out of a table of members, and the entry with the last one."""
    members = table[key]
    del members[member]
    if not members:
        del table[key]
