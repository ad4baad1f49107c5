"""The one checksum of everything that polymq stores: CRC-32C (Castagnoli), done by the processor where it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c as _crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["crc32c"]


def crc32c(data: Buffer, seed: int = 0) -> int:
    """Compute the CRC-32C of `data`; `seed` is the checksum of what comes before it, 0 at the start."""
    return _crc32c(data, seed)
