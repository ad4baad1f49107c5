"""The journal: one sequence of entries for everything that is not message bodies, one frame and one write per turn.

The core's entries are bytes to it. The store's own (`entries.py`) say up to where each partition is synced. When it
has grown enough it asks for a snapshot: entries that rebuild everything, after which the older segments go.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from polymq.errors import StoreError, StoreFull
from polymq.store.chain import Chain
from polymq.store.entries import SNAPSHOT_BEGIN, SNAPSHOT_END
from polymq.store.frames import ENTRY_OVERHEAD_BYTES, FRAME_HEADER_SIZE_BYTES, seal_frame
from polymq.store.journal_recovery import JOURNAL_FOLDER, JOURNAL_SUFFIX
from polymq.store.segment import JOURNAL_PARTITION, MAGIC_JOURNAL, Segment
from polymq.store.ticket import Ticket
from polymq.store.workers import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.store.files import Files
    from polymq.store.journal_recovery import RecoveredJournal
    from polymq.store.volume import Volume

__all__ = ["Journal"]

_U32: Final = struct.Struct("<I")
# A snapshot is cut into frames of about this size: one frame must fit the memory twice, and a segment once.
_SNAPSHOT_FRAME_SIZE_BYTES: Final = 1024 * 1024


class Journal:
    """See the module. `failed` is the reason why it takes no more entries, `blocked` why it cannot at the moment."""

    def __init__(self, volume: Volume, *, own_entries: Callable[[], Iterable[bytes]]) -> None:
        self.wants_snapshot = False
        self.failed = ""
        self.blocked = ""
        self.epoch = 0
        self.chain = Chain(volume, JOURNAL_FOLDER, magic=MAGIC_JOURNAL, partition=JOURNAL_PARTITION, suffix=JOURNAL_SUFFIX, reserve=True)
        self.sequence = 1
        self.synced_sequence = 0
        self._volume = volume
        self._own_entries = own_entries
        self._buffer = bytearray(64 * 1024)
        self._staged = FRAME_HEADER_SIZE_BYTES
        self._count = 0
        self._ticket: Ticket | None = None
        self._sync_ticket: Ticket | None = None
        self._sync_tickets: list[Ticket] = []
        self._grown_bytes = 0
        self._snapshot_size_bytes = 0
        self._snapshot: tuple[int, int] | None = None  # (first sequence, sequence of the end) until that is synced

    def attach(self, recovered: RecoveredJournal, *, write_again: bool) -> None:
        """Go on behind the last good frame of an earlier life; after an unclean one, what it left is written again.

        A sync that failed in that life may have left the page cache with what the disk does not have and would not get.
        """
        for scan in recovered.scans:
            segment = Segment(self.chain.path(scan.base_sequence), scan.base_sequence)
            segment.segment_id = scan.segment_id
            segment.size_bytes = len(scan.data)
            segment.used = scan.end
            segment.known = True
            if write_again:
                self._volume.file(segment).pwrite(memoryview(scan.data)[: scan.end], 0)
            self.chain.segments.append(segment)
            self._grown_bytes += scan.end
        self.sequence = recovered.next_sequence
        if self.chain.segments:
            self.chain.attach(self.chain.segments[-1])
            # Whatever the page cache still held unsynced is made durable with the first frame of this life.
            self.chain.dirty.extend(self.chain.segments)
            self.chain.folder_dirty = True

    def append(self, entry: bytes) -> None:
        """Stage an entry for this turn's frame."""
        at = self._staged
        end = at + ENTRY_OVERHEAD_BYTES + len(entry)
        if end > len(self._buffer):
            self._buffer.extend(bytes(max(len(self._buffer), end - len(self._buffer))))
        _U32.pack_into(self._buffer, at, len(entry))
        self._buffer[at + ENTRY_OVERHEAD_BYTES : end] = entry
        self._staged = end
        self._count += 1

    def ticket(self, *, sync: bool = False) -> Ticket:
        """Promise that this turn's entries are written (or synced)."""
        if sync:
            if self._sync_ticket is None:
                self._sync_ticket = Ticket()
            return self._sync_ticket
        if self._ticket is None:
            self._ticket = Ticket()
        return self._ticket

    @property
    def wants_sync(self) -> bool:
        """Whether a ticket waits for a sync."""
        return bool(self._sync_tickets)

    @property
    def staged(self) -> bool:
        """Whether there is anything for `flush` to do."""
        return self._count > 0 or self._ticket is not None or self._sync_ticket is not None

    def flush(self) -> None:
        """Write this turn's frame and settle its tickets. Never raises: what fails, fails the tickets."""
        if self._count and not self._write_frame() and self.blocked:
            return
        ticket, self._ticket = self._ticket, None
        sync_ticket, self._sync_ticket = self._sync_ticket, None
        if self.failed:
            for each in (ticket, sync_ticket):
                if each is not None:
                    each.fail(self.failed)
            return
        if ticket is not None:
            ticket.resolve()
        if sync_ticket is not None:
            self._sync_tickets.append(sync_ticket)

    def _write_frame(self) -> bool:
        """Write what is staged as one frame, in a new segment if the active one is too full; tell whether it is written."""
        if self.failed:
            self._drop_staged()
            return False
        size = self._staged
        chain = self.chain
        active = chain.active
        try:
            if active is None or active.used + size > active.size_bytes:
                active = chain.roll(self.sequence, room_bytes=size, now_ns=self._volume.clock.wall_ns(), epoch=self.epoch)
            seal_frame(
                self._buffer,
                size,
                count=self._count,
                segment_id=active.segment_id,
                sequence=self.sequence,
                synced_sequence=self.synced_sequence,
            )
            with memoryview(self._buffer) as view, view[:size] as frame:
                self._volume.file(active).pwrite(frame, active.used)
        except StoreFull as error:
            # The entries stay staged: when there is room again, they go out in a later turn.
            self.blocked = str(error)
            return False
        except (OSError, StoreError) as error:
            self.fail(f"the journal cannot be written: {error}")
            self._drop_staged()
            return False
        self.blocked = ""
        chain.wrote(active, size)
        chain.prepare_next()
        self.sequence += 1
        self._grown_bytes += size
        self._drop_staged()
        self._look_at_growth()
        return True

    def _drop_staged(self) -> None:
        """Begin the next frame."""
        self._staged = FRAME_HEADER_SIZE_BYTES
        self._count = 0

    def _look_at_growth(self) -> None:
        """Ask for a snapshot once replay would take long compared with what a snapshot costs."""
        settings = self._volume.settings
        enough = min(settings.journal_growth_bytes_max, max(settings.journal_growth_bytes_min, 4 * self._snapshot_size_bytes))
        self.wants_snapshot = self._snapshot is None and self._grown_bytes > enough

    def snapshot(self, entries: Iterable[bytes]) -> None:
        """Write entries that rebuild everything, in segments of their own; earlier segments go once these are synced.

        Entries staged before the call are written first. Without room nothing happens, and `wants_snapshot` stays.
        Cost: everything is written here and now.
        """
        if (self._count and not self._write_frame()) or self.failed:
            return
        first = self.sequence
        before = self.chain.active
        grown_bytes = self._grown_bytes
        try:
            self.chain.roll(first, room_bytes=_SNAPSHOT_FRAME_SIZE_BYTES, now_ns=self._volume.clock.wall_ns(), epoch=self.epoch)
        except StoreFull:
            return
        except StoreError as error:
            self.fail(f"the journal cannot be written: {error}")
            return
        self._grown_bytes = 0
        if not self._write_snapshot(entries):
            self._undo_snapshot(before, first)
            self._grown_bytes = grown_bytes
            return
        self._snapshot = (first, self.sequence - 1)
        self._snapshot_size_bytes, self._grown_bytes = self._grown_bytes, 0
        self.wants_snapshot = False

    def _write_snapshot(self, entries: Iterable[bytes]) -> bool:
        """Write a snapshot as frames of a bounded size; tell whether all of it is written."""
        self.append(SNAPSHOT_BEGIN)
        for source in (self._own_entries(), entries):
            for entry in source:
                self.append(entry)
                if self._staged >= _SNAPSHOT_FRAME_SIZE_BYTES and not self._write_frame():
                    return False
        self.append(SNAPSHOT_END)
        return self._write_frame()

    def _undo_snapshot(self, before: Segment | None, first: int) -> None:
        """Go back to where the snapshot began, since the disk is full: behind half a snapshot nothing can be written.

        Durably: a file that came back after a power loss would stand between the segments that are written now.
        """
        self._drop_staged()
        if self.failed:
            return
        chain = self.chain
        undone = [segment for segment in chain.segments if segment.base_offset >= first]
        del chain.segments[len(chain.segments) - len(undone) :]
        chain.dirty = [segment for segment in chain.dirty if segment.base_offset < first]
        files = self._volume.files
        try:
            for segment in undone:
                segment.release()
                files.remove(segment.path)
            files.sync_folder(JOURNAL_FOLDER)
        except OSError as error:
            self.fail(f"the journal cannot be written: {error}")
            return
        chain.return_to(before)
        self.sequence = first
        self.blocked = ""

    def take_sync_tickets(self) -> list[Ticket]:
        """Give the tickets that the sync which is about to start will settle."""
        tickets, self._sync_tickets = self._sync_tickets, []
        return tickets

    def synced(self, sequence: int) -> None:
        """Take note that every frame up to `sequence` is synced."""
        self.synced_sequence = max(self.synced_sequence, sequence)
        if self._snapshot is None or self._snapshot[1] > sequence:
            return
        first, self._snapshot = self._snapshot[0], None
        old = [segment for segment in self.chain.segments if segment.base_offset < first]
        self.chain.segments = self.chain.segments[len(old) :]
        for segment in old:
            segment.release()
        files, paths = self._volume.files, [segment.path for segment in old]
        self._volume.worker.submit(lambda: _remove(files, paths), lambda _: None, lane=Lane.PREPARE)

    def fail(self, reason: str) -> None:
        """Take no more entries: what is in the file behind the last synced frame is not known any more."""
        if not self.failed:
            self.failed = reason
        self.wants_snapshot = False
        for ticket in self.take_sync_tickets():
            ticket.fail(self.failed)


def _remove(files: Files, paths: list[str]) -> None:
    """Remove segments that a snapshot has replaced, oldest first. Any that stay are removed by the next start."""
    for path in paths:
        files.remove(path)
