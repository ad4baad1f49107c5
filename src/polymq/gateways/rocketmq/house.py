"""What all RocketMQ connections of a server share: who it is, what it allows, and who takes care of what.

Read next: `client.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from polymq.core.access import ANONYMOUS
from polymq.gateways.rocketmq.holds import Holds
from polymq.gateways.rocketmq.jobs import Jobs
from polymq.gateways.rocketmq.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.access import Principal
    from polymq.core.broker import Broker
    from polymq.core.ports import Clock, Random
    from polymq.core.session import Session
    from polymq.gateways.rocketmq.answers import Answer
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.gateways.rocketmq.sends import Sending
    from polymq.protocols.rocketmq.events import Request
    from polymq.protocols.rocketmq.settings import RocketmqSettings
    from polymq.wire.tls import TlsLayer

__all__ = ["Delaying", "Facts", "Gate", "House", "Membership", "Subscribed"]

# A pull's answer fits; what is larger is rare, and goes with the message.
_SCRATCH_KEPT_MAX: Final = 1024 * 1024


@dataclass(slots=True)
class Facts:
    """Where clients find this broker, and what it is called.

    `host` is what they are told; "": each connection is told the address that it has reached. `store_host` is that in
    message ids, which hold IPv4 addresses only; b"": of `host`, if it is one, else of the connection.
    """

    cluster: str = "DefaultCluster"
    broker_name: str = "broker-a"
    host: str = ""
    port: int = 10911
    store_host: bytes = b""
    queues: int = 4  # of a topic that is made because somebody uses it


class Subscribed(Protocol):
    """What a group wants of one topic, as its members' heartbeats say."""

    @property
    def expression_type(self) -> str: ...
    @property
    def expression(self) -> str: ...
    @property
    def codes(self) -> frozenset[int] | None:
        """Hashes of the tags that are wanted; None, or none: everything."""

    @property
    def version(self) -> int: ...


class Membership(Protocol):
    """Who is in which group (`members.py`)."""

    def subscription(self, group: str, topic: str, client: RocketmqClient | None = None) -> Subscribed | None:
        """Say what a group wants of a topic, its member at this connection if there is one."""

    def knows(self, group: str) -> bool:
        """Say whether a group has members."""

    def departed(self, client: RocketmqClient) -> None:
        """A connection has ended: its members go, if they have not come again by another one."""


class Delaying(Protocol):
    """Who takes messages that are to be delivered later (`delays.py`)."""

    def take(self, client: RocketmqClient, sending: Sending) -> Answer | None:
        """Take one message that asks for a delay (level or time); None: it is due at once, store it as any other."""


class Gate(Protocol):
    """Who sees that requests are signed; without one, everybody may do what the session's principal may."""

    def admit(self, client: RocketmqClient, request: Request) -> Answer | None:
        """Let `client.session` be of who asks; an answer is a refusal, and the request is not carried out."""


class House:
    """One broker with its name server. Whoever makes it sets what other modules provide: `members`, `delays`, `gate`, `registry`."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        random: Random,
        settings: RocketmqSettings,
        facts: Facts | None = None,
        *,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.random = random
        self.settings = settings
        self.facts = facts or Facts(settings.cluster_name, settings.broker_name)
        self.principal = principal
        self.auto_create_topics = True  # when somebody sends to one
        self.auto_create_on_route = True  # when somebody asks where one is
        self.make_tls: Callable[[], TlsLayer] | None = None
        self.tls_required = False
        self.clients: dict[RocketmqClient, None] = {}
        self.scratch = bytearray()
        self.topics = Topics(self)
        self.jobs = Jobs()
        self.holds = Holds(self)
        self.gate: Gate | None = None
        self.members: Membership | None = None
        self.delays: Delaying | None = None
        self.registry: object = None
        broker.feeders += [self.jobs, self.holds]
        broker.follow(self.holds)

    def session(self) -> Session:
        """Open a session for a connection; whoever made it closes it."""
        return self.broker.session(self.principal)

    def room(self, size: int) -> bytearray:
        """Give a buffer for what is encoded and sent on at once: the same one for everybody. It is kept while it is small."""
        if size > len(self.scratch):
            fresh = bytearray(size)
            if size > _SCRATCH_KEPT_MAX:
                return fresh
            self.scratch = fresh
        return self.scratch
