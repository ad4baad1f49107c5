"""What is left out where a message of one protocol is read by another that cannot say it: never an error, always counted.

One array for each protocol that reads; the constants are its indexes. `docs/CONVERSIONS.md` has the table by which things are left out.
"""

from __future__ import annotations

from array import array
from typing import Final

__all__ = ["EXPIRED", "HEADER", "KEY", "LARGE", "UNHEARD", "left_out"]

# Parts of messages: a message without its key, headers that are missing.
KEY: Final = 0
HEADER: Final = 1
# Whole messages: what is larger than the reader's protocol allows, what was over where no group says so, and what nobody was shown
# because too many topics had something to show.
LARGE: Final = 2
EXPIRED: Final = 3
UNHEARD: Final = 4
_SIZE: Final = 5


def left_out() -> array[int]:
    """Make the counts of one protocol."""
    return array("q", bytes(8 * _SIZE))
