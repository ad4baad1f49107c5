"""The core on the real store: what the fakes of the other tests may be too kind to show."""

from __future__ import annotations

import random
import secrets
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from polymq.core.access import ANONYMOUS
from polymq.core.broker import Broker
from polymq.core.policies import TopicPolicy
from polymq.core.settings import CoreSettings
from polymq.store import files as files_module
from polymq.store.files import RealFiles
from polymq.store.store import Store
from polymq.store.workers import InlineWorker
from polymq.wire.slices import MessageBatch
from polymq.wire.tickets import TicketState

from .fakes import FakeClock, Inbox

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from polymq.core.session import Session


class Process:
    """A broker over a folder, which can be left in order or as a kill leaves it."""

    def __init__(self, folder: Path, clock: FakeClock, *, sync: bool = False) -> None:
        self.clock = clock
        self.store = Store.open(
            RealFiles(str(folder)), InlineWorker(), clock=clock, boot_id="boot", random_u64=lambda: secrets.randbits(63)
        )
        self.broker = Broker(self.store, clock, random.Random(1), settings=CoreSettings(sync=sync))
        self.broker.start()
        self.session: Session = self.broker.session(ANONYMOUS)

    def turn(self) -> None:
        for _ in range(50):
            self.broker.tick()
            self.store.commit()
            self.store.poll()
            for delivery in self.broker.dispatch():
                delivery.subscription.listener.take(delivery)  # type: ignore[attr-defined]

    def end(self, *, clean: bool) -> None:
        if clean:
            self.broker.stop()
            self.broker.snapshot()
        self.store.close(clean=clean)


@pytest.mark.parametrize("sync", [False, True], ids=["cache", "fsync"])
def test_who_changes_nothing_is_answered_too(tmp_path: Path, sync: bool) -> None:
    clock = FakeClock()
    states = []
    for _ in range(2):
        process = Process(tmp_path, clock, sync=sync)
        for _ in range(2):
            # Nobody publishes: but for the first time there is nothing to write down.
            process.session.subscribe("t", "g", listener=Inbox(), lease_ns=10**9)
            ticket = process.session.journaled()
            process.turn()
            states.append(ticket.state)
        process.end(clean=False)
    assert states == [TicketState.DONE] * 4


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_folder_with_all_kinds_of_things_starts_again(tmp_path: Path, clean: bool) -> None:
    clock = FakeClock()
    first = Process(tmp_path, clock)
    first.session.ensure_topic("e#ephemeral", ephemeral=True)
    first.session.publish("e#ephemeral", MessageBatch.of([b"gone"]), origin=1)
    first.session.publish("e#ephemeral", MessageBatch.of([b"gone"]), origin=1, delay_ns=10**9)
    first.session.create_topic("t", partitions=3)
    inbox = Inbox()
    consumer = first.session.subscribe("t", "g", listener=inbox, lease_ns=10**9)
    first.session.credit(consumer, 2)
    for index in range(6):
        first.session.publish("t", MessageBatch.of([b"%d" % index]), origin=1)
    first.session.publish("t", MessageBatch.of([b"later"]), origin=1, delay_ns=5 * 10**9)
    first.session.create_topic("empty")
    first.session.create_topic("deleted")
    first.turn()
    first.session.delete_topic("deleted")
    settled = inbox.bodies[0]
    first.session.requeue(consumer, inbox.ids[1], delay_ns=3 * 10**9)
    first.turn()

    first.session.settle(consumer, memoryview(array("q", inbox.ids[:1])), 0, 1)
    first.session.credit(consumer, 0)
    first.turn()
    first.end(clean=clean)
    for _ in range(2):
        second = Process(tmp_path, clock)
        assert second.session.topic_names() == ["empty", "t"]
        second.end(clean=clean)
    third = Process(tmp_path, clock)
    again = Inbox()
    subscription = third.session.subscribe("t", "g", listener=again, lease_ns=10**12)
    third.session.credit(subscription, 100)
    third.turn()
    before = set(again.bodies)
    clock.now_ns += 10 * 10**9
    third.turn()
    assert set(again.bodies) == {b"%d" % index for index in range(6)} - {settled} | {b"later"}
    assert len(again.bodies) == 6
    assert b"later" not in before
    third.end(clean=True)


def test_attempts_survive_a_clean_stop(tmp_path: Path) -> None:
    clock = FakeClock()
    first = Process(tmp_path, clock)
    inbox = Inbox()
    consumer = first.session.subscribe("t", "g", listener=inbox, lease_ns=10**9)
    first.session.credit(consumer, 1)
    first.session.publish("t", MessageBatch.of([b"x"]), origin=1)
    first.turn()
    clock.now_ns += 10**9
    first.turn()
    assert inbox.got == [(b"x", 1), (b"x", 2)]
    first.end(clean=True)
    second = Process(tmp_path, clock)
    again = Inbox()
    second.session.credit(second.session.subscribe("t", "g", listener=again, lease_ns=10**9), 1)
    second.turn()
    assert again.got == [(b"x", 3)]
    second.end(clean=True)


def test_single_messages_are_looked_at_wherever_they_lie(tmp_path: Path) -> None:
    clock = FakeClock()
    first = Process(tmp_path, clock)
    first.session.create_topic("t")
    first.session.create_group("t", "g")
    for index in range(300):
        first.session.publish("t", MessageBatch.of([b"%d" % index + bytes(1000)]), origin=1)
        first.session.publish("t", MessageBatch.of([b"%d" % index]), origin=1, delay_ns=(index + 1) * 10**9)
        if index % 50 == 0:
            first.turn()
            clock.now_ns += 10**9
    first.turn()
    since_ns = clock.wall_ns()
    first.session.publish("t", MessageBatch.of([b"last"]), origin=1)
    first.turn()
    for clean in (True, False):
        first.end(clean=clean)
        first = Process(tmp_path, clock)
        first.turn()
        session = first.session
        waiting = pages(first, lambda after, session=session: session.scheduled("t", after=after))  # type: ignore[misc]
        assert len(waiting) == len({view.id for view in waiting}) > 280
        seen = pages(first, lambda after, session=session: session.peek("t", "g", after=after))  # type: ignore[misc]
        bodies = [view.message.body.rstrip(b"\0") for view in seen]
        assert [body for body in bodies if body != b"last"][:3] == [b"0", b"1", b"2"]
        assert len(bodies) >= 301
        while (page := session.browse("t", 0, seen[200].offset, count_max=2)) is None:
            first.turn()
        assert [view.message for view in page] == [view.message for view in seen[200:202]]
    while not first.session.replay("t", "g", time_ns=since_ns):
        first.turn()
    bodies = [view.message.body for view in pages(first, lambda after: first.session.peek("t", "g", after=after))]
    assert b"last" in bodies
    assert len(bodies) < 60  # by batch: what was published in the turn before comes along
    first.end(clean=True)


class MovingClock(FakeClock):
    """No two looks at it tell the same time."""

    def wall_ns(self) -> int:
        self.now_ns += 137
        return super().wall_ns()


@pytest.mark.parametrize("groups", [1, 20])
def test_what_is_too_old_is_found_on_the_disk_while_time_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    # Nothing is taken for granted to be in memory: each question about time is one for the disk.
    monkeypatch.setattr(files_module, "_READ_NOWAIT", None)
    process = Process(tmp_path, MovingClock())
    session = process.session
    session.create_topic("t")
    for index in range(groups):
        session.create_group("t", f"g{index}")
    session.set_topic_policy("t", TopicPolicy(ttl_ns=10**9))
    for index in range(100):
        session.publish("t", MessageBatch.of([b"%d" % index + bytes(400)]), origin=1)
        process.store.commit()
    process.clock.now_ns += 5 * 10**9
    session.publish("t", MessageBatch.of([b"new"]), origin=1)
    process.store.commit()
    inboxes = [Inbox() for _ in range(groups)]
    for index, inbox in enumerate(inboxes):
        session.credit(session.subscribe("t", f"g{index}", listener=inbox, lease_ns=10**12), 50)
    process.turn()
    assert [inbox.bodies for inbox in inboxes] == [[b"new"]] * groups
    found = session.topic("t")
    assert found is not None
    assert [group.expired_count for group in found.groups] == [100] * groups
    process.end(clean=True)


def pages(process: Process, ask: Callable[[int], list[Any] | None]) -> list[Any]:
    """Ask for one page behind the other, again while the disk is read."""
    found: list[Any] = []
    for _ in range(1000):
        page = ask(found[-1].id if found else -1)
        if page is None:
            process.turn()
        elif not page:
            return found
        else:
            found += page
    raise AssertionError("the list has no end")
