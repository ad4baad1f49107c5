"""Who may do what: one port for every protocol, asked by the Session and by nobody else."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["ANONYMOUS", "Action", "AllowAll", "Authorizer", "Principal"]


class Action(enum.Enum):
    """What can be allowed or refused."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    READ = "read"
    MANAGE = "manage"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is at the door. `namespace` is where its names are looked up."""

    name: str
    namespace: str = ""


ANONYMOUS: Final = Principal("anonymous")


class Authorizer(Protocol):
    """Decides; must answer at once (what has to be fetched is fetched by the gateway's `Ask` at login)."""

    def allows(self, principal: Principal, action: Action, topic: str, group: str) -> bool: ...


class AllowAll:
    """The authorizer of a broker without access control."""

    def allows(self, principal: Principal, action: Action, topic: str, group: str) -> bool:
        """Allow everything."""
        return True
