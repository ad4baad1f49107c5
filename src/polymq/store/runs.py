"""Going through record batches as they lie in a segment: for recovery, for cold reads, for the index and for inspection.

Everything is checked: that a batch is whole and sound, that it belongs to this segment's life, that its offsets go on
where the last one ended, that neither epoch nor time goes backwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.limits import BATCH_SIZE_BYTES_MAX, OFFSET_MAX
from polymq.wire.records import HEADER_SIZE_BYTES, MAGIC, BatchHeader, check, parse_header
from polymq.wire.walk import pass_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.store.index import SparseIndex

__all__ = ["Walk", "scan"]

_ZEROS: Final = bytes(HEADER_SIZE_BYTES)
_CHUNK_SIZE_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class Walk:
    """How far a walk has come and what it expects next. `ended`: zeros follow; `problem`: something wrong follows.

    `until`: it stops before a batch that has this record or a later one.
    """

    segment_id: int
    offset: int
    epoch: int = 0
    time_ns: int = 0
    index: SparseIndex | None = None
    # (epoch, first offset) of every epoch that begins during the walk.
    epochs: list[tuple[int, int]] = field(default_factory=list)
    on_batch: Callable[[int, BatchHeader], None] | None = None
    until: int = OFFSET_MAX + 1
    problem: str = ""
    ended: bool = False

    def run(self, data: bytes | memoryview, at: int, position: int) -> int:
        """Walk over the whole batches in `data` from `at` on, which is byte `position` of the file; return where it stopped.

        It stops before zeros, before something wrong, and before a batch that may go on behind the data.
        """
        end = len(data)
        start = at
        while end - at >= HEADER_SIZE_BYTES:
            at = self._pass_plain(data, at, position - start)
            if end - at < HEADER_SIZE_BYTES:
                break
            header = parse_header(data, at)
            if header.magic == 0 and data[at : at + HEADER_SIZE_BYTES] == _ZEROS:
                self.ended = True
                break
            if header.magic == MAGIC and end - at < header.size <= BATCH_SIZE_BYTES_MAX:
                break
            if header.magic == MAGIC and header.base_offset == self.offset and header.count > self.until - self.offset:
                break
            self.problem = check(data, at, end) or self._mismatch(header) or ""
            if self.problem:
                break
            self._pass(header, position + at - start)
            at += header.size
        return at

    def _pass_plain(self, data: bytes | memoryview, at: int, shift: int) -> int:
        """Go over good batches of the usual kind, up to where somebody wants to hear of one; return where that is.

        `shift` is what a place in the data lacks to the place in the file.
        """
        if self.on_batch is not None:
            return at
        stop_at = len(data) if self.index is None else self.index.due - shift
        after, self.offset, self.time_ns = pass_plain(data, at, stop_at, self.segment_id, self.epoch, self.offset, self.time_ns, self.until)
        if self.index is not None and after > at:
            self.index.pass_over(self.time_ns)
        return after

    def _mismatch(self, header: BatchHeader) -> str | None:
        """Say what keeps a sound batch from being the next one of this segment."""
        if header.segment_id != self.segment_id:
            return "the batch belongs to another segment"
        if header.base_offset != self.offset:
            return f"the batch begins with record {header.base_offset}, {self.offset} should follow"
        if header.epoch < self.epoch:
            return f"the batch is of epoch {header.epoch}, behind one of epoch {self.epoch}"
        if header.base_time_ns < self.time_ns:
            return "the batch is older than the one before it"
        return None

    def _pass(self, header: BatchHeader, position: int) -> None:
        """Take a good batch into account."""
        if header.epoch != self.epoch:
            self.epochs.append((header.epoch, header.base_offset))
            self.epoch = header.epoch
        if self.index is not None:
            self.index.add(header.base_offset, position, header.base_time_ns)
        if self.on_batch is not None:
            self.on_batch(position, header)
        self.offset += header.count
        self.time_ns = header.base_time_ns


def scan(read: Callable[[int, int], bytes], walk: Walk, position: int, limit: int) -> int:
    """Walk over the batches of a file from `position` up to `limit`; return where the last good one ends.

    `read(size, position)` reads the file. A batch that is cut off by the limit or the file's end is a problem.
    """
    chunk = _CHUNK_SIZE_BYTES
    while position < limit:
        data = read(min(chunk, limit - position), position)
        passed = walk.run(data, 0, position)
        position += passed
        if walk.ended or walk.problem:
            break
        if passed == 0 and len(data) < chunk:
            if any(data):
                walk.problem = f"the last {len(data)} bytes are not a whole batch"
            walk.ended = not walk.problem
            break
        if passed == 0:
            chunk *= 2
    return position
