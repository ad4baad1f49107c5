"""Telling another name server of this node, RocketMQ's or polymq's: told at once what topics are new, and of everything from time to time.

`OwnTopics` is what all name servers are told; a `RegisteringGateway` is the connection to one of them. One request waits for its
answer at a time, so a name server that hangs costs nothing; what comes meanwhile goes together. Who dials again is in
`server/rocketmq_names.py`.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from polymq.gateways.contract import BaseGateway
from polymq.gateways.effects import Close, Send, SetTimer, TimerName
from polymq.protocols.rocketmq.codes import RequestCode
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import encode_request
from polymq.protocols.rocketmq.events import Request, Violation
from polymq.protocols.rocketmq.names import to_topic
from polymq.protocols.rocketmq.registration import DataVersion, TopicConfig, write_registration
from polymq.rocketmq_limits import REGISTRATION_TOPICS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.core.broker import Broker
    from polymq.core.group import GroupKind
    from polymq.core.ports import Clock
    from polymq.gateways.effects import Effect
    from polymq.protocols.rocketmq.events import Event
    from polymq.protocols.rocketmq.settings import RocketmqSettings

__all__ = ["Keeper", "NodeIdentity", "OwnTopics", "RegisteringGateway"]

_SECOND_NS: Final = 1_000_000_000
_NS_PER_MS: Final = 1_000_000
_CRC_MASK: Final = 0x7FFFFFFF
# RocketMQ's brokers wait so long as well.
_ANSWER_TIMEOUT_NS: Final = 6 * _SECOND_NS
# New topics go alone up to this number; of more, everything is told.
_FEW: Final = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What this node is called, and where it is found: HOST:PORT. `fixed`: topics that it has besides those in its log."""

    broker_name: str
    cluster: str
    address: str
    fixed: tuple[TopicConfig, ...] = ()

    def fields(self) -> dict[str, str]:
        """Give what 103 and 104 have."""
        return {"brokerName": self.broker_name, "brokerAddr": self.address, "clusterName": self.cluster, "brokerId": "0"}


class Keeper(Protocol):
    """Whoever sees to it that there is a connection."""

    def settle(self) -> None:
        """The name server has taken us in."""

    def lost(self, reason: str) -> None:
        """There is no connection any more."""


class OwnTopics:
    """What this node has, with a version that changes whenever that does. Follows the broker's catalogue."""

    def __init__(self, broker: Broker, clock: Clock, identity: NodeIdentity) -> None:
        self.identity = identity
        self._broker = broker
        self._clock = clock
        self._counter = 0
        self._stamp_ms = clock.wall_ns() // _NS_PER_MS
        self._told: dict[str, int] = {}
        self._body = b""
        self._warned = False
        self._listeners: dict[RegisteringGateway, None] = {}
        broker.follow(self)

    @property
    def version(self) -> DataVersion:
        """The version of what there is now."""
        return DataVersion(self._counter, self._stamp_ms)

    def listen(self, gateway: RegisteringGateway) -> None:
        """Tell a gateway of new topics from here on."""
        self._listeners[gateway] = None

    def leave(self, gateway: RegisteringGateway) -> None:
        """Tell it nothing more."""
        self._listeners.pop(gateway, None)

    def everything(self) -> bytes:
        """Write a registration of all that there is, up to REGISTRATION_TOPICS_MAX topics. Cost: O(topics), 1 µs each if nothing has changed."""
        names = self._broker.catalogue.names.page("", "", REGISTRATION_TOPICS_MAX + 1)
        if len(names) > REGISTRATION_TOPICS_MAX and not self._warned:
            self._warned = True
            log.warning("name servers elsewhere are told of the first %d topics, by name: there are more", REGISTRATION_TOPICS_MAX)
        found = self._queues_of(names[:REGISTRATION_TOPICS_MAX])
        if found != self._told or not self._body:
            self._told = found
            self._move_on()
            self._body = write_registration([*self.identity.fixed, *_configs(found)], self.version)
        return self._body

    def some(self, names: Iterable[str]) -> bytes:
        """Write a registration of some topics, by their names in the core."""
        return write_registration(_configs(self._queues_of(names)), self.version)

    def _queues_of(self, names: Iterable[str]) -> dict[str, int]:
        topics = self._broker.catalogue.topics
        fixed = {topic.name for topic in self.identity.fixed}
        found: dict[str, int] = {}
        for name in names:
            topic, there = to_topic(name), topics.get(("", name))
            if topic is not None and there is not None and topic not in fixed:
                found[topic] = len(there.partitions)
        return found

    def _move_on(self) -> None:
        self._counter += 1
        self._stamp_ms = max(self._stamp_ms, self._clock.wall_ns() // _NS_PER_MS)

    # -- the catalogue ---------------------------------------------------------------------------------------------

    def topic_created(self, namespace: str, topic: str) -> None:
        """Have it told."""
        if not namespace and to_topic(topic) is not None:
            self._body = b""
            self._move_on()
            for gateway in self._listeners:
                gateway.note(topic)

    def topic_deleted(self, namespace: str, topic: str) -> None:
        """Have it left out the next time. Name servers keep it until they are told to delete it (216), as with RocketMQ's brokers."""
        if not namespace:
            self._body = b""

    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Groups are not registered."""

    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Groups are not registered."""


def _configs(queues: dict[str, int]) -> list[TopicConfig]:
    return [TopicConfig(topic, count, count) for topic, count in queues.items()]


class RegisteringGateway(BaseGateway):
    """The node's side of one connection to a name server."""

    def __init__(self, own: OwnTopics, settings: RocketmqSettings, keeper: Keeper, clock: Clock, *, interval_ns: int) -> None:
        self._own = own
        self._keeper = keeper
        self._clock = clock
        self._interval_ns = interval_ns
        self._decoder = Decoder(settings, server=False)
        self.need = self._decoder.need
        self._opaque = 0
        self._waits = False  # for an answer
        self._due = True  # everything is to be told
        self._new: dict[str, None] = {}
        self._complaint = ""
        self._known = False
        self._leaving = False
        self._reason = "it has closed the connection"

    def note(self, topic: str) -> None:
        """Have a topic told, by its name in the core."""
        self._new[topic] = None
        self.ring()

    def leave(self) -> None:
        """Close: the name server is not to be told anything any more."""
        self._leaving = True
        self.ring()

    # -- the connection --------------------------------------------------------------------------------------------

    def opened(self, effects: list[Effect]) -> None:
        """Register."""
        self._own.listen(self)
        self._tell(effects)
        effects.append(SetTimer(TimerName.HEARTBEAT, self._clock.monotonic_ns() + self._interval_ns))

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Take the answers."""
        events: list[Event] = []
        consumed = self._decoder.feed(view, events)
        self.need = self._decoder.need or 1
        for event in events:
            if isinstance(event, Violation):
                self._fail("it sends what is no answer of a name server's", effects)
                return len(view)
            if isinstance(event, Request) and event.response and event.opaque == self._opaque and self._waits:
                self._answered(event, effects)
        return consumed

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Register anew, or see that the name server is gone."""
        if name is TimerName.HEARTBEAT:
            self._due = True
            self._tell(effects)
            effects.append(SetTimer(TimerName.HEARTBEAT, self._clock.monotonic_ns() + self._interval_ns))
        elif self._waits:
            self._fail(f"no answer within {_ANSWER_TIMEOUT_NS // _SECOND_NS} s", effects)

    def woken(self, effects: list[Effect]) -> None:
        """Tell of the topics that this turn has made."""
        if self._leaving:
            self._say_goodbye("no longer wanted", effects)
        else:
            self._tell(effects)

    def stopping(self, effects: list[Effect]) -> None:
        """Take ourselves out, so that nobody sends here any more."""
        self._say_goodbye("shutting down", effects)

    def ended(self) -> None:
        """Have somebody call again."""
        self._own.leave(self)
        if not self._leaving:
            self._keeper.lost(self._reason)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _tell(self, effects: list[Effect]) -> None:
        """Send what there is to tell, if no answer is missing."""
        if self._waits or self._leaving or not (self._due or self._new):
            return
        body = self._own.everything() if self._due or len(self._new) > _FEW else self._own.some(self._new)
        self._due = False
        self._new.clear()
        fields = self._own.identity.fields() | {
            "haServerAddr": self._own.identity.address,
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & _CRC_MASK),
        }
        self._waits = True
        effects.append(Send(self._request(RequestCode.REGISTER_BROKER, fields, body)))
        effects.append(SetTimer(TimerName.READ_DEADLINE, self._clock.monotonic_ns() + _ANSWER_TIMEOUT_NS))

    def _request(self, code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
        self._opaque += 1
        return encode_request(code, self._opaque, ext=fields, body=body)

    def _answered(self, answer: Request, effects: list[Effect]) -> None:
        self._waits = False
        effects.append(SetTimer(TimerName.READ_DEADLINE, None))
        complaint = "" if answer.code == 0 else f"code {answer.code}: {answer.remark or 'no reason given'}"
        if complaint and complaint != self._complaint:
            log.warning("a name server does not register this node as %s: %s", self._own.identity.broker_name, complaint)
        self._complaint = complaint
        if not complaint and not self._known:
            self._known = True
            log.info("registered as %s at %s", self._own.identity.broker_name, self._own.identity.address)
        self._keeper.settle()
        self._tell(effects)

    def _say_goodbye(self, reason: str, effects: list[Effect]) -> None:
        self._leaving = True
        self._reason = ""
        effects.append(Send(self._request(RequestCode.UNREGISTER_BROKER, self._own.identity.fields())))
        effects.append(Close(reason))

    def _fail(self, reason: str, effects: list[Effect]) -> None:
        self._reason = reason
        effects.append(Close(reason))
