"""Prepared batches on the real store, ended at every operation: each committed row is there once, nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.errors import Refusal
from polymq.testing.clock import FakeClock
from polymq.testing.disk import FakeFiles, SimulatedKill
from polymq.wire.batch import BatchHeader, Message, encode_message, read_messages, seal
from polymq.wire.tickets import TicketState

from .conftest import SECOND_NS
from .test_power_loss import Life

if TYPE_CHECKING:
    from polymq.core.prepared import Named

BATCHES = 2


def bodies_of(life: Life, topic: str) -> list[bytes]:
    """Everything that a topic has, sorted; what is on the disk is waited for."""
    if topic not in life.session.topic_names():
        return []
    reader, found = life.session.log(topic, 0).reader(0), list[bytes]()
    while True:
        piece = reader.take(1000, 1 << 20)
        if piece is not None:
            messages = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)
            found += [message.body for message in messages]
        elif not reader.waiting:
            return sorted(found)
        else:
            life.clock.advance(SECOND_NS // 100)
            life.turn()


def staged(topic: str, bodies: list[bytes], *, partition: int = -1, due_ns: int = 0) -> tuple[str, int, bool, bool, memoryview]:
    batch = bytearray(80) + b"".join(encode_message(Message(body, time_ns=due_ns)) for body in bodies)
    seal(batch, 0, len(batch), BatchHeader(count=len(bodies)))
    return topic, partition, bool(due_ns), False, memoryview(batch)


def rows(batch: int, part: int) -> dict[str, list[bytes]]:
    return {topic: [b"%s.%d.%d.%d" % (topic.encode(), batch, part, row) + b"." * 60 for row in range(9)] for topic in ("t", "u", "later")}


def write(life: Life, batch: int, attempt: int) -> list[Named]:
    """Let two tasks write, each in two requests, rows in an order of its own; gives what is to be committed. A lost attempt stays behind."""
    named: list[Named] = []
    for part in range(2):
        for lost in (True, False):
            name, count, tickets = f"{batch}-{part}-{attempt}-{lost}", 0, []
            for request in range(2):
                frames = []
                for topic, bodies in rows(batch, part).items():
                    share = bodies[request::2][:: -1 if attempt % 2 else 1]
                    due_ns = life.clock.wall_ns() + SECOND_NS * 3 if topic == "later" else 0
                    frames.append(staged(topic, share, due_ns=due_ns))
                    count += len(share)
                tickets.append(life.session.prepare("q", name, request, frames))
            for _ in range(9):
                life.turn()
            assert all(ticket.state is TicketState.DONE for ticket in tickets)
        named.append((name, 2, count))
    return named


def query(life: Life, done: set[int], attempt: int) -> None:
    """Do what Spark does: batches in order, one that is not known to be done again, with other attempts."""
    for batch in range(BATCHES):
        if batch in done:
            continue
        named = write(life, batch, attempt)
        for _ in range(50):
            if life.session.commit_prepared("q", batch, named, once=False):
                break
            life.turn()
        else:
            raise AssertionError("the commit never ends")
        life.turn()
        assert life.session.commit_prepared("q", batch, [("other", 1, 1)], once=False)
        done.add(batch)


@pytest.mark.parametrize("power_loss", [False, True])
def test_each_row_is_there_once_whatever_is_lost(power_loss: bool) -> None:
    wanted = {topic: [body for batch in range(BATCHES) for part in range(2) for body in rows(batch, part)[topic]] for topic in rows(0, 0)}
    for at in range(0, 2000, 3 if power_loss else 2):
        files, clock, done = FakeFiles(at), FakeClock(), set[int]()
        over = False
        files.kill_at = at
        attempt = 0
        while not over:
            try:
                life = Life(files, clock, attempt if power_loss else 0)
                query(life, done, attempt)
                over = True
            except SimulatedKill:
                attempt += 1
                files = files.crash(power_loss=power_loss)
                # The second life is ended early as well: the commit that goes on may be broken off again.
                files.kill_at = at % 37 if attempt == 1 else None
        if attempt == 0:
            return
        clock.advance(20 * SECOND_NS)
        for _ in range(20):
            clock.advance(SECOND_NS // 100)
            life.turn()
        for topic, bodies in wanted.items():
            assert bodies_of(life, topic) == sorted(bodies), (at, topic)
    raise AssertionError("the workload has more operations than that")


def test_nothing_is_seen_before_the_commit_and_only_what_it_names() -> None:
    life = Life(FakeFiles(1), FakeClock(), 0)
    named = write(life, 0, 0)
    assert not bodies_of(life, "t")
    with pytest.raises(Refusal, match="not 2 of 1"):
        life.session.commit_prepared("q", 0, [(named[0][0], 1, 2)], once=False)
    with pytest.raises(Refusal, match="not there"):
        life.session.commit_prepared("q", 0, [("unknown", 1, 1)], once=False)
    assert not life.session.commit_prepared("q", 0, named, once=False)
    for _ in range(20):
        life.turn()
    assert life.session.commit_prepared("q", 0, named, once=False)
    assert bodies_of(life, "t") == sorted(rows(0, 0)["t"] + rows(0, 1)["t"])
    # The others are gone.
    assert life.broker.prepared.size_bytes == 0
