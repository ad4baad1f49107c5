"""What all RocketMQ connections of a server share: who it is, what it allows, and who takes care of what.

Read next: `client.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from polymq.core.access import ANONYMOUS
from polymq.gateways.rocketmq.holds import Holds
from polymq.gateways.rocketmq.topics import Topics

if TYPE_CHECKING:
    from polymq.core.access import Principal
    from polymq.core.broker import Broker
    from polymq.core.ports import Clock, Random
    from polymq.core.session import Session
    from polymq.gateways.rocketmq.answers import Answer
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.gateways.rocketmq.sends import Sending
    from polymq.protocols.rocketmq.events import Request
    from polymq.protocols.rocketmq.settings import RocketmqSettings

__all__ = ["Delaying", "Facts", "Guard", "House", "Membership", "Subscribed"]


@dataclass(slots=True)
class Facts:
    """Where clients find this broker, and what it is called. `host` is an IPv4 address: it is part of message ids.

    `host` "": each connection is told the address that it has reached (`RocketmqClient.own_host`).
    """

    cluster: str = "DefaultCluster"
    broker_name: str = "broker-a"
    host: str = ""
    port: int = 10911
    queues: int = 4  # of a topic that is created because somebody uses it


class Subscribed(Protocol):
    """What a group wants of one topic, as its members' heartbeats say."""

    @property
    def expression_type(self) -> str: ...
    @property
    def expression(self) -> str: ...
    @property
    def codes(self) -> frozenset[int] | None:
        """Hashes of the tags that are wanted; None: everything."""

    @property
    def version(self) -> int: ...


class Membership(Protocol):
    """Who is in which group (`members.py`)."""

    def subscription(self, group: str, topic: str) -> Subscribed | None: ...
    def knows(self, group: str) -> bool:
        """Say whether a heartbeat has ever named this group, or it is known from before."""

    def departed(self, client: RocketmqClient) -> None:
        """A connection has ended: its members go, if they have not come again by another one."""


class Delaying(Protocol):
    """Who takes messages that are to be delivered later (`delays.py`)."""

    def take(self, client: RocketmqClient, sending: Sending) -> Answer | None:
        """Take one message that asks for a delay (level or time); None: it is due at once, store it as any other."""


class Guard(Protocol):
    """Who sees that requests are signed (ACL); absent, everybody may do what the session's principal may."""

    def __call__(self, client: RocketmqClient, request: Request) -> Answer | None:
        """Set `client.session` to that of who asks; an answer is a refusal, and the request is not carried out."""


class House:
    """One broker with its name server. SERVER makes it, and sets what other modules provide.

    `guard` is asked before each request is carried out. With a guard the decoder must not make runs of sends (`Sends`
    have no signature): `settings` say so.
    """

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        random: Random,
        settings: RocketmqSettings,
        facts: Facts,
        *,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.random = random
        self.settings = settings
        self.facts = facts
        self.principal = principal
        self.clients: dict[RocketmqClient, None] = {}
        self.topics = Topics(self)
        self.holds = Holds(self)
        self.guard: Guard | None = None
        self.members: Membership | None = None
        self.delays: Delaying | None = None
        broker.feeders.append(self.holds)

    def session(self) -> Session:
        """Open a session for a connection; whoever made it closes it."""
        return self.broker.session(self.principal)
