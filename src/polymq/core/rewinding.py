"""Setting a work group to another place in its topic: back, to have messages again, or forth, to leave some out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.errors import Refusal, RefusalCode, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.core.share import Share
    from polymq.core.work_group import WorkGroup

__all__ = ["rewind"]


def rewind(group: WorkGroup, shares: Sequence[Share], *, offset: int | None, time_ns: int | None) -> bool:
    """Set some of a group's shares to an offset, or to what was appended at or after a time; raises Refusal.

    False: the disk is being read, ask again after a poll, and nothing has been changed.
    """
    targets: list[int] = []
    for share in shares:
        try:
            target = share.partition.log.offset_at(time_ns) if time_ns is not None else offset
        except StoreFailed as error:
            raise Refusal(RefusalCode.STORE_FAILED, str(error)) from error
        if target is None:
            return False
        targets.append(target)
    for share, target in zip(shares, targets, strict=True):
        group.rewind(share, target)
    return True
