"""Which names topics and channels may have in NSQ."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EPHEMERAL_SUFFIX", "NAME_SIZE_BYTES_MAX", "is_ephemeral", "is_valid_name"]

# Counts the suffix too. Observed on nsqd 1.3.0.
NAME_SIZE_BYTES_MAX: Final = 64
EPHEMERAL_SUFFIX: Final = b"#ephemeral"

_NAME: Final = re.compile(rb"[.a-zA-Z0-9_-]+(?:#ephemeral)?")


def is_valid_name(name: bytes) -> bool:
    """Say whether a topic or a channel may be called that.

    Source: nsq.io, "TCP protocol spec"; NSQ 1.3.0, internal/protocol/names.go.
    """
    return len(name) <= NAME_SIZE_BYTES_MAX and _NAME.fullmatch(name) is not None


def is_ephemeral(name: bytes) -> bool:
    """Say whether a valid name is that of a topic or channel that goes away with its last user."""
    return name.endswith(EPHEMERAL_SUFFIX)
