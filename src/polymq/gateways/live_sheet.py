"""What a batch of live messages came to for one connection, for the next ones that are to be told exactly the same.

Most who listen to a subject call their subscription by the same number, so the bytes are the same for all of them. Then they
are encoded once and sent from one buffer (`buffers.Lent`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from polymq.gateways.buffers import Lent

__all__ = ["LIVE_SHEET_SIZE_BYTES_MIN", "LiveSheet"]

# Below this it is as quick to encode again.
LIVE_SHEET_SIZE_BYTES_MIN: Final = 4096


class LiveSheet:
    """The newest encoding of the batch that is being delivered; `key` is what it depends on, in its gateway's terms.

    Both are None until `put`. Whoever makes a sheet calls `close` when the batch is delivered.
    """

    __slots__ = ("key", "lent")

    def __init__(self) -> None:
        self.key: object = None
        self.lent: Lent | None = None

    def put(self, key: object, lent: Lent | None) -> None:
        """Keep an encoding in place of the one before; None: this one could not be lent."""
        self.close()
        if lent is not None:
            self.key, self.lent = key, lent

    def close(self) -> None:
        """Have no use for it any more."""
        if self.lent is not None:
            self.lent.release()
            self.key = self.lent = None
