"""A house over the real core on a fake store, and clients of it without a connection: handlers are called as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import orjson

from polymq.core.broker import Broker
from polymq.core.settings import CoreSettings
from polymq.errors import Refusal
from polymq.gateways.contract import Peer
from polymq.gateways.rocketmq import heartbeats, locks, returns
from polymq.gateways.rocketmq.answers import Answer, RequestProblem, refused
from polymq.gateways.rocketmq.house import Facts, House
from polymq.protocols.rocketmq.events import Request
from polymq.protocols.rocketmq.settings import RocketmqSettings
from tests.unit.core.fakes import FakeClock, FakeRandom, FakeStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.core.access import Principal
    from polymq.core.ports import Store
    from polymq.gateways.rocketmq.client import RocketmqClient

__all__ = ["SECOND_NS", "Caller", "GroupWorld", "heartbeat", "subscription"]

SECOND_NS = 1_000_000_000
HANDLERS = {**heartbeats.HANDLERS, **locks.HANDLERS, **returns.HANDLERS}


@dataclass
class Caller:
    """A client, as far as handlers need one."""

    world: GroupWorld
    said: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    gone: bool = False
    is_full: bool = False
    is_spent: bool = False

    def __post_init__(self) -> None:
        self.house = self.world.house
        self.session = self.house.session()
        self.peer = Peer("192.0.2.9", 44472)
        self.store_host = b"\x7f\0\0\1"
        self.born_host = b"\xc0\0\2\x09"

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def send_request(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        self.said.append((code, ext))

    def answer(self, request: Request, answer: Answer) -> None:
        self.answers.append(answer)

    def carry_on(self, step: Callable[[], bool]) -> bool:
        return step()

    def ask(self, code: int, body: object = b"", said: Mapping[str, str] | None = None, *, version: int = 409, **ext: str) -> Answer:
        """Ask for something; gives the answer, which may have come later in the same turn."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        request = Request(code, 1, 0, {**(said or {}), **ext}, data, version=version)
        try:
            answer = HANDLERS[code](cast("RocketmqClient", self), request)
        except RequestProblem as problem:
            answer = problem.answer
        except Refusal as refusal:
            answer = refused(refusal)
        self.world.turn()
        return answer or self.answers.pop(0)


class GroupWorld:
    """A broker that can be started again on what it has stored."""

    def __init__(self, *, principal: Principal | None = None) -> None:
        self.clock = FakeClock()
        self.store = FakeStore()
        self.principal = principal
        self.restart()

    def restart(self) -> None:
        """A new process on the same data folder, after a kill."""
        for log in self.store.logs.values():
            log.end = log.readable
        self.broker = Broker(cast("Store", self.store), self.clock, FakeRandom(), settings=CoreSettings(partitions=4))
        self.broker.start()
        facts = Facts(host="127.0.0.1", port=20911)
        more = {} if self.principal is None else {"principal": self.principal}
        self.house = House(self.broker, self.clock, FakeRandom(), RocketmqSettings(), facts, **more)

    def caller(self) -> Caller:
        return Caller(self)

    def turn(self, duration_ns: int = 0) -> None:
        """What the pump does, until there is nothing more to do."""
        self.clock.now_ns += duration_ns
        for _ in range(100):
            self.broker.tick()
            self.store.commit()
            self.broker.dispatch()
            due_ns = self.broker.due_ns()
            if due_ns is None or due_ns > self.clock.now_ns:
                return
        raise AssertionError("the broker never comes to rest")


def subscription(topic: str, expression: str = "*", version: int = 1, **more: object) -> dict[str, object]:
    """What a client says that it wants of a topic."""
    tags = [] if expression == "*" else [tag.strip() for tag in expression.split("||")]
    said = {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": expression, "subVersion": version}
    return {**said, "tagsSet": tags, "topic": topic, **more}


def heartbeat(
    client_id: str, *groups: str, topic: str = "T", producers: tuple[str, ...] = (), version: int = 1, **more: object
) -> dict[str, object]:
    """What a client says every 30 seconds."""
    consumers = [
        {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": group,
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [subscription(topic, version=version), subscription(f"%RETRY%{group}", version=version)],
            "unitMode": False,
            **more,
        }
        for group in groups
    ]
    return {"clientID": client_id, "consumerDataSet": consumers, "producerDataSet": [{"groupName": name} for name in producers]}
