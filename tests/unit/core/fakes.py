"""A store, a clock and chance for the core's own tests: everything in memory, written at commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq import limits
from polymq.core.ports import TicketState
from polymq.errors import StoreFailed, StoreFull
from polymq.wire.batch import NO_PRODUCER, PRODUCER_BROKER, read_note
from polymq.wire.records import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    encode_bodies,
    encode_message,
    parse_header,
    read_messages,
    seal,
    skip,
)
from polymq.wire.slices import MessageBatch, Slice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polymq.core.group import Delivery
    from polymq.wire.batch import Producer
    from polymq.wire.records import Message

START_NS = 1_700_000_000_000_000_000


class FakeClock:
    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return START_NS + self.now_ns


class FakeRandom:
    """Counts up, so that shares are exact."""

    def __init__(self) -> None:
        self.next = 0

    def randrange(self, stop: int, /) -> int:
        self.next += 1
        return self.next % stop


class FakeTicket:
    def __init__(self) -> None:
        self.state = TicketState.PENDING
        self.failure = ""


class FakeReader:
    def __init__(self, log: FakeLog, offset: int) -> None:
        self.log = log
        self.offset = offset
        self.waiting = False

    @property
    def is_stalled(self) -> bool:
        return self.waiting and self.log.cold

    @property
    def keeps_copy(self) -> bool:
        return self.waiting

    @property
    def copy_size_bytes(self) -> int:
        return len(self.log.data) if self.keeps_copy else 0

    def seek(self, offset: int) -> None:
        self.offset = offset
        self.waiting = False

    def skip_origin(self, origin: int) -> int:
        begun = self.offset
        for at, base in [] if self.log.cold or self.log.failed else [(at, base) for base, _count, at in self.log.index]:
            header = parse_header(memoryview(self.log.data), at)
            if base == self.offset and header.origin == origin and base + header.count <= self.log.readable:
                self.offset += header.count
        return self.offset - begun

    def take(self, count_max: int, size_bytes_max: int) -> Slice | None:
        if self.log.cold:
            self.waiting = True
            return None
        self.waiting = False
        if self.log.failed:
            return None
        if not self.log.start <= self.offset < self.log.readable:
            return None
        at, base = next((at, base) for base, count, at in self.log.index if base <= self.offset < base + count)
        view = memoryview(bytes(self.log.data))
        header = parse_header(view, at)
        # As in the store, a reader that comes to a batch finds its header first.
        position, left, time_ns = at, 0, 0
        limit = len(view)
        if self.offset > base:
            position, left, time_ns = at + HEADER_SIZE_BYTES, header.count, header.base_time_ns
            _, position, left, time_ns = skip(view, position, left, time_ns, self.offset - base, limit, limit)
        count_max = min(count_max, self.log.readable - self.offset)
        count, end, _left, _time = skip(view, position, left, time_ns, count_max, size_bytes_max, limit)
        piece = Slice(
            view,
            partition=self.log.number,
            position=position,
            end=end,
            offset=self.offset,
            count=count,
            batch_left=left,
            base_time_ns=time_ns,
        )
        self.offset += count
        return piece


class FakeLog:
    def __init__(self, number: int, *, sync: bool, journal: FakeJournal | None = None) -> None:
        self.number = number
        self.journal = journal or FakeJournal()
        self.sync = sync
        self.epoch = 1
        self.epochs = [(1, 0)]
        self.durable = 0
        self.last_time_ns = 0
        self.start = self.end = self.readable = 0
        self.failed = ""
        self.size_bytes = 0
        self.cold = False
        self.data = bytearray()
        self.index: list[tuple[int, int, int]] = []
        self.ticket: FakeTicket | None = None
        self.retained: list[int] = []
        self.ages: list[int] = []

    @property
    def notes(self) -> list[tuple[int, int, bytes]]:
        """What the broker noted behind `durable`."""
        headers = [(parse_header(self.data, at), at) for base, _count, at in self.index if self.durable <= base < self.end]
        return [
            (header.base_offset, header.epoch, read_note(self.data, at)) for header, at in headers if header.producer_id == PRODUCER_BROKER
        ]

    def cut(self, end: int) -> None:
        """What a power loss does: everything from `end` on is gone."""
        (at,) = [at for base, _count, at in self.index if base == end]
        del self.data[at:]
        self.index = [row for row in self.index if row[0] < end]
        self.end = self.readable = end

    def _add(
        self, records: bytes | memoryview, count: int, now_ns: int, origin: int, producer_id: int = -1, attributes: int = 0
    ) -> FakeTicket:
        if self.journal.full:
            raise StoreFull("the journal waits for room")
        at = len(self.data)
        self.data += bytes(HEADER_SIZE_BYTES) + bytes(records)
        self.last_time_ns = max(self.last_time_ns, now_ns)
        header = BatchHeader(
            origin=origin,
            attributes=attributes,
            segment_id=1,
            epoch=self.epoch,
            count=count,
            base_offset=self.end,
            base_time_ns=now_ns,
            producer_id=producer_id,
        )
        seal(self.data, at, len(self.data), header)
        self.index.append((self.end, count, at))
        self.end += count
        if self.ticket is None:
            self.ticket = FakeTicket()
        return self.ticket

    def append(self, batch: MessageBatch, *, now_ns: int, origin: int) -> FakeTicket:
        target = bytearray(batch.size_bytes + 8 * batch.count)
        assert encode_bodies(target, 0, batch) == len(target)
        return self._add(bytes(target), batch.count, now_ns, origin)

    def append_run(self, records: memoryview, count: int, *, now_ns: int, origin: int) -> FakeTicket:
        return self._add(bytes(records), count, now_ns, origin)

    def append_messages(self, messages: Sequence[Message], *, now_ns: int, origin: int, **_producer: int) -> FakeTicket:
        records = b"".join(encode_message(message, now_ns) for message in messages)
        return self._add(records, len(messages), now_ns, origin)

    def append_records(
        self, records: bytes | memoryview, count: int, *, now_ns: int, origin: int, producer: Producer = NO_PRODUCER, attributes: int = 0
    ) -> FakeTicket:
        assert now_ns >= self.last_time_ns
        return self._add(records, count, now_ns, origin, producer[0], attributes)

    def messages(self) -> list[Message]:
        view = memoryview(bytes(self.data))
        return read_messages(view, 0, 0, 0, self.end, len(view))

    def reader(self, offset: int) -> FakeReader:
        return FakeReader(self, offset)

    def batches(self, offset: int, size_bytes_max: int) -> memoryview | None:
        if self.cold:
            return None
        offset = max(offset, self.start)
        if self.failed or offset >= self.readable:
            return memoryview(b"")
        at = next(at for base, count, at in self.index if offset < base + count)
        end = at
        while end < len(self.data) and (end == at or end + parse_header(self.data, end).size - at <= size_bytes_max):
            end += parse_header(self.data, end).size
        return memoryview(bytes(self.data[at:end]))

    def offset_at(self, time_ns: int) -> int | None:
        if self.failed:
            raise StoreFailed(self.failed)
        if self.cold:
            return None
        headers = [parse_header(self.data, at) for _base, _count, at in self.index]
        return next((header.base_offset for header in headers if header.base_time_ns >= time_ns), self.end)

    def retain(self, first_needed: int, *, now_ns: int, age_ns: int, size_bytes: int) -> None:
        self.retained.append(first_needed)
        self.ages.append(age_ns)


class FakeJournal:
    def __init__(self) -> None:
        self.wants_snapshot = False
        self.entries: list[bytes] = []
        self.snapshots = 0
        self.units: Iterator[Iterator[bytes]] | None = None
        # Everything that was ever journaled, without any snapshot.
        self.history: list[bytes] = []
        self.begun_at = 0
        self.full = False
        self.last_ticket: FakeTicket | None = None

    @property
    def staged(self) -> bool:
        return self.full

    def append(self, entry: bytes) -> None:
        self.entries.append(bytes(entry))
        self.history.append(bytes(entry))

    def flush(self) -> None:
        """Everything is written at once here."""

    def ticket(self, *, sync: bool = False) -> FakeTicket:
        ticket = FakeTicket()
        ticket.state = TicketState.DONE
        self.last_ticket = ticket
        return ticket

    @property
    def snapshotting(self) -> bool:
        return self.units is not None

    def begin_snapshot(self, units: Iterator[Iterator[bytes]]) -> None:
        self.units = units
        self.begun_at = len(self.entries)
        self.wants_snapshot = False

    def continue_snapshot(self) -> None:
        """One unit a turn, among what is journaled; at the end nothing before the beginning counts any more."""
        assert self.units is not None
        unit = next(self.units, None)
        if unit is not None:
            self.entries += unit
            return
        self.units = None
        del self.entries[: self.begun_at]
        self.snapshots += 1

    def snapshot(self, units: Iterator[Iterator[bytes]]) -> None:
        self.begin_snapshot(units)
        while self.snapshotting:
            self.continue_snapshot()


class FakeStore:
    """Keeps logs and journal over a restart: make a second Broker on the same store."""

    def __init__(self) -> None:
        self.journal = FakeJournal()
        self.congested = False
        self.due_ns: int | None = None
        self.logs: dict[int, FakeLog] = {}
        # How many entries the journal had when it was made safe in a start.
        self.secured = 0
        # How often it was asked to look after its room.
        self.looks = 0
        self.finished_size_bytes_max = 0

    def replay(self) -> Iterator[bytes]:
        self.journal.units = None
        return iter(list(self.journal.entries))

    def create_log(self, number: int, *, sync: bool) -> FakeLog:
        assert number not in self.logs
        self.logs[number] = FakeLog(number, sync=sync, journal=self.journal)
        return self.logs[number]

    def open_log(self, number: int, *, sync: bool) -> FakeLog:
        return self.logs[number]

    def delete_log(self, number: int) -> None:
        del self.logs[number]

    def forget_others(self, below: int) -> None:
        assert all(number < below for number in self.logs)

    def secure(self) -> None:
        self.secured = len(self.journal.entries)

    def commit(self) -> None:
        for log in self.logs.values():
            if log.ticket is not None:
                log.ticket.state = TicketState.DONE
                log.ticket = None
            log.readable = log.end

    def sync(self) -> None:
        """What is readable is durable."""
        for log in self.logs.values():
            log.durable = log.readable

    def poll(self) -> bool:
        return False

    def look_after_room(self, finished_size_bytes_max: int) -> None:
        self.looks += 1
        self.finished_size_bytes_max = finished_size_bytes_max

    def health(self) -> list[str]:
        return []

    def close(self, *, clean: bool) -> bool:
        return clean


class Inbox:
    """A listener that keeps what it is told, and what is delivered to it, as (body, attempts)."""

    def __init__(self) -> None:
        self.reason = ""
        self.got: list[tuple[bytes, int]] = []
        self.ids: list[int] = []

    def closed(self, reason: str) -> None:
        self.reason = reason

    def take(self, delivery: Delivery) -> None:
        piece = delivery.slice
        messages = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)
        self.got += [(message.body, delivery.attempts) for message in messages]
        first = piece.partition << limits.OFFSET_BITS | piece.offset
        self.ids += range(first, first + piece.count)

    @property
    def bodies(self) -> list[bytes]:
        return [body for body, _attempts in self.got]
