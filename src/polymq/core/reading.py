"""How those who read a log move on in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq import limits

if TYPE_CHECKING:
    from polymq.core.ports import Reader

__all__ = ["reach"]


def reach(reader: Reader, offset: int) -> bool:
    """Move a reader to an offset; False while the disk is read.

    A reader that seeks forgets what it has at hand, and a group may leave out every other message: so it steps over a
    few records by taking them. That is a few ns per record, a seek may be a read of 256 KiB.
    """
    while 0 < offset - reader.offset <= limits.SLICE_MESSAGES_MAX:
        if reader.take(offset - reader.offset, limits.SLICE_SIZE_BYTES_MAX) is None:
            if reader.waiting:
                return False
            break
    if reader.offset != offset:
        reader.seek(offset)
    return True
