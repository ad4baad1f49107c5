"""The limits of RocketMQ's part fit together; that each is kept is tested where it is kept."""

from __future__ import annotations

from polymq import rocketmq_limits


def test_every_limit_is_a_positive_number_and_named() -> None:
    named = {name for name in vars(rocketmq_limits) if name.isupper() and name != "BATCH_SIZE_BYTES_MAX"}
    assert set(rocketmq_limits.__all__) <= named
    for name in rocketmq_limits.__all__:
        value = getattr(rocketmq_limits, name)
        assert isinstance(value, int)
        assert value > 0


def test_a_physical_offset_fits_a_number_of_javascripts() -> None:
    assert rocketmq_limits.PHYSICAL_OFFSET_BITS == 31
