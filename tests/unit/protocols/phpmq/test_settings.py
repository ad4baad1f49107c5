from __future__ import annotations

from dataclasses import replace

import pytest

from polymq.phpmq_limits import CONTENT_SIZE_BYTES_MAX, TTL_S_MAX, WINDOW_MAX
from polymq.protocols.phpmq.settings import PhpmqSettings


def test_nothing_goes_beyond_the_limits() -> None:
    assert PhpmqSettings(content_size_bytes_max=CONTENT_SIZE_BYTES_MAX, ttl_s_max=TTL_S_MAX, window_max=WINDOW_MAX)
    for wrong in ({"content_size_bytes_max": CONTENT_SIZE_BYTES_MAX + 1}, {"ttl_s_max": TTL_S_MAX + 1}, {"window_max": WINDOW_MAX + 1}):
        with pytest.raises(AssertionError):
            replace(PhpmqSettings(), **wrong)  # type: ignore[arg-type]
