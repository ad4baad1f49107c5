"""The things that the ledger keeps: messages, channels, connections, and commands that are under way."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Channel", "Command", "Connection", "PromiseBrokenError", "Publication", "Share", "Verb"]

_TIMEOUT_NS: Final = 60_000_000_000


class PromiseBrokenError(AssertionError):
    """The broker did what it must never do."""


class Verb(enum.Enum):
    """What a client can ask. Some commands are answered if they succeed; the others are not."""

    PUBLISH = "PUB"
    SUBSCRIBE = "SUB"
    ASK = "CLS"
    READY = "RDY"
    FINISH = "FIN"
    REQUEUE = "REQ"
    TOUCH = "TOUCH"
    PROVOKE = "a FIN that fails"

    @property
    def answered(self) -> bool:
        """Whether there is always an answer."""
        return self in _ANSWERED


_ANSWERED: Final = frozenset({Verb.PUBLISH, Verb.SUBSCRIBE, Verb.ASK, Verb.PROVOKE})


@dataclass(slots=True, eq=False)
class Publication:
    """One message that a client sent.

    `promised_ns` is when it was acknowledged or first seen by a consumer: from then on it must stay. `first` and
    `count` are the command's: the messages of an MPUB have consecutive serials.
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
    due_wall_ns: int
    life: int
    acknowledged: bool = False
    promised_ns: int | None = None
    id: int | None = None
    id_seen_ns: int = 0
    undone: bool = False  # a power loss may have undone that it was released from the schedule: it comes again, but is stored once


@dataclass(slots=True, eq=False)
class Channel:
    """One channel of one topic. `confirmed_ns`: when it was known to exist; it must get what is sent after that."""

    topic: str
    name: str
    confirmed_ns: int | None = None
    ended_connections: int = 0
    shares: dict[int, Share] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"


@dataclass(slots=True, eq=False)
class Share:
    """What one channel knows of one message.

    The lease began in [`lease_from_ns`, `lease_seen_ns`]. `excused`: it may be done with although nobody said so (a
    FIN whose fate was never heard of, a power loss), until it is seen again.
    `pending`: FIN and REQ under way.
    """

    serial: int
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
            self.holder.held.pop(self.serial, None)
        self.holder = connection
        if connection is not None:
            connection.held[self.serial] = self

    def let_go(self, connection: Connection) -> None:
        """End the lease of a connection, if it has it."""
        if self.holder is connection:
            self.hold(None)


@dataclass(slots=True, eq=False)
class Connection:
    """One connection of one client. `ready_max`: the highest RDY that the broker may be going by."""

    name: str
    timeout_ns: int = _TIMEOUT_NS
    channel: Channel | None = None
    open: bool = False
    dying: bool = False
    ready: int = 0
    ready_max: int = 0
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
