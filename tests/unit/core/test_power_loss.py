"""The core on the real store, on a disk that loses any part of what is not synced, ended at every operation.

Invariants: a deferred message is in its partition at most once, and once as soon as its publish was durable; a message
that was durable and not settled by its consumer is there, or among the dead letters.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from polymq.core.access import ANONYMOUS
from polymq.core.broker import Broker
from polymq.core.policies import GroupPolicy
from polymq.store.settings import StoreSettings
from polymq.store.store import Store
from polymq.store.workers import InlineWorker
from polymq.testing.clock import FakeClock
from polymq.testing.disk import FakeFiles, SimulatedKill
from polymq.wire.records import read_messages
from polymq.wire.slices import MessageBatch

from .conftest import SECOND_NS
from .fakes import Inbox

if TYPE_CHECKING:
    from polymq.core.session import Session

SMALL = StoreSettings(segment_size_bytes_first=4096, segment_size_bytes_max=8192, batch_size_bytes_target=512, free_bytes_min=0)


class Life:
    """One process on the disk; `boot` differs from the last one's if the power had failed."""

    def __init__(self, files: FakeFiles, clock: FakeClock, boot: int) -> None:
        self.clock = clock
        chance = random.Random(boot)
        self.store = Store.open(
            files, InlineWorker(), clock=clock, boot_id=str(boot), random_u64=lambda: chance.getrandbits(63), settings=SMALL
        )
        self.broker = Broker(self.store, clock, chance)
        self.broker.start()
        self.session: Session = self.broker.session(ANONYMOUS)

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.broker.tick()
            self.store.commit()
            self.store.poll()
            for delivery in self.broker.dispatch():
                delivery.subscription.listener.take(delivery)  # type: ignore[attr-defined]

    def synced(self) -> None:
        """Let the next commit sync."""
        self.clock.advance(SECOND_NS)
        self.turn(2)

    def bodies(self, topic: str) -> Counter[bytes]:
        if topic not in self.session.topic_names():
            return Counter()
        log = self.session.log(topic, 0)
        reader, found = log.reader(0), Counter[bytes]()
        while (piece := reader.take(1000, 1 << 20)) is not None:
            rows = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)
            found.update(message.body for message in rows)
        return found


def deferred(life: Life, promised: set[bytes]) -> None:
    """Publish for later, in three lots; let the first two fall due, and messages without delay come between."""
    life.session.create_topic("t", sync=False)
    life.session.create_group("t", "g")
    for lot in range(3):
        bodies = [b"%d.%d" % (lot, index) + b"." * 100 for index in range(6)]
        life.session.publish("t", MessageBatch.of(bodies), origin=1, delay_ns=(lot + 1) * 3 * SECOND_NS)
        life.turn()
        life.synced()
        promised.update(bodies)
    for _ in range(9):
        life.session.publish("t", MessageBatch.of([b"now"]), origin=1)
        life.turn()
        life.clock.advance(SECOND_NS // 4)
        life.turn()


@pytest.mark.parametrize("power_loss", [False, True])
def test_deferred_messages_are_released_once_whatever_is_lost(power_loss: bool) -> None:
    for at in range(400):
        files, clock, promised = FakeFiles(at), FakeClock(), set[bytes]()
        files.kill_at = at
        over = False
        try:
            deferred(Life(files, clock, 0), promised)
            over = True
        except SimulatedKill:
            pass
        for boot in (1, 2):
            files = files.crash(power_loss=power_loss)
            life = Life(files, clock, boot if power_loss else 0)
            if "t" in life.session.topic_names():
                life.turn()
                # The second start finds what the first one has said about it, or some of it.
                if boot == 1:
                    files.kill_at = at % 12
                    try:
                        life.turn(3)
                    except SimulatedKill:
                        continue
        clock.advance(20 * SECOND_NS)
        for _ in range(20):
            # What is read from the disk is looked for again a little later.
            clock.advance(SECOND_NS // 100)
            life.turn()
        found = life.bodies("t")
        found.pop(b"now", None)
        assert max(found.values(), default=1) == 1, at
        assert promised <= set(found), at
        if over:
            return
    raise AssertionError("the workload has more operations than that")


def given_up(life: Life, promised: set[bytes]) -> None:
    """Let messages be tried twice and become dead letters."""
    life.session.create_topic("t")
    life.session.create_group("t", "g")
    life.session.set_group_policy("t", "g", GroupPolicy(max_attempts=2))
    bodies = [b"%d" % index + b"." * 60 for index in range(8)]
    life.session.publish("t", MessageBatch.of(bodies), origin=1)
    life.turn()
    life.synced()
    promised.update(bodies)
    box = Inbox()
    consumer = life.session.subscribe("t", "g", listener=box, lease_ns=100 * SECOND_NS)
    life.session.credit(consumer, 3)
    for _ in range(12):
        life.turn()
        for message_id in box.ids:
            life.session.requeue(consumer, message_id, delay_ns=0)
        box.ids.clear()
        life.clock.advance(SECOND_NS // 3)
    life.turn(3)
    life.synced()


@pytest.mark.parametrize("power_loss", [False, True])
def test_dead_letters_are_nowhere_only_if_they_were_never_promised(power_loss: bool) -> None:
    for at in range(400):
        files, clock, promised = FakeFiles(at), FakeClock(), set[bytes]()
        files.kill_at = at
        over = False
        try:
            given_up(Life(files, clock, 0), promised)
            over = True
        except SimulatedKill:
            pass
        life = Life(files.crash(power_loss=power_loss), clock, int(power_loss))
        box = Inbox()
        if "t" in life.session.topic_names():
            if "g" in [group.name for group in getattr(life.session.topic("t"), "groups", ())]:
                life.session.set_group_policy("t", "g", GroupPolicy())
            consumer = life.session.subscribe("t", "g", listener=box, lease_ns=100 * SECOND_NS)
            life.session.credit(consumer, 100)
            life.turn(3)
            life.session.settle(consumer, memoryview(array("q", box.ids)), 0, len(box.ids))
        assert promised <= set(box.bodies) | set(life.bodies("t.g.dead")), at
        if over:
            assert life.bodies("t.g.dead")
            return
    raise AssertionError("the workload has more operations than that")
