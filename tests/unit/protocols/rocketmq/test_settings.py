"""Settings are RocketMQ's own, and stay within our limits."""

from __future__ import annotations

import pytest

from polymq.limits import MESSAGE_SIZE_BYTES_MAX
from polymq.protocols.rocketmq.settings import RocketmqSettings
from polymq.rocketmq_limits import FRAME_SIZE_BYTES_MAX, HEADER_SIZE_BYTES_MAX


def test_defaults() -> None:
    settings = RocketmqSettings()
    assert (settings.cluster_name, settings.broker_name, settings.body_size_bytes_max) == ("DefaultCluster", "broker-a", 4 * 1024 * 1024)


@pytest.mark.parametrize(
    "changed",
    [
        {"body_size_bytes_max": 0},
        {"body_size_bytes_max": MESSAGE_SIZE_BYTES_MAX + 1},
        {"frame_size_bytes_max": FRAME_SIZE_BYTES_MAX + 1},
        {"header_size_bytes_max": HEADER_SIZE_BYTES_MAX + 1},
    ],
)
def test_nothing_is_larger_than_its_limit(changed: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        RocketmqSettings(**changed)  # type: ignore[arg-type]
