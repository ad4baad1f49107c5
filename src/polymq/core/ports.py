"""What the core asks of the world: the store, the clock, chance. Protocols only.

The core is called from one thread and calls these synchronously; nothing here blocks. The simulator puts fakes
behind the same names. `docs/INTERNALS.md` sections 1 and 3 say what each promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from polymq.wire.batch import NO_PRODUCER
from polymq.wire.tickets import TicketState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polymq.wire.batch import Producer
    from polymq.wire.records import Message
    from polymq.wire.slices import MessageBatch, Slice

__all__ = ["Clock", "Journal", "Listener", "Log", "Random", "Reader", "Store", "Ticket", "TicketState"]


class Ticket(Protocol):
    """A promise that something is durable; shared by all that was written together. `failure` is for people."""

    @property
    def state(self) -> TicketState: ...
    @property
    def failure(self) -> str: ...


class Reader(Protocol):
    """A position in one partition that moves forward."""

    @property
    def offset(self) -> int: ...
    @property
    def waiting(self) -> bool: ...
    def take(self, count_max: int, size_bytes_max: int) -> Slice | None:
        """Hand out the next records (at least one, if there is one) and move behind them.

        None: there is nothing readable, or (`waiting`) the disk is being read and a later turn will have it.
        """

    @property
    def is_stalled(self) -> bool:
        """Whether it waits for the disk, and would still do so if it were asked again."""

    @property
    def keeps_copy(self) -> bool:
        """Whether it keeps a piece of the log in memory, or has asked for one: `seek` lets go of it."""

    @property
    def copy_size_bytes(self) -> int:
        """How much memory the piece takes that it keeps, or has asked for."""

    def skip_origin(self, origin: int) -> int:
        """Move behind whole batches of one origin, if they come next; returns how many records that is. Cost: their headers."""

    def seek(self, offset: int) -> None: ...


class Log(Protocol):
    """One partition: a contiguous sequence of records. `end` counts what this turn staged, `readable` does not."""

    @property
    def number(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def readable(self) -> int: ...
    @property
    def durable(self) -> int:
        """The offset before which records survive a power loss."""

    @property
    def failed(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def epochs(self) -> Sequence[tuple[int, int]]: ...
    @property
    def last_time_ns(self) -> int:
        """The time of the newest batch: no later one is before it."""

    @property
    def notes(self) -> Sequence[tuple[int, int, bytes]]:
        """What `records.PRODUCER_BROKER` marks behind the last checkpoint: (first offset, epoch, note) as found at the start."""

    def append(self, batch: MessageBatch, *, now_ns: int, origin: int) -> Ticket: ...
    def append_run(self, records: memoryview, count: int, *, now_ns: int, origin: int) -> Ticket:
        """Append encoded records that have no time of their own, together with what this turn appended before."""

    def append_messages(
        self,
        messages: Sequence[Message],
        *,
        now_ns: int,
        origin: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        sequence: int = -1,
    ) -> Ticket: ...
    def append_records(
        self, records: bytes | memoryview, count: int, *, now_ns: int, origin: int, producer: Producer = NO_PRODUCER, attributes: int = 0
    ) -> Ticket:
        """Append encoded records as one batch of the time `now_ns`, at least `last_time_ns`; by itself if it has attributes."""

    def reader(self, offset: int) -> Reader: ...
    def batches(self, offset: int, size_bytes_max: int) -> memoryview | None: ...
    def offset_at(self, time_ns: int) -> int | None: ...
    def retain(self, first_needed: int, *, now_ns: int, age_ns: int, size_bytes: int) -> None: ...


class Journal(Protocol):
    """The one sequence of entries for all that is not message bodies."""

    @property
    def wants_snapshot(self) -> bool: ...
    @property
    def staged(self) -> bool:
        """Whether entries wait for this turn's commit."""

    def append(self, entry: bytes) -> None: ...
    def flush(self) -> None:
        """Write what is staged now; `staged` stays true if there is no room."""

    def ticket(self, *, sync: bool = False) -> Ticket: ...
    @property
    def snapshotting(self) -> bool:
        """Whether `continue_snapshot` is to be called in every turn."""

    def begin_snapshot(self, units: Iterator[Iterator[bytes]]) -> None:
        """Begin to write everything anew; each unit replaces what was known about one thing when its turn comes."""

    def continue_snapshot(self) -> None: ...
    def snapshot(self, units: Iterator[Iterator[bytes]]) -> None:
        """Write a whole snapshot at once."""


class Store(Protocol):
    """The data folder, opened."""

    @property
    def journal(self) -> Journal: ...
    @property
    def congested(self) -> bool: ...
    @property
    def due_ns(self) -> int | None: ...

    def replay(self) -> Iterator[bytes]: ...
    def create_log(self, number: int, *, sync: bool) -> Log: ...
    def open_log(self, number: int, *, sync: bool) -> Log: ...
    def delete_log(self, number: int) -> None: ...
    def forget_others(self, below: int) -> None:
        """Give up partitions with numbers less than `below` that were neither created nor opened: nobody knows them any more."""

    def secure(self) -> None:
        """Write and sync what was journaled in the start, before anything is appended; raises StoreError."""

    def commit(self) -> None: ...
    def poll(self) -> bool: ...
    def look_after_room(self, finished_size_bytes_max: int) -> None:
        """See how much room the disk has, and what of that which nobody needs is in the way; to be called about once a second."""

    def health(self) -> list[str]: ...
    def close(self, *, clean: bool) -> bool: ...


class Clock(Protocol):
    """Time. Leases run on the monotonic clock, due times and record times on the wall clock. Nanoseconds."""

    def monotonic_ns(self) -> int: ...
    def wall_ns(self) -> int: ...


class Random(Protocol):
    """Chance, as far as the core needs it."""

    def randrange(self, stop: int, /) -> int: ...


class Listener(Protocol):
    """Who is behind a subscription: told when its topic or group is gone."""

    def closed(self, reason: str) -> None: ...
