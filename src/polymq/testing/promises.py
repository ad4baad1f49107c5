"""The things that the ledger keeps: topics, messages, channels, connections, and commands that are under way."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from polymq.core.ports import Clock

__all__ = [
    "Book",
    "Channel",
    "Command",
    "Connection",
    "Pause",
    "PromiseBrokenError",
    "Publication",
    "Share",
    "Topic",
    "Verb",
    "is_ephemeral",
]

_TIMEOUT_NS: Final = 60_000_000_000


class PromiseBrokenError(AssertionError):
    """The broker did what it must never do."""


class Verb(enum.Enum):
    """What a client can ask. Some commands are answered if they succeed; the others are not."""

    PUBLISH = "PUB"
    SUBSCRIBE = "SUB"
    ASK = "IDENTIFY"
    LEAVE = "CLS"
    READY = "RDY"
    FINISH = "FIN"
    REQUEUE = "REQ"
    TOUCH = "TOUCH"
    PROVOKE = "a FIN that fails"

    @property
    def answered(self) -> bool:
        """Whether there is always an answer."""
        return self in _ANSWERED


_ANSWERED: Final = frozenset({Verb.PUBLISH, Verb.SUBSCRIBE, Verb.ASK, Verb.LEAVE, Verb.PROVOKE})


def is_ephemeral(name: str) -> bool:
    """Whether a topic or channel of that name goes with its last user, and does not outlive the process."""
    return name.endswith("#ephemeral")


@dataclass(slots=True)
class Pause:
    """A pause that is certain: it was answered at `since_ns`, which is `since_wall_ns` on the wall clock."""

    since_ns: int
    since_wall_ns: int


@dataclass(slots=True, eq=False)
class Topic:
    """One topic name. `confirmed_ns`: when it was first known to be there, by an answer that needs it.

    `paused` is set while it is certain that nothing new may reach the channels; `resumed_ns` while it is certain that
    it may (0: nobody ever asked for a pause); `maybe_paused_ns`: else, since when that is not certain. `remade_ns`: when it
    was last asked to be deleted.
    """

    name: str
    confirmed_ns: int | None = None
    paused: Pause | None = None
    resumed_ns: int | None = 0
    maybe_paused_ns: int = 0
    remade_ns: int = 0

    @property
    def ephemeral(self) -> bool:
        """Whether it goes with its last channel."""
        return is_ephemeral(self.name)


@dataclass(slots=True, eq=False)
class Publication:
    """One message that a client sent.

    `promised_ns` is when it was acknowledged or first seen by a reader: from then on it must stay. `first` and
    `count` are the command's: the messages of an MPUB have consecutive serials. `ids` are where it is known to lie, with
    when that was first seen: one. `ids_before` are those that a power loss may have
    taken back. `removed_ns`: its topic was deleted, and it with it. `dropped_ns`: its topic was emptied before
    any channel had it. `unsure_ns`: since then it may or may not be removed or dropped, by something that was asked.
    """

    serial: int
    topic: str
    body: bytes
    connection: str
    order: int
    first: int
    count: int
    sync: bool
    sent_ns: int
    sent_wall_ns: int
    due_wall_ns: int
    life: int
    acknowledged_ns: int | None = None
    promised_ns: int | None = None
    ids: dict[int, int] = field(default_factory=dict)
    ids_before: dict[int, int] = field(default_factory=dict)
    removed_ns: int | None = None
    dropped_ns: int | None = None
    unsure_ns: int | None = None
    # How much the wall clock had gone on until the answer: a delay counts from somewhere in between. None: no answer.
    answered_after_wall_ns: int | None = None

    def written_between(self, seen_ns: int) -> tuple[int, int]:
        """Between which moments it was appended where it was first seen at `seen_ns`: an answer says so earlier than a reader."""
        if self.due_wall_ns or self.acknowledged_ns is None:
            return self.sent_ns, seen_ns
        at_ns = min(seen_ns, self.acknowledged_ns)
        return at_ns, at_ns


@dataclass(slots=True, eq=False)
class Channel:
    """One channel of one topic. `confirmed_ns`: when it was known to exist; it must get what is sent after that.

    `shares` are by message id. `dropped`: serials that it must not get any more, since when (it was emptied, or deleted
    and made anew); `unsure`: serials that it may or may not get for such a reason, since when.
    """

    topic: str
    name: str
    confirmed_ns: int | None = None
    ended_connections: int = 0
    unseen: bool = False  # deliveries have gone to a connection that never took them
    paused: Pause | None = None
    shares: dict[int, Share] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    unsure: dict[int, int] = field(default_factory=dict)
    renewed_ns: int = 0  # when it was last known to have been deleted
    first: bool = False  # it was there before any other channel of its topic

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"

    @property
    def ephemeral(self) -> bool:
        """Whether it goes with its last consumer."""
        return is_ephemeral(self.name)


@dataclass(slots=True, eq=False)
class Share:
    """What one channel knows of one message.

    The lease began in [`lease_from_ns`, `lease_seen_ns`]. `excused`: it may be done with although nobody said so (a
    FIN whose fate was never heard of, a power loss), until it is seen again.
    `pending`: FIN and REQ under way.
    """

    serial: int
    id: int
    channel: Channel
    attempts: int = 0
    life: int = -1
    delivered: int = 0
    holder: Connection | None = None
    lease_from_ns: int = 0
    lease_seen_ns: int = 0
    excused: bool = False
    finished_ns: int | None = None
    requeue_due_wall_ns: int = 0
    requeued_ns: int = 0
    pending: list[Command] = field(default_factory=list)

    def __str__(self) -> str:
        return f"message {self.serial} of {self.channel}"

    @property
    def maybe_finished(self) -> bool:
        """Whether the channel may be done with it without having said so."""
        return self.excused or any(command.verb is Verb.FINISH for command in self.pending)

    def hold(self, connection: Connection | None) -> None:
        """Hand the lease to a connection, or to nobody known."""
        if self.holder is not None:
            self.holder.held.pop(self.id, None)
        self.holder = connection
        if connection is not None:
            connection.held[self.id] = self

    def let_go(self, connection: Connection) -> None:
        """End the lease of a connection, if it has it."""
        if self.holder is connection:
            self.hold(None)

    def renew(self) -> None:
        """Know nothing of it any more: its channel may have been made anew."""
        self.hold(None)
        self.finished_ns = None
        self.attempts, self.life = 0, -1
        self.requeue_due_wall_ns = 0
        self.excused = True


@dataclass(slots=True, eq=False)
class Connection:
    """One connection of one client. `ready_max`: the highest RDY that the broker may be going by.

    `left_ns`: when the broker confirmed that it sends no more messages. `held_up`: the network has not taken all of it.
    """

    name: str
    timeout_ns: int = _TIMEOUT_NS
    channel: Channel | None = None
    open: bool = False
    dying: bool = False
    ready: int = 0
    ready_max: int = 0
    left_ns: int | None = None
    held_up: bool = False
    commands: deque[Command] = field(default_factory=deque)
    held: dict[int, Share] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Command:
    """One command under way. `redelivered`: to whom, and when by the wall clock, its message went meanwhile."""

    verb: Verb
    share: Share | None = None
    id: int = 0
    sent_ns: int = 0
    due_wall_ns: int = 0
    publications: list[Publication] = field(default_factory=list)
    redelivered: tuple[str, int] | None = None
    foreign: bool = False  # its message had not been sent to this connection

    def forget(self) -> None:
        """Nothing more will be heard of it."""
        if self.share is not None and self in self.share.pending:
            self.share.pending.remove(self)


@dataclass(slots=True, eq=False)
class Book:
    """What all parts of the ledger write into. `wall_slack_ns`: how far the wall clock may have been set back."""

    clock: Clock
    wall_slack_ns: int = 0
    publications: dict[int, Publication] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    channels: dict[tuple[str, str], Channel] = field(default_factory=dict)
    connections: list[Connection] = field(default_factory=list)
    serials_by_id: dict[int, int] = field(default_factory=dict)
    life: int = 0

    def topic(self, name: str) -> Topic:
        """Give what is known of a topic."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = Topic(name)
        return found

    def channel(self, topic: str, name: str) -> Channel:
        """Give what is known of a channel."""
        found = self.channels.get((topic, name))
        if found is None:
            others = any(channel.topic == topic for channel in self.channels.values())
            found = self.channels[topic, name] = Channel(topic, name)
            # Whoever asks for a second one while the first is not known to be there may come before it.
            for channel in self.channels.values():
                if channel.topic == topic and channel is not found and channel.confirmed_ns is None:
                    channel.first = False
            found.first = not others and not found.ephemeral
        return found

    def channels_of(self, topic: str) -> list[Channel]:
        """List the channels of a topic."""
        return [channel for channel in self.channels.values() if channel.topic == topic]

    def has_consumers(self, channel: Channel) -> bool:
        """Whether a connection has the channel that the broker was not seen to be done with: after a fatal error it is."""
        return any(other.channel is channel and not other.dying for other in self.connections)

    def publications_of(self, topic: str) -> list[Publication]:
        """List the messages of a topic that are not known to be gone."""
        return [each for each in self.publications.values() if each.topic == topic and each.removed_ns is None]

    def locate(self, publication: Publication, message_id: int) -> None:
        """Take note of where a message lies; raises PromiseBrokenError if that cannot be."""
        if message_id in publication.ids:
            return
        serial = self.serials_by_id.get(message_id)
        if serial is not None and message_id in self.publications[serial].ids:
            raise PromiseBrokenError(f"messages {serial} and {publication.serial} have one id, {message_id:016x}")
        if publication.ids:
            known = next(iter(publication.ids))
            raise PromiseBrokenError(f"message {publication.serial} is stored twice, as {known:016x} and {message_id:016x}")
        publication.ids[message_id] = self.clock.monotonic_ns()
        publication.ids_before.clear()
        self.serials_by_id[message_id] = publication.serial
