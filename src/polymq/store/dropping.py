"""The old end of a partition: segments that nobody needs any more go, durably, and checkpoints follow.

They stay for some time, since they can still be read. How much room they may take is one budget for all partitions
(`Finished`): what it finds to be too much goes when each partition is next told what is needed of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polymq.store.committer import checkpoint_entries
from polymq.store.retention import droppable, finished, forget, survey

if TYPE_CHECKING:
    from polymq.store.committer import Committer
    from polymq.store.entries import Checkpoint
    from polymq.store.journal import Journal
    from polymq.store.log import Log
    from polymq.store.volume import Volume

__all__ = ["Dropping", "Finished"]


class Finished:
    """The segments of all partitions that nobody needed when they were last looked at.

    `before_ns`: those whose successor was made before this time are in the way. None is dropped on the word of what
    was seen some time ago, as somebody may have gone back since: `Dropping.retain` does it.
    """

    __slots__ = ("before_ns", "parts")

    def __init__(self) -> None:
        self.before_ns = 0
        # For each partition that has any: (time at which the successor was made, size), oldest first.
        self.parts: dict[Dropping, list[tuple[int, int]]] = {}

    def weigh(self, *, size_bytes_max: int, lacking_bytes: int) -> None:
        """Find the oldest segments that have to go so that the rest takes no more than `size_bytes_max`, and `lacking_bytes` become free.

        Cost: a look at each such segment, of which the budget allows some thousands.
        """
        self.before_ns = 0
        rows = [row for part in self.parts.values() for row in part]
        excess_bytes = max(sum(size_bytes for _, size_bytes in rows) - size_bytes_max, lacking_bytes)
        if excess_bytes <= 0:
            return
        for time_ns, size_bytes in sorted(rows):
            self.before_ns = time_ns + 1
            excess_bytes -= size_bytes
            if excess_bytes <= 0:
                return


class Dropping:
    """What goes from the front of one partition. Made by its `Log`, which asks it before it believes a checkpoint."""

    __slots__ = ("_before_capture", "_committer", "_dropped_size_bytes", "_finished", "_journal", "_log", "_surveying", "_volume")

    def __init__(self, log: Log, volume: Volume, committer: Committer, journal: Journal, finished: Finished) -> None:
        self._log = log
        self._finished = finished
        self._volume = volume
        self._committer = committer
        self._journal = journal
        self._surveying = False
        self._dropped_size_bytes = 0
        self._before_capture = 0

    def retain(self, first_needed: int, *, now_ns: int, age_ns: int, size_bytes: int) -> None:
        """See `Log.retain`."""
        log = self._log
        if self._finished.parts:
            self._finished.parts.pop(self, None)
        if log.synced_point is None or log.failed or first_needed <= log.start:
            return
        log.list_segments()
        limit = min(first_needed, log.synced_point.segment_base)
        if log.failed or log.chain.segments[0].end_offset > limit or self._survey(limit):
            return
        older_than_ns = max(now_ns - age_ns, self._finished.before_ns)
        count = droppable(log.chain.segments, limit, older_than_ns=older_than_ns, excess_bytes=log.size_bytes - size_bytes)
        if count:
            self._drop(count)
        rows = [(following.created_ns, segment.size_bytes) for segment, following in finished(log.chain.segments, limit)]
        if rows:
            self._finished.parts[self] = rows

    def close(self) -> None:
        """Count for nothing any more: the partition is deleted, or the folder is closed."""
        self._finished.parts.pop(self, None)

    def captured(self) -> None:
        """Take note that a sync starts, whose checkpoint knows nothing of what is dropped from here on."""
        self._before_capture = self._dropped_size_bytes

    def agreeing(self, point: Checkpoint) -> Checkpoint:
        """Give the checkpoint of a sync that has ended: segments that were dropped while it ran do not come back by it."""
        if point.start == self._log.start:
            return point
        return self._shortened(point, self._dropped_size_bytes - self._before_capture)

    def _survey(self, limit: int) -> bool:
        """Have the worker look at segments of an earlier life whose size and age matter; tell whether any has to be."""
        log = self._log
        unknown = [segment for segment in log.chain.segments if not segment.created_ns and segment.base_offset <= limit]
        if not unknown:
            return False
        if not self._surveying:
            self._surveying = True

            def done(problem: str) -> None:
                self._surveying = False
                if problem and not log.deleted:
                    log.fence(problem)

            survey(self._volume, log.number, unknown, active=log.chain.active, done=done)
        return True

    def _drop(self, count: int) -> None:
        """Forget the oldest segments, and have their files removed once that is durable."""
        log = self._log
        dropped = log.chain.segments[:count]
        del log.chain.segments[:count]
        dropped_size_bytes = sum(segment.size_bytes for segment in dropped)
        # A segment whose sealing a crash has prevented is longer than what was counted for it.
        log.size_bytes = max(0, log.size_bytes - dropped_size_bytes)
        log.sealed_size_bytes = max(0, log.sealed_size_bytes - dropped_size_bytes)
        log.start = log.chain.segments[0].base_offset
        while len(log.epochs) > 1 and log.epochs[1][1] <= log.start:
            del log.epochs[0]
        point = log.synced_point
        assert point is not None
        self._dropped_size_bytes += dropped_size_bytes
        log.synced_point = self._shortened(point, dropped_size_bytes)
        for entry in checkpoint_entries(log):
            self._journal.append(entry)
        self._committer.remove_after_sync(forget(dropped))

    def _shortened(self, point: Checkpoint, dropped_size_bytes: int) -> Checkpoint:
        """Make a checkpoint agree with the partition's present start.

        The epochs stay its own: one that began behind it is not synced, and a start that believed in it would cut what lies before.
        """
        sealed_size_bytes = max(0, point.sealed_size_bytes - dropped_size_bytes)
        epochs = point.epochs
        while len(epochs) > 1 and epochs[1][1] <= self._log.start:
            epochs = epochs[1:]
        return replace(point, start=self._log.start, sealed_size_bytes=sealed_size_bytes, epochs=epochs)
