"""What all RocketMQ connections of a server share: who it is, what it allows, and who takes care of what.

Read next: `client.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from polymq.core.access import ANONYMOUS, Principal
from polymq.gateways.rocketmq.delays import Delays
from polymq.gateways.rocketmq.holds import Holds
from polymq.gateways.rocketmq.jobs import Jobs
from polymq.gateways.rocketmq.locks import Locks
from polymq.gateways.rocketmq.members import Members
from polymq.gateways.rocketmq.registry import Registry
from polymq.gateways.rocketmq.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.broker import Broker
    from polymq.core.ports import Clock, Random
    from polymq.core.session import Session
    from polymq.gateways.rocketmq.answers import Answer
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Request
    from polymq.protocols.rocketmq.settings import RocketmqSettings
    from polymq.wire.tls import TlsLayer

__all__ = ["Facts", "Gate", "House"]

# A pull's answer fits; what is larger is rare, and goes with the message.
_SCRATCH_KEPT_MAX: Final = 1024 * 1024
# As the real broker does.
_IDLE_NS: Final = 120_000_000_000


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


class Gate(Protocol):
    """Who sees that requests are signed; without one, everybody may do what the session's principal may."""

    def admit(self, client: RocketmqClient, request: Request) -> Answer | None:
        """Let `client.session` be of who asks; an answer is a refusal, and the request is not carried out."""


class House:
    """One broker with its name server. Whoever makes it sets what the settings say otherwise, and the `gate`."""

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
        self.idle_ns = _IDLE_NS  # so long may a connection say nothing
        self.clients: dict[RocketmqClient, None] = {}
        self.scratch = bytearray()
        self.topics = Topics(self)
        self.jobs = Jobs(clock.monotonic_ns)
        self.holds = Holds(self)
        self.gate: Gate | None = None
        # Does what belongs to a group, whose right has been asked for: retry and dead-letter topics.
        self.inner = broker.session(Principal("rocketmq", principal.namespace))
        self.members = Members(broker.kernel.leases, clock.monotonic_ns, self.holds.heard)
        self.members.register(broker.statistics)
        self.left_out = broker.left_out.of("rocketmq")
        self.locks = Locks()
        self.delays = Delays()
        self.registry = Registry(clock.monotonic_ns)
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
