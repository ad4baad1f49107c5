"""What the logs must hold: every promised message once, at its offset, in order, whole; and what readers of the log are shown.

A reader asks over HTTP and gets record batches with offsets and epochs. What one offset holds never changes within an
epoch: where a power loss took records and the offset was given again, the epoch is a later one, so that whoever reads
on notices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from polymq.limits import OFFSET_BITS
from polymq.testing.promises import PromiseBrokenError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polymq.testing.management import Management
    from polymq.testing.promises import Book, Publication

__all__ = ["LogBook", "ReadBatch"]

_LIFE: Final = "life"  # no connection has this name


class ReadBatch(NamedTuple):
    """One record batch as a reader was sent it."""

    epoch: int
    base_offset: int
    bodies: list[bytes]


@dataclass(slots=True)
class LogBook:
    """See the module. `retention_ns`: how long messages stay that nobody needs any more; None: for good."""

    book: Book
    management: Management
    retention_ns: int | None = None
    # Topics that are judged by other means (`copies.py`).
    elsewhere: set[str] = field(default_factory=set)
    # What readers were shown: (partition number, offset) -> (epoch, serial).
    _read: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    # -- reading while it runs ---------------------------------------------------------------------------------------

    def read(self, topic: str, number: int, batches: Sequence[ReadBatch], *, epoch: int, asked_ns: int) -> list[tuple[Publication, int]]:
        """A reader was sent batches of a partition, having asked at `asked_ns`; gives (message, id) of each record."""
        found: list[tuple[Publication, int]] = []
        at: int | None = None
        before = 0
        for batch in batches:
            if at is not None and batch.base_offset != at:
                raise PromiseBrokenError(f"partition {number}: a batch at offset {batch.base_offset} follows, where {at} should be")
            if not before <= batch.epoch <= epoch:
                raise PromiseBrokenError(f"partition {number}, offset {batch.base_offset}: epoch {batch.epoch} after {before}, of {epoch}")
            at, before = batch.base_offset + len(batch.bodies), batch.epoch
            for offset, body in enumerate(batch.bodies, batch.base_offset):
                found.append((self.read_record(topic, number, offset, batch.epoch, body, asked_ns), number << OFFSET_BITS | offset))
            self._check_batch(number, batch)
        return found

    def read_record(self, topic: str, number: int, offset: int, epoch: int, body: bytes, asked_ns: int) -> Publication:
        """A reader was sent one record; gives the message."""
        publication = self._identify(number, offset, body)
        if publication.topic != topic:
            raise PromiseBrokenError(f"partition {number}: message {publication.serial} belongs to topic {publication.topic}")
        self.management.check_there(publication, asked_ns)
        known = self._read.get((number, offset))
        if known is not None and known[1] != publication.serial and known[0] >= epoch:
            raise PromiseBrokenError(
                f"partition {number}, offset {offset} was message {known[1]} in epoch {known[0]}, and is {publication.serial} in {epoch}"
            )
        self._read[number, offset] = (epoch, publication.serial)
        if publication.due_wall_ns > self.book.clock.wall_ns() + self.book.wall_slack_ns:
            raise PromiseBrokenError(f"message {publication.serial} is in the log before its time")
        if publication.removed_ns is None:
            self.book.locate(publication, number << OFFSET_BITS | offset)
        return publication

    def _check_batch(self, number: int, batch: ReadBatch) -> None:
        """An MPUB is in one batch."""
        serials = [int(body[:8]) for body in batch.bodies]
        for index, serial in enumerate(serials):
            publication = self.book.publications[serial]
            first = index - (serial - publication.first)
            if publication.due_wall_ns or publication.count == 1:
                continue
            if first < 0 or serials[first : first + publication.count] != list(
                range(publication.first, publication.first + publication.count)
            ):
                raise PromiseBrokenError(f"an MPUB was torn: message {serial} stands alone in partition {number}")

    def check_epoch(self, number: int, epochs: Sequence[tuple[int, int]], batches: Sequence[ReadBatch]) -> None:
        """What the catalogue says about epochs, asked before the batches were, agrees with them."""
        for batch in batches:
            said = max((epoch for epoch, first in epochs if first <= batch.base_offset), default=None)
            if said is not None and batch.epoch < said:
                raise PromiseBrokenError(
                    f"partition {number}: the batch at offset {batch.base_offset} is of epoch {batch.epoch}, the catalogue says {said}"
                )

    def check_start(self, number: int, start: int) -> None:
        """A log begins where it did, unless retention may drop what is old and done with."""
        for offset in range(start - 1, -1, -1):
            known = self._read.get((number, offset))
            publication = None if known is None else self.book.publications[known[1]]
            if publication is None or publication.removed_ns is not None or number << OFFSET_BITS | offset not in publication.ids:
                continue
            if self.retention_ns is None:
                raise PromiseBrokenError(f"partition {number} begins at {start}, and message {publication.serial} before it is gone")
            if self.book.clock.monotonic_ns() - publication.sent_ns + self.book.wall_slack_ns < self.retention_ns:
                raise PromiseBrokenError(f"partition {number}: message {publication.serial} was dropped too early")
            break

    # -- at the end --------------------------------------------------------------------------------------------------

    def check_all(self, partitions: Iterable[tuple[int, Sequence[tuple[int, bytes]]]], *, asked_ns: int) -> None:
        """Compare what the logs hold, as (partition number, (offset, body) pairs), with what was promised before `asked_ns`."""
        found: dict[int, list[tuple[int, int]]] = {}
        starts: dict[int, int] = {}
        for number, records in partitions:
            orders: dict[str, int] = {}
            starts[number] = records[0][0] if records else 1 << 62
            if self.retention_ns is None and records and records[0][0]:
                raise PromiseBrokenError(f"partition {number} begins at {records[0][0]}, and nothing may be dropped")
            for index, (offset, body) in enumerate(records):
                if offset != records[0][0] + index:
                    raise PromiseBrokenError(f"partition {number}: offset {offset} is where {records[0][0] + index} should be")
                self._check_record(number, offset, body, found, orders)
        for publication in self.book.publications.values():
            if publication.topic in self.elsewhere:
                continue
            is_promised = publication.promised_ns is not None and publication.promised_ns < asked_ns
            if is_promised and publication.serial not in found and not self._may_be_dropped(publication, starts):
                raise PromiseBrokenError(
                    f"message {publication.serial} of {publication.topic} was acknowledged or read, and is not in the log"
                )
            self._check_whole(publication, found)

    def _may_be_dropped(self, publication: Publication, starts: dict[int, int]) -> bool:
        """Whether retention may have taken a message: nobody was owed it, and it lay before where its log begins."""
        if self.retention_ns is None or not self.book.channels_of(publication.topic):
            return False
        return all(message_id & ((1 << OFFSET_BITS) - 1) < starts.get(message_id >> OFFSET_BITS, 1 << 62) for message_id in publication.ids)

    def _identify(self, number: int, offset: int, body: bytes) -> Publication:
        publication = self.book.publications.get(int(body[:8])) if body[:8].isdigit() else None
        if publication is None or publication.body != body:
            raise PromiseBrokenError(f"partition {number}, offset {offset}: bytes that nobody published: {body[:40]!r}")
        return publication

    def _check_record(self, number: int, offset: int, body: bytes, found: dict[int, list[tuple[int, int]]], orders: dict[str, int]) -> None:
        publication = self._identify(number, offset, body)
        serial = publication.serial
        if publication.removed_ns is not None:
            raise PromiseBrokenError(f"message {serial} is in the log although its topic was deleted")
        places = found.setdefault(serial, [])
        places.append((number, offset))
        if len(places) > 1:
            raise PromiseBrokenError(f"message {serial} is in the log twice: {places}")
        if publication.ids and number << OFFSET_BITS | offset not in publication.ids:
            known = next(iter(publication.ids))
            raise PromiseBrokenError(f"message {serial} was delivered as {known:016x} and is at {(number, offset)} in the log")
        if not publication.due_wall_ns:
            if orders.get(publication.connection, -1) >= publication.order:
                raise PromiseBrokenError(f"partition {number}: message {serial} is behind a later one of its connection")
            orders[publication.connection] = publication.order
            if orders.get(_LIFE, -1) > publication.life:
                raise PromiseBrokenError(f"partition {number}: message {serial} is behind one of a later process")
            orders[_LIFE] = publication.life

    def _check_whole(self, publication: Publication, found: dict[int, list[tuple[int, int]]]) -> None:
        """All messages of one MPUB are there, side by side, or none is."""
        if publication.due_wall_ns:
            return
        place = found.get(publication.serial, [None])[0]
        first = found.get(publication.first, [None])[0]
        expected = None if first is None else (first[0], first[1] + publication.serial - publication.first)
        if place != expected:
            raise PromiseBrokenError(f"an MPUB was torn: message {publication.serial} is at {place}, not at {expected}")
