"""A snapshot of the journal that is written in pieces, turn by turn, while entries go on being written between them.

Who makes the snapshot gives *units*: entries that, at the place where they stand, replace what was known about one
thing (a partition, a topic, a group) before. A unit is read at one moment, so it says how things are behind all that
was journaled until then. Small units go into one piece together; a unit that is large is read at once and written over
several turns, and who replays holds back what was journaled meanwhile until the piece is whole (`in_order`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from polymq.store.entries import KIND_PIECE, KIND_SNAPSHOT_BEGIN, KIND_START, KIND_START_SILENT
from polymq.store.frames import ENTRY_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polymq.store.settings import StoreSettings

__all__ = ["Snapshot", "in_order"]


class Snapshot:
    """What has to be written yet. `first` is the sequence of the frame that began it, `size_bytes` what it has taken so far."""

    __slots__ = ("_entries_max", "_piece", "_size_bytes_max", "_units", "first", "grown_before", "size_bytes")

    def __init__(self, units: Iterable[Iterable[bytes]], settings: StoreSettings, *, first: int, grown_before: int) -> None:
        self.first = first
        self.grown_before = grown_before
        self.size_bytes = 0
        self._units = iter(units)
        self._piece: deque[bytes] = deque()
        self._entries_max = settings.snapshot_piece_entries
        self._size_bytes_max = settings.snapshot_piece_size_bytes

    def next_frame(self) -> tuple[list[bytes], bool] | None:
        """Give the entries of the next frame, and whether their piece goes on behind them; None at the end.

        Cost: bounded by the settings, but for a unit that is larger, which is read whole, though not written at once.
        """
        if not self._piece:
            self._gather()
        if not self._piece:
            return None
        frame: list[bytes] = []
        size_bytes = 0
        while self._piece and (not frame or size_bytes + len(self._piece[0]) <= self._size_bytes_max):
            entry = self._piece.popleft()
            size_bytes += len(entry) + ENTRY_OVERHEAD_BYTES
            frame.append(entry)
        return frame, bool(self._piece)

    def _gather(self) -> None:
        """Read units until there is enough for a piece."""
        piece = self._piece
        size_bytes = 0
        for unit in self._units:
            for entry in unit:
                piece.append(entry)
                size_bytes += len(entry) + ENTRY_OVERHEAD_BYTES
            if len(piece) >= self._entries_max or size_bytes >= self._size_bytes_max:
                return


def in_order(frames: Iterable[Iterator[memoryview]]) -> Iterator[memoryview]:
    """Go through the entries of frames in the order in which they are to be applied; the marks of pieces are left out.

    A piece stands where its first frame stands. One that was not finished is left out: a start or another snapshot
    comes behind it, or nothing.
    """
    piece: list[memoryview] = []
    # What was journaled since the piece began; None while there is no piece that goes on.
    held: list[memoryview] | None = None
    for entries in frames:
        first = next(entries, None)
        if first is None:
            continue
        if first[0] == KIND_PIECE:
            piece += entries
            if first[1]:
                held = [] if held is None else held
            else:
                yield from piece
                yield from held or ()
                piece, held = [], None
            continue
        if held is not None and first[0] in (KIND_START, KIND_START_SILENT, KIND_SNAPSHOT_BEGIN):
            yield from held
            piece, held = [], None
        if held is None:
            yield first
            yield from entries
        else:
            held.append(first)
            held += entries
    yield from held or ()
