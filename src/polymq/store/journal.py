"""The journal: one sequence of entries for everything that is not message bodies, one frame and one write per turn.

The core's entries are bytes to it. The store's own (`entries.py`) say up to where each partition is synced. When it
has grown enough it asks for a snapshot: entries that rebuild everything, written a piece per turn among the others,
after which the older segments go.
"""

from __future__ import annotations

import itertools
import logging
import struct
from typing import TYPE_CHECKING, Final

from polymq.errors import StoreError, StoreFull
from polymq.store.chain import Chain
from polymq.store.entries import PIECE, PIECE_GOES_ON, SNAPSHOT_BEGIN, SNAPSHOT_END
from polymq.store.frames import ENTRY_OVERHEAD_BYTES, FRAME_HEADER_SIZE_BYTES, seal_frame
from polymq.store.journal_recovery import JOURNAL_FOLDER, JOURNAL_SUFFIX
from polymq.store.segment import JOURNAL_PARTITION, MAGIC_JOURNAL, Segment
from polymq.store.snapshot import Snapshot
from polymq.store.ticket import Ticket
from polymq.store.workers import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.store.files import Files
    from polymq.store.journal_recovery import RecoveredJournal
    from polymq.store.volume import Volume

__all__ = ["Journal"]

_U32: Final = struct.Struct("<I")

logger = logging.getLogger(__name__)


class Journal:
    """See the module. `failed` is the reason why it takes no more entries, `blocked` why it cannot at the moment."""

    def __init__(self, volume: Volume, *, own_units: Callable[[], Iterable[Iterable[bytes]]]) -> None:
        self.wants_snapshot = False
        self.failed = ""
        self.blocked = ""
        # Entries were given up since the store last looked, because the journal has failed.
        self.dropped = False
        self.epoch = 0
        self.chain = Chain(volume, JOURNAL_FOLDER, magic=MAGIC_JOURNAL, partition=JOURNAL_PARTITION, suffix=JOURNAL_SUFFIX, reserve=True)
        self.sequence = 1
        self.synced_sequence = 0
        self._volume = volume
        self._own_units = own_units
        self._buffer = bytearray(64 * 1024)
        self._staged = FRAME_HEADER_SIZE_BYTES
        self._count = 0
        self._ticket: Ticket | None = None
        self._sync_ticket: Ticket | None = None
        self._sync_tickets: list[Ticket] = []
        self._grown_bytes = 0
        self._snapshot_size_bytes = 0
        self._writing: Snapshot | None = None
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
            self.dropped = True
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
            self.dropped = True
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
        self.wants_snapshot = self._writing is None and self._snapshot is None and self._grown_bytes > enough

    # --- Snapshots (snapshot.py) --------------------------------------------------------------------------------------

    @property
    def snapshotting(self) -> bool:
        """Whether a snapshot has begun and is not written to its end: `continue_snapshot` is to be called every turn."""
        return self._writing is not None

    def begin_snapshot(self, units: Iterable[Iterable[bytes]]) -> None:
        """Begin to write anew what the journal stands for, in a segment of its own; one that is under way is given up.

        The units rebuild everything, each by itself and whatever is journaled before it (`snapshot.py`). They are asked
        for one after the other, in later calls. Without room nothing happens, and `wants_snapshot` stays.
        """
        self._writing = None
        if (self._count and not self._write_frame()) or self.failed or not self._has_room():
            return
        first = self.sequence
        # Sized by what is to come, not by what there was: the next start reads all of it.
        room_bytes = 2 * self._snapshot_size_bytes
        try:
            self.chain.roll(first, room_bytes=room_bytes, now_ns=self._volume.clock.wall_ns(), epoch=self.epoch, grow=False)
        except StoreFull:
            return
        except StoreError as error:
            self.fail(f"the journal cannot be written: {error}")
            return
        self._writing = Snapshot(
            itertools.chain(self._own_units(), units), self._volume.settings, first=first, grown_before=self._grown_bytes
        )
        self.wants_snapshot = False
        self._write_part([SNAPSHOT_BEGIN])

    def continue_snapshot(self) -> None:
        """Write the next piece of the snapshot, behind what is staged; the last one ends it.

        Call it when everything that has changed is journaled: a unit says how things are now. Earlier segments go once
        the end is synced. Cost: one or two frames, of a bounded size.
        """
        writing = self._writing
        if writing is None or self.failed:
            return
        if self._count and not self._write_frame():
            # Without room for what has happened there is none for the snapshot either.
            self._writing = None
            return
        frame = writing.next_frame()
        if frame is not None:
            entries, goes_on = frame
            self._write_part([PIECE_GOES_ON if goes_on else PIECE, *entries])
        elif self._write_part([SNAPSHOT_END]):
            self._snapshot = (writing.first, self.sequence - 1)
            self._snapshot_size_bytes = writing.size_bytes
            self._grown_bytes -= writing.grown_before + writing.size_bytes
            self._writing = None

    def snapshot(self, units: Iterable[Iterable[bytes]]) -> None:
        """Write a whole snapshot here and now: before a clean stop."""
        self.begin_snapshot(units)
        while self._writing is not None:
            self.continue_snapshot()

    def _has_room(self) -> bool:
        """Whether a snapshot can be expected to fit: one that is given up half-way takes room and frees none."""
        try:
            return self._volume.files.free_bytes() > (self._snapshot_size_bytes or self._grown_bytes)
        except OSError:
            return True

    def _write_part(self, entries: list[bytes]) -> bool:
        """Write a frame that belongs to the snapshot; without room for it the snapshot is given up, and nothing else."""
        writing = self._writing
        assert writing is not None
        assert not self._count
        for entry in entries:
            self.append(entry)
        size = self._staged
        writing.size_bytes += size
        dropped = self.dropped
        if self._write_frame():
            return True
        self._drop_staged()
        self.dropped = dropped
        self.blocked = ""
        self._writing = None
        # The next attempt waits for more room, and for more to be gained by it.
        self._snapshot_size_bytes = 2 * max(self._snapshot_size_bytes, writing.size_bytes)
        return False

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
            logger.error("%s; nothing can be published, settled or created until a restart", reason)
        self.wants_snapshot = False
        self._writing = None
        for ticket in self.take_sync_tickets():
            ticket.fail(self.failed)


def _remove(files: Files, paths: list[str]) -> None:
    """Remove segments that a snapshot has replaced, oldest first. Any that stay are removed by the next start."""
    for path in paths:
        files.remove(path)
