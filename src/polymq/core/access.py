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
    from polymq.core.patterns import Pattern

__all__ = ["ANONYMOUS", "STRANGER", "Action", "Authorizer", "ByPermissions", "Permission", "Principal"]


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


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is at the door. `namespace` is where its names are looked up; `permissions` None is everything."""

    name: str
    namespace: str = ""
    permissions: tuple[Permission, ...] | None = None

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
