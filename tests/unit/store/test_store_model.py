"""A store against a list, over many lives: whatever is done and however a life ends, what was promised is there.

Every step is drawn from a seed, crashes included; a failure prints the seed. After `kill -9` everything committed is
there; after a power loss everything synced is, and what is there is a prefix of what was written.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from polymq.errors import StoreError
from polymq.store.store import Store
from polymq.testing.disk import SimulatedKill
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies, drain, read_all

if TYPE_CHECKING:
    from polymq.store.ticket import Ticket

NUMBERS = (1, 2, 3)
SYNC = {1: False, 2: True, 3: False}
_KIND = b"\x40"


class Model:
    """What one partition must hold: `messages[i]` is record i; `sure` of them may not be lost by the next crash."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.committed = 0
        self.synced = 0
        self.start = 0
        self.next = 0


class Run:
    """One seed's run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = Harness(seed, hot_size_bytes=self.random.choice((0, 2000, 1 << 20)), open_segments_max=self.random.choice((2, 400)))
        self.harness.worker_delay_ns_max = self.random.choice((0, 2000))
        self.models = {number: Model() for number in NUMBERS}
        self.entries = 0
        self.entries_committed = 0
        self.entries_synced = 0
        self.created: set[int] = set()
        self.open()

    def open(self) -> None:
        store = self.harness.open()
        if self.created:
            self.check_replay()
        self.logs = {}
        for number in NUMBERS:
            make = store.open_log if number in self.created else store.create_log
            self.logs[number] = make(number, sync=SYNC[number])
            self.created.add(number)
        self.readers = {number: log.reader(log.start) for number, log in self.logs.items()}

    def check_replay(self) -> None:
        found = self.harness.replayed
        last = 0
        for entry in found:
            number = int(entry[1:].split(b";")[0])
            # A snapshot that was not finished says again what was said before it.
            again = number == last and entry.endswith(b"snapshot")
            assert again or number == last + 1 or last == 0, f"{number} follows {last}"
            last = number
        assert self.entries_lower <= last <= self.entries, (self.entries_lower, last, self.entries)
        self.entries = self.entries_committed = self.entries_synced = last

    def check_recovered(self) -> None:
        for number, log in self.logs.items():
            model = self.models[number]
            assert not log.failed, log.failed
            assert log.end >= self.lower[number], f"partition {number} ends at {log.end}, {self.lower[number]} were promised"
            assert log.end <= len(model.messages)
            assert log.start <= model.start
            self.harness.settle()
            assert log.readable == log.end
            found = read_all(self.harness, log)
            assert found == model.messages[log.start : log.end], f"partition {number}"
            del model.messages[log.end :]
            model.committed = model.synced = log.end
            model.start = log.start

    def crash(self, *, power_loss: bool) -> None:
        self.lower = {number: (model.synced if power_loss else model.committed) for number, model in self.models.items()}
        self.entries_lower = self.entries_synced if power_loss else self.entries_committed
        self.harness.crash(power_loss=power_loss)
        self.open()
        self.check_recovered()

    def note_synced(self) -> None:
        for number, log in self.logs.items():
            model = self.models[number]
            if log.sync:
                model.synced = max(model.synced, log.readable)
            elif log.synced_point is not None:
                model.synced = max(model.synced, log.synced_point.end)

    def step(self) -> None:
        random = self.random
        action = random.choices(
            ("append", "commit", "poll", "journal", "read", "retain", "snapshot", "evict", "reseek", "batches", "time"),
            (30, 20, 15, 8, 10, 3, 2, 2, 2, 4, 5),
        )[0]
        getattr(self, f"do_{action}")()

    def do_append(self) -> None:
        number = self.random.choice(NUMBERS)
        log, model = self.logs[number], self.models[number]
        for _ in range(self.random.choice((1, 1, 3))):
            batch = bodies(model.next, self.random.choice((1, 1, 2, 5, 30)), self.random.choice((0, 20, 20, 200)))
            log.append(MessageBatch.of(batch), now_ns=self.harness.clock.wall_ns(), origin=self.random.choice((1, 1, 5)))
            model.messages += batch
            model.next += len(batch)
            assert log.end == len(model.messages)

    def do_commit(self) -> None:
        self.harness.store.commit()
        self.note_synced()
        for number, model in self.models.items():
            model.committed = len(model.messages)
            if not SYNC[number]:
                assert self.logs[number].readable == model.committed
        self.entries_committed = self.entries

    def do_poll(self) -> None:
        waiting = self.sync_ticket_entries()
        self.harness.poll()
        self.note_synced()
        if waiting is not None and waiting[0].state.value == "done":
            self.entries_synced = max(self.entries_synced, waiting[1])

    ticket: tuple[Ticket, int] | None = None

    def sync_ticket_entries(self) -> tuple[Ticket, int] | None:
        return self.ticket

    def do_journal(self) -> None:
        self.entries += 1
        self.harness.store.journal.append(_KIND + b"%d;" % self.entries + b"e" * self.random.choice((0, 50, 400)))
        if self.random.random() < 0.3:
            self.ticket = (self.harness.store.journal.ticket(sync=True), self.entries)

    def do_snapshot(self) -> None:
        if self.entries and self.harness.store.journal.wants_snapshot:
            rows = [_KIND + b"%d;snapshot" % self.entries]
            self.harness.store.journal.snapshot([rows])

    def do_read(self) -> None:
        number = self.random.choice(NUMBERS)
        reader = self.readers[number]
        first = max(reader.offset, self.logs[number].start)
        found = drain(self.harness, reader, count_max=self.random.choice((1, 3, 1000)), size_bytes_max=self.random.choice((1, 300, 100000)))
        assert found == self.models[number].messages[first : self.logs[number].readable]
        self.note_synced()

    def do_reseek(self) -> None:
        number = self.random.choice(NUMBERS)
        log = self.logs[number]
        self.readers[number].seek(self.random.randint(log.start, log.end))

    def do_batches(self) -> None:
        from polymq.wire.records import check, parse_header, read_messages

        number = self.random.choice(NUMBERS)
        log = self.logs[number]
        offset = self.random.randint(log.start, log.end)
        while (view := log.batches(offset, self.random.choice((1, 1500)))) is None:
            self.harness.poll()
        if offset >= log.readable:
            assert len(view) == 0
            return
        at, found, first = 0, [], parse_header(view, 0).base_offset
        assert first <= offset
        while at < len(view):
            assert check(view, at, len(view)) is None
            header = parse_header(view, at)
            found += [message.body for message in read_messages(view, at, 0, 0, header.count, len(view))]
            at += header.size
        assert found
        assert first + len(found) > offset
        assert first + len(found) <= log.readable
        assert found == self.models[number].messages[first : first + len(found)]
        self.note_synced()

    def do_retain(self) -> None:
        number = self.random.choice(NUMBERS)
        log, model = self.logs[number], self.models[number]
        needed = self.random.randint(log.start, log.readable)
        log.retain(
            needed, now_ns=self.harness.clock.wall_ns(), age_ns=self.random.choice((0, 10**15)), size_bytes=self.random.choice((0, 5000))
        )
        assert log.start <= needed
        model.start = log.start

    def do_evict(self) -> None:
        self.harness.files.evict()

    def do_time(self) -> None:
        self.harness.clock.advance(self.random.choice((0, 100, 2000)))

    def close(self) -> None:
        self.do_commit()
        self.harness.store.close(clean=True)
        for model in self.models.values():
            model.synced = model.committed
        self.entries_synced = self.entries
        power_loss = self.random.random() < 0.5
        self.crash(power_loss=power_loss)
        for number, log in self.logs.items():
            assert log.end == len(self.models[number].messages)


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_every_life_keeps_its_promises(first: int) -> None:
    for seed in range(first, first + 20):
        try:
            run = Run(seed)
            for _ in range(run.random.choice((2, 5))):
                for _ in range(run.random.choice((10, 60, 150))):
                    run.step()
                ending = run.random.choice(("kill", "power", "power", "clean"))
                if ending == "clean":
                    run.close()
                else:
                    run.ticket = None
                    run.crash(power_loss=ending == "power")
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_kill_at_every_operation_keeps_every_promise(power_loss: bool) -> None:
    def play(kill_at: int | None) -> tuple[Harness, dict[int, int], int]:
        harness = Harness(7)
        promised = {1: 0, 2: 0}
        harness.files.kill_at = kill_at
        try:
            store = harness.open()
            logs = {1: store.create_log(1, sync=False), 2: store.create_log(2, sync=True)}
            for turn in range(12):
                tickets = {}
                for number, log in logs.items():
                    tickets[number] = log.append(MessageBatch.of(bodies(10 * turn, 10, 100)), now_ns=turn, origin=1)
                store.journal.append(b"\x40%d" % turn)
                store.commit()
                harness.clock.advance(700)
                if not power_loss:
                    promised[1] = 10 * turn + 10
                store.poll()
                if tickets[2].state.value == "done":
                    promised[2] = 10 * turn + 10
            store.close(clean=True)
            promised = {1: 120, 2: 120}
        except SimulatedKill:
            pass
        return harness, promised, harness.files.operations

    _, _, operations = play(None)
    assert operations > 60
    for kill_at in range(operations + 1):
        harness, promised, _ = play(kill_at)
        harness.crash(power_loss=power_loss)
        store = harness.open()
        for number, end in promised.items():
            log = store.open_log(number, sync=number == 2)
            assert not log.failed, (kill_at, log.failed)
            assert log.end >= end, kill_at
            harness.settle()
            expected = [body for turn in range(12) for body in bodies(10 * turn, 10, 100)]
            assert read_all(harness, log) == expected[: log.end], kill_at
        if promised[1] == 120:
            assert store.health() == []


def test_a_store_is_refused_after_it_was_refused_once() -> None:
    harness = Harness()
    harness.open()
    with pytest.raises(StoreError, match="in use"):
        Store.open(harness.files, harness.worker, clock=harness.clock, boot_id="x", random_u64=lambda: 1)
