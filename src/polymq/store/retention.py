"""What happens to segments that are full: they are cut to their contents, looked at again after a restart, and dropped.

Pure functions over segments, and jobs for the worker; `log.py` decides when.
"""

from __future__ import annotations

from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from polymq.store.cold import describe
from polymq.store.index import INDEX_SUFFIX
from polymq.store.segment import SEGMENT_HEADER_SIZE_BYTES
from polymq.store.volume import is_passing
from polymq.store.workers import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from polymq.store.files import Files
    from polymq.store.segment import Segment
    from polymq.store.volume import Volume

__all__ = ["chained", "droppable", "finished", "forget", "index_path", "learn", "seal", "seal_segment", "survey"]


def index_path(path: str) -> str:
    """The name of a segment's index file."""
    return f"{path[: path.rindex('.')]}{INDEX_SUFFIX}"


def chained(segments: list[Segment], end: int) -> list[Segment]:
    """Let each segment end where the next begins, the last one at `end`."""
    for segment, following in pairwise(segments):
        segment.end_offset = following.base_offset
    if segments:
        segments[-1].end_offset = end
    return segments


def finished(segments: Sequence[Segment], limit: int) -> Iterator[tuple[Segment, Segment]]:
    """Give the segments that end at or before `limit`, each with the one behind it; never the last one."""
    return takewhile(lambda pair: pair[0].end_offset <= limit, pairwise(segments))


def droppable(segments: Sequence[Segment], limit: int, *, older_than_ns: int, excess_bytes: int) -> int:
    """Count the oldest segments that end at or before `limit` and are old, or lie in the bytes that are too many.

    A segment is as old as its last batch, which is no later than the next segment was made.
    """
    count = 0
    for segment, following in finished(segments, limit):
        if following.created_ns >= older_than_ns and excess_bytes <= 0:
            break
        excess_bytes -= segment.size_bytes
        count += 1
    return count


def forget(segments: Sequence[Segment]) -> list[str]:
    """Make readers that are in these segments see that nothing is left; return the files that are to go."""
    paths: list[str] = []
    for segment in segments:
        segment.used = 0
        segment.heat = 0
        segment.release()
        paths += (segment.path, index_path(segment.path))
    return paths


def seal_segment(files: Files, path: str, used: int, index: bytes) -> None:
    """Cut a full segment to what it holds and write its index. Runs in the worker; an error costs nothing but room."""
    file = files.open(path)
    try:
        file.truncate(used)
    finally:
        file.close()
    if not index:
        return
    file = files.open(index_path(path), create=True)
    try:
        file.pwrite(index, 0)
    finally:
        file.close()


def seal(volume: Volume, segment: Segment) -> None:
    """Have a full segment cut and its index written, in the worker."""
    index = segment.index
    assert index is not None
    files, path, used = volume.files, segment.path, segment.used
    data = b""
    if index.complete_from == SEGMENT_HEADER_SIZE_BYTES:
        data = index.encode(segment_id=segment.segment_id, base_offset=segment.base_offset, end_offset=segment.end_offset, used=used)
    volume.worker.submit(lambda: seal_segment(files, path, used, data), lambda _: None, lane=Lane.PREPARE)


def survey(volume: Volume, number: int, segments: Sequence[Segment], *, active: Segment | None, done: Callable[[str], None]) -> None:
    """Have the worker look at the headers of segments, keep what it finds, and tell what is wrong.

    Empty: nothing is, or it cannot be told now, and nothing is kept.
    """
    files = volume.files
    rows = [(segment.path, segment.base_offset) for segment in segments]

    def ended(result: object) -> None:
        if isinstance(result, list):
            learn(segments, result, active=active)
        done("" if isinstance(result, list) or is_passing(result) else str(result))

    volume.worker.submit(lambda: [describe(files, path, number, base) for path, base in rows], ended, lane=Lane.READ)


def learn(segments: Sequence[Segment], rows: Sequence[tuple[int, int, int]], *, active: Segment | None) -> None:
    """Take note of what `survey` has found."""
    for segment, (segment_id, created_ns, size_bytes) in zip(segments, rows, strict=True):
        segment.created_ns = created_ns
        if segment is not active:
            segment.segment_id = segment_id
            segment.size_bytes = size_bytes
            segment.known = True
