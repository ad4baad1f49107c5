from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, cast

import pytest

from polymq.core.access import ANONYMOUS
from polymq.core.broker import Broker
from polymq.core.settings import CoreSettings
from polymq.wire.batch import ATTRIBUTE_RENEWED, ORIGIN_NONE, encode_message
from polymq.wire.slices import MessageBatch

from .fakes import FakeClock, FakeRandom, FakeStore, Inbox

if TYPE_CHECKING:
    from polymq.core.group import Subscription
    from polymq.core.ports import Store
    from polymq.core.session import Session
    from polymq.core.views import TopicView
    from polymq.errors import RefusalCode
    from polymq.wire.batch import Message

SECOND_NS = 1_000_000_000


class World:
    """A broker on fakes, with verbs that tests read well with."""

    def __init__(self, partitions: int) -> None:
        self.clock = FakeClock()
        self.store = FakeStore()
        self.settings = CoreSettings(partitions=partitions)
        self.restart()

    def restart(self, *, cut: bool = True) -> None:
        """A new process on the same data folder; `cut`: what readers had not seen is gone."""
        for log in self.store.logs.values():
            if cut:
                log.end = log.readable
        self.broker = Broker(cast("Store", self.store), self.clock, FakeRandom(), settings=self.settings)
        self.broker.start()
        self.session: Session = self.broker.session(ANONYMOUS)

    def turn(self) -> None:
        """What the pump does, until there is nothing more to hand out."""
        for _ in range(1000):
            self.broker.tick()
            self.store.commit()
            for delivery in self.broker.dispatch():
                delivery.subscription.listener.take(delivery)  # type: ignore[attr-defined]
            due_ns = self.broker.due_ns()
            if due_ns is None or due_ns > self.clock.now_ns:
                return
        raise AssertionError("the broker never comes to rest")

    def publish(self, topic: str, *bodies: bytes, delay_ns: int = 0) -> None:
        self.session.publish(topic, MessageBatch.of(bodies), origin=1, delay_ns=delay_ns)

    def consume(self, topic: str, group: str, credit: int, *, lease_ns: int = 60 * SECOND_NS, **kind: object) -> Subscription:
        subscription = self.session.subscribe(topic, group, listener=Inbox(), lease_ns=lease_ns, **kind)  # type: ignore[arg-type]
        if credit:
            self.session.credit(subscription, credit)
        return subscription

    def renew(self, topic: str, message: Message) -> None:
        """Append what stands in for an earlier message, as for a group that has put it back."""
        found = self.broker.catalogue.topics["", topic]
        log, now_ns = found.partitions[0].log, self.clock.wall_ns()
        log.append_records(encode_message(message, now_ns), 1, now_ns=now_ns, origin=ORIGIN_NONE, attributes=ATTRIBUTE_RENEWED)
        self.broker.kernel.appended(found)
        self.turn()

    def settle(self, subscription: Subscription, *ids: int) -> list[tuple[int, RefusalCode]]:
        return self.session.settle(subscription, memoryview(array("q", ids)), 0, len(ids))

    def view(self, topic: str = "t") -> TopicView:
        found = self.session.topic(topic)
        assert found is not None
        return found

    def wait(self, seconds: float) -> None:
        self.clock.now_ns += int(seconds * SECOND_NS)
        self.turn()


def inbox(subscription: Subscription) -> Inbox:
    listener = subscription.listener
    assert isinstance(listener, Inbox)
    return listener


@pytest.fixture(params=[1, 4], ids=["one partition", "four partitions"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


@pytest.fixture
def single() -> World:
    return World(1)
