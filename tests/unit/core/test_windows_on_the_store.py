"""Queues on the real store: what a kill leaves of settles by id, lifetimes and renewals, wherever it strikes."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from polymq.wire.slices import MessageBatch

from .conftest import SECOND_NS
from .fakes import FakeClock, Inbox
from .test_on_the_store import Process

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.core.group import Subscription


def filled(process: Process, *lifetimes: int, credit: int = 10) -> tuple[Subscription, Inbox]:
    """A queue with messages, and a consumer of it."""
    process.session.ensure_queue("q", "g")
    bodies = MessageBatch.of([b"%d" % index for index in range(len(lifetimes))])
    process.session.publish_expiring("q", bodies, memoryview(array("q", lifetimes)), unit_ns=SECOND_NS, origin=4)
    return consuming(process, credit)


def consuming(process: Process, credit: int = 10) -> tuple[Subscription, Inbox]:
    inbox = Inbox()
    consumer = process.session.subscribe("q", "g", listener=inbox, lease_ns=1 << 61)
    process.session.credit(consumer, credit)
    process.turn()
    return consumer, inbox


def left(folder: Path, clock: FakeClock) -> list[bytes]:
    """What the next process delivers."""
    process = Process(folder, clock)
    _consumer, inbox = consuming(process, 100)
    process.end(clean=True)
    return [body for body, _attempts in inbox.got]


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_settles_by_id_outlive_the_process(tmp_path: Path, clean: bool) -> None:
    clock = FakeClock()
    process = Process(tmp_path, clock)
    consumer, inbox = filled(process, *[0] * 6)
    ids = memoryview(array("q", inbox.ids))
    process.session.settle_any("q", "g", ids, 0, 2)
    process.session.give_back(consumer)
    process.session.credit(consumer, 0)
    process.session.settle_any("q", "g", ids, 4, 1)
    process.turn()
    process.end(clean=clean)
    assert left(tmp_path, clock) == [b"2", b"3", b"5"]


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_lifetimes_go_on_across_a_restart(tmp_path: Path, clean: bool) -> None:
    clock = FakeClock()
    process = Process(tmp_path, clock)
    filled(process, 5, 0, 50, 5, credit=2)
    process.end(clean=clean)
    clock.now_ns += 5 * SECOND_NS
    assert left(tmp_path, clock) == [b"1", b"2"]
    assert left(tmp_path, clock) == [b"1", b"2"]


@pytest.mark.parametrize("turns", range(5), ids=lambda turns: f"killed after {turns} steps")
def test_a_kill_while_a_message_is_renewed_leaves_it_at_least_once(tmp_path: Path, turns: int) -> None:
    clock = FakeClock()
    process = Process(tmp_path, clock)
    _consumer, inbox = filled(process, 5, 0)
    assert process.session.renew("q", "g", inbox.ids[0], lifetime_ns=500 * SECOND_NS)
    steps = [process.broker.tick, process.store.commit, process.broker.tick, process.store.commit]
    for step in steps[:turns]:
        step()
    process.end(clean=False)
    # Without the copy it is as it was: over after five seconds.
    found = left(tmp_path, clock)
    assert found == ([b"0", b"1", b"0"] if turns >= 2 else [b"0", b"1"])
    clock.now_ns += 6 * SECOND_NS
    assert left(tmp_path, clock) == ([b"1", b"0"] if turns >= 2 else [b"1"])


def test_a_renewed_message_is_there_once_when_all_is_synced(tmp_path: Path) -> None:
    clock = FakeClock()
    process = Process(tmp_path, clock)
    consumer, inbox = filled(process, 5, 0, credit=1)
    assert process.session.renew("q", "g", inbox.ids[0], lifetime_ns=0)
    for _ in range(3):
        clock.now_ns += 2 * SECOND_NS
        process.turn()
    assert [body for body, _attempts in inbox.got] == [b"0", b"1"]
    assert consumer.leased == 1
    process.end(clean=False)
    assert left(tmp_path, clock) == [b"1", b"0"]


def test_a_buried_message_is_in_one_of_two_places(tmp_path: Path) -> None:
    clock = FakeClock()
    process = Process(tmp_path, clock)
    _consumer, inbox = filled(process, 0, 0)
    assert process.session.bury("q", "g", inbox.ids[0])
    for _ in range(3):
        clock.now_ns += 2 * SECOND_NS
        process.turn()
    process.end(clean=False)
    assert left(tmp_path, clock) == [b"1"]
    process = Process(tmp_path, clock)
    found = process.session.browse("q.g.dead", 0, 0)
    assert found is not None
    assert [view.message.body for view in found] == [b"0"]
    process.end(clean=True)
