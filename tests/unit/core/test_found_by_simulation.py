"""What simulated runs have found in the core, as small as it gets; the number of the seed is in the name."""

from __future__ import annotations

from array import array
from random import Random
from typing import TYPE_CHECKING

from polymq.core.access import ANONYMOUS
from polymq.core.broker import Broker
from polymq.store.settings import StoreSettings
from polymq.store.store import Store
from polymq.testing.clock import FakeClock
from polymq.testing.disk import DiskFault, FakeFiles
from polymq.testing.worker import FakeWorker
from polymq.wire.slices import MessageBatch

from .fakes import Inbox

if TYPE_CHECKING:
    from polymq.core.views import TopicView

SECOND_NS = 1_000_000_000
MS = 1_000_000


class Process:
    """A broker on a fake disk whose syncs take as long as the test wants."""

    def __init__(self, files: FakeFiles, clock: FakeClock, *, sync_ns: int = 0, boot_id: str = "boot") -> None:
        self.files, self.clock = files, clock
        self.worker = FakeWorker(clock, 1, delay_ns_max=sync_ns)
        settings = StoreSettings(free_bytes_min=0, reserved_part_max=1.0)
        self.store = Store.open(files, self.worker, clock=clock, boot_id=boot_id, random_u64=lambda: 7, settings=settings)
        self.broker = Broker(self.store, clock, Random(1))
        self.broker.start()
        self.session = self.broker.session(ANONYMOUS)

    def turn(self, count: int = 5) -> None:
        for _ in range(count):
            self.broker.tick()
            self.store.commit()
            self.store.poll()
            for delivery in self.broker.dispatch():
                delivery.subscription.listener.take(delivery)  # type: ignore[attr-defined]

    def wait(self, for_ns: int) -> None:
        for _ in range(20):
            self.clock.advance(for_ns // 20)
            self.turn()

    def consume(self, topic: str, group: str) -> Inbox:
        inbox = Inbox()
        self.subscription = self.session.subscribe(topic, group, listener=inbox, lease_ns=60 * SECOND_NS)
        self.session.credit(self.subscription, 100)
        return inbox

    def settle(self, inbox: Inbox) -> None:
        ids = memoryview(array("q", inbox.ids))
        assert self.session.settle(self.subscription, ids, 0, len(ids)) == []

    def view(self) -> TopicView:
        found = self.session.topic("t")
        assert found is not None
        return found


def publish(process: Process, *bodies: bytes, delay_ns: int = 0) -> None:
    process.session.publish("t", MessageBatch.of(bodies), origin=1, delay_ns=delay_ns)


def test_seed_28_emptying_a_group_drops_a_deferred_message_that_is_being_synced() -> None:
    process = Process(FakeFiles(), FakeClock())
    process.session.create_topic("t", sync=True)
    inbox = process.consume("t", "g")
    publish(process, b"deferred", delay_ns=50 * MS)
    process.turn()
    process.clock.advance(60 * MS)
    process.worker.delay_ns_max = 100 * MS
    process.turn(1)
    assert process.view().partitions[0].end == 1
    assert inbox.bodies == []
    process.session.empty_group("t", "g")
    process.wait(2 * SECOND_NS)
    assert inbox.bodies == []


def test_seed_379_what_a_paused_topic_is_emptied_of_does_not_come_between_messages_that_were_dropped_before() -> None:
    process = Process(FakeFiles(), FakeClock())
    process.session.create_topic("t")
    inbox = process.consume("t", "g")
    process.session.pause_topic("t", paused=True)
    publish(process, b"deferred", delay_ns=50 * MS)
    process.session.empty_group("t", "g")
    publish(process, b"before")
    process.turn()
    process.wait(100 * MS)  # the deferred message is appended behind `before`, and left out
    publish(process, b"after")
    process.turn()
    process.session.empty_topic("t")
    process.session.pause_topic("t", paused=False)
    publish(process, b"last")
    process.turn()
    assert inbox.bodies == [b"last"]
    assert process.view().groups[0].depth == 0


def test_seed_105_settles_of_a_log_that_a_start_could_not_read_are_not_forgotten() -> None:
    clock = FakeClock()
    first = Process(FakeFiles(), clock)
    first.session.create_topic("t")
    inbox = first.consume("t", "g")
    publish(first, b"one", b"two")
    first.turn()
    first.settle(inbox)
    first.wait(2 * SECOND_NS)
    files = first.files.crash()
    files.faults.append(DiskFault("read", path="partitions/"))
    second = Process(files, clock, boot_id="another, so that every log is looked at")
    assert "cannot be read" in second.session.health()[0]
    second.turn()
    third = Process(second.files.crash(), clock)
    again = third.consume("t", "g")
    publish(third, b"three")
    third.wait(2 * SECOND_NS)
    assert again.bodies == [b"three"]


def test_seed_1117_what_was_stepped_over_stays_so_when_only_a_requeue_behind_it_was_written_down() -> None:
    clock = FakeClock()
    first = Process(FakeFiles(), clock)
    first.session.create_topic("t")
    inbox = first.consume("t", "g")
    publish(first, b"settled")
    first.turn()
    first.settle(inbox)
    first.session.pause_topic("t", paused=True)
    publish(first, b"dropped")
    first.turn()
    first.session.empty_topic("t")
    first.session.pause_topic("t", paused=False)
    publish(first, b"again")
    first.turn()
    first.session.requeue(first.subscription, inbox.ids[-1], delay_ns=0)
    first.session.credit(first.subscription, 0)
    first.turn()
    second = Process(first.files.crash(), clock)
    after = second.consume("t", "g")
    second.wait(SECOND_NS)
    assert after.bodies == [b"again"]
