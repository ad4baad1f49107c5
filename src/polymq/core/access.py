"""Who may do what: one port for every protocol, asked by the Session and by nobody else.

A principal carries its permissions, so deciding needs nothing from outside and nobody waits: whatever has to be asked
(an authentication server, a file) is asked at login, by the gateway. Read next: `patterns.py`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from polymq.core.patterns import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.patterns import Pattern

__all__ = ["ANONYMOUS", "STRANGER", "Action", "Authorizer", "ByPermissions", "LiveRules", "Permission", "Principal"]


class Action(enum.Enum):
    """What can be allowed or refused."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    READ = "read"
    MANAGE = "manage"


@dataclass(frozen=True, slots=True)
class Permission:
    """What may be done with the topics that match, and, where a group is concerned, with the groups that match."""

    actions: frozenset[Action]
    topic: Pattern
    groups: tuple[Pattern, ...]

    def allows(self, action: Action, topic: str, group: str) -> bool:
        """Say whether this permission is enough. `group` is "" where an action concerns none."""
        if action not in self.actions or not self.topic.matches(topic):
            return False
        return not group or any(pattern.matches(group) for pattern in self.groups)


class LiveRules(Protocol):
    """What a principal may do with live messages, whose names are bytes. Answers at once; see `live_rules.py`."""

    # Whether `heard` wants to know which answers are asked for, and whether there is anything that may not be published.
    @property
    def answering(self) -> bool: ...
    @property
    def restricts_publishing(self) -> bool: ...

    def of_session(self, monotonic_ns: Callable[[], int]) -> LiveRules:
        """Give the rules of one session: what is said of a principal is shared by all its sessions."""

    def may_publish(self, name: bytes) -> bool:
        """Say whether a message of this name may be published; ask once for each, since some may be published so many times only."""

    def may_listen(self, pattern: bytes, queue: bytes) -> bool:
        """Say whether a pattern may be listened to, alone or (`queue` not empty) as a member of a queue group."""

    def may_always_publish(self, name: bytes) -> bool:
        """Say whether messages of this name may be published, however many and whoever has asked for them."""

    def may_hear_all(self, pattern: bytes, queue: bytes = b"") -> bool:
        """Say whether everything may be heard that comes by a pattern that may be listened to; else ask `may_hear` of each name."""

    def may_hear(self, name: bytes, queue: bytes = b"") -> bool:
        """Say whether a message of this name may be heard, alone or in a queue group, by who listens to more than it may hear."""

    def heard(self, reply: bytes) -> None:
        """A message has come that asks for an answer there."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is at the door. `namespace` is where its names are looked up; `permissions` None is everything.

    `live` says more about live messages; None is everything, for who has no `permissions` either.
    """

    name: str
    namespace: str = ""
    permissions: tuple[Permission, ...] | None = None
    live: LiveRules | None = None

    def live_rules(self, monotonic_ns: Callable[[], int]) -> LiveRules | None:
        """Give what it may do with live messages in a session; None is everything."""
        return None if self.live is None else self.live.of_session(monotonic_ns)

    def may_everywhere(self, action: Action) -> bool:
        """Say whether it may do this to every topic, and so to what concerns no single one."""
        if self.permissions is None:
            return True
        return any(action in permission.actions and permission.topic is EVERYTHING for permission in self.permissions)


# Who comes in where nobody has to say who he is.
ANONYMOUS: Final = Principal("anonymous")
# Who comes in where one has to, and has not said it yet.
STRANGER: Final = Principal("stranger", permissions=())


class Authorizer(Protocol):
    """Decides; must answer at once (what has to be fetched is fetched by the gateway's `Ask` at login)."""

    def allows(self, principal: Principal, action: Action, topic: str, group: str) -> bool: ...


class ByPermissions:
    """The authorizer that goes by what each principal brings along."""

    def allows(self, principal: Principal, action: Action, topic: str, group: str) -> bool:
        """Say whether any of the permissions is enough. Cost: O(permissions); the session remembers what was allowed."""
        permissions = principal.permissions
        return permissions is None or any(permission.allows(action, topic, group) for permission in permissions)
