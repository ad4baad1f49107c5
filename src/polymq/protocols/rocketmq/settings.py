"""What a RocketMQ broker is called and how much it takes, with RocketMQ's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from polymq.limits import MESSAGE_SIZE_BYTES_MAX
from polymq.rocketmq_limits import FRAME_SIZE_BYTES_MAX, HEADER_SIZE_BYTES_MAX

__all__ = ["RocketmqSettings"]


@dataclass(frozen=True, slots=True)
class RocketmqSettings:
    """What whoever runs the server can set, as far as the protocol needs it; the property of RocketMQ's stands beside each."""

    cluster_name: str = "DefaultCluster"  # brokerClusterName
    broker_name: str = "broker-a"  # brokerName
    body_size_bytes_max: int = 4 * 1024 * 1024  # maxMessageSize
    frame_size_bytes_max: int = FRAME_SIZE_BYTES_MAX  # com.rocketmq.remoting.frameMaxLength
    header_size_bytes_max: int = HEADER_SIZE_BYTES_MAX
    region: str = "DefaultRegion"  # regionId

    def __post_init__(self) -> None:
        assert 0 < self.body_size_bytes_max <= MESSAGE_SIZE_BYTES_MAX
        assert self.frame_size_bytes_max <= FRAME_SIZE_BYTES_MAX
        assert self.header_size_bytes_max <= min(HEADER_SIZE_BYTES_MAX, self.frame_size_bytes_max)
