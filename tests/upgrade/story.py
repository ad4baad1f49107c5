"""What lies in the data folders kept from earlier formats, and how they were made.

    python -m tests.upgrade.story tests/upgrade/format-1

writes the folder of the current format; that is done once per format, when it is released, and committed.
"""

from __future__ import annotations

import itertools
import random
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from polymq.core.access import ANONYMOUS
from polymq.core.broker import Broker
from polymq.core.group import GroupKind
from polymq.store.files import RealFiles
from polymq.store.store import Store
from polymq.store.workers import InlineWorker
from polymq.wire.records import Message, read_messages
from polymq.wire.slices import MessageBatch

if TYPE_CHECKING:
    from polymq.core.group import Delivery
    from polymq.core.session import Session

SECOND_NS = 1_000_000_000
# The folder was written at this time; what is deferred in it is due 10 and 20 seconds later.
WRITTEN_AT_NS = 1_763_000_000 * SECOND_NS
SETTLED = 7
ORDERS = [b"order %d" % index for index in range(20)]
RICH = Message(b"rich", key=b"k", headers=((b"n", b"v"),), extras=((2, b"tag"),), time_ns=WRITTEN_AT_NS - 5, expiry_ns=WRITTEN_AT_NS * 2)


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return WRITTEN_AT_NS + self.now_ns


class Inbox:
    def __init__(self) -> None:
        self.messages: list[tuple[Message, int]] = []
        self.ids: list[int] = []

    def closed(self, reason: str) -> None:
        raise AssertionError(reason)

    def take(self, delivery: Delivery) -> None:
        piece = delivery.slice
        found = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)
        self.messages += [(message, delivery.attempts) for message in found]
        first = piece.partition << 41 | piece.offset
        self.ids += range(first, first + piece.count)


class Process:
    """A broker over a folder, without sockets."""

    def __init__(self, folder: Path) -> None:
        numbers = itertools.count(1)
        self.clock = Clock()
        self.store = Store.open(RealFiles(str(folder)), InlineWorker(), clock=self.clock, boot_id="boot", random_u64=lambda: next(numbers))
        self.broker = Broker(self.store, self.clock, random.Random(1))
        self.broker.start()
        self.session: Session = self.broker.session(ANONYMOUS)

    def turn(self) -> None:
        for _ in range(30):
            self.broker.tick()
            self.store.commit()
            self.store.poll()
            for delivery in self.broker.dispatch():
                delivery.subscription.listener.take(delivery)  # type: ignore[attr-defined]

    def consume(self, topic: str, group: str, credit: int) -> Inbox:
        inbox = Inbox()
        subscription = self.session.subscribe(topic, group, listener=inbox, lease_ns=1000 * SECOND_NS)
        self.session.credit(subscription, credit)
        self.turn()
        return inbox

    def stop(self) -> None:
        self.broker.stop()
        self.broker.snapshot()
        self.store.commit()
        self.store.close(clean=True)


def write(folder: Path) -> None:
    """Live the story that the test of the folder knows."""
    folder.mkdir(parents=True)
    process = Process(folder)
    session = process.session
    session.create_topic("orders", partitions=2)
    session.create_group("orders", "billing")
    session.create_group("orders", "audit")
    session.create_topic("backlog")
    session.create_topic("rich", sync=True)
    session.create_group("rich", "g")
    for body in ORDERS:
        session.publish("orders", MessageBatch.of([body]), origin=1)
    session.publish("backlog", MessageBatch.of([b"waits"]), origin=1)
    session.publish("orders", MessageBatch.of([b"later"]), origin=1, delay_ns=20 * SECOND_NS)
    session.log("rich", 0).append_messages([RICH], now_ns=WRITTEN_AT_NS, origin=2)
    inbox = process.consume("orders", "billing", 10)
    consumer = session.subscriptions[0]
    session.settle(consumer, memoryview(array("q", inbox.ids)), 0, SETTLED)
    session.requeue(consumer, inbox.ids[SETTLED], delay_ns=10 * SECOND_NS)
    session.credit(consumer, 0)
    session.pause_group("orders", "audit", paused=True)
    session.commit_offset("orders", "reader", 1, 3)
    assert process.broker.catalogue.topics["", "orders"].groups["reader"].kind is GroupKind.CURSOR
    process.turn()
    process.stop()
    # Entries behind the snapshot, and a life that did not end in order.
    process = Process(folder)
    process.session.publish("backlog", MessageBatch.of([b"second life"]), origin=1)
    process.session.pause_topic("backlog", paused=True)
    process.turn()
    process.store.close(clean=False)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
