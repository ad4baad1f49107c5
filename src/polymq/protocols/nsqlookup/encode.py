"""What a directory answers: a size and that many bytes. Unlike nsqd's, these frames have no type.

0          4                n
+----------+----------------+
| size     | data           |   size counts the data alone
| i32 be   | n - 4 bytes    |
+----------+----------------+
"""

from __future__ import annotations

from typing import Final

__all__ = ["OK", "response"]


def response(data: bytes) -> bytes:
    """Wrap an answer, or the words of a refusal."""
    return len(data).to_bytes(4, "big") + data


OK: Final = response(b"OK")
