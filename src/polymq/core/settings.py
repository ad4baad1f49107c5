"""What can be set about the core, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass

from polymq.core.lease_window import SLOTS_DENSE

__all__ = ["CoreSettings"]

_SECOND_NS = 1_000_000_000
_HOUR_NS = 3600 * _SECOND_NS


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """Defaults for what topics do not say themselves.

    partitions:           how many a topic gets when a publish or a subscription creates it
    sync:                 whether a publish is answered only after the sync (`durability = "fsync"`)
    retention_age_ns:     how long messages are kept that every group has finished with
    retention_disk_share: at most this share of the disk is used for such messages
    group_consumers_max:  consumers per group; 0 is no limit
    topics_max:           topics in one data folder
    latency_quantiles:    which quantiles of the time from publish to settle statistics show; none: it is not measured
    latency_window_ns:    over how much of the past
    requeue_on_close:     whether what a consumer holds waits for another as soon as it leaves, where a group's policy does not say
    prepared_expiry_ns:   how long what a query's task has prepared waits for the commit
    slots_dense:          slots that a group's window may have before stragglers leave it; tests make it small
    """

    partitions: int = 1
    sync: bool = False
    retention_age_ns: int = 24 * _HOUR_NS
    retention_disk_share: float = 0.10
    group_consumers_max: int = 0
    topics_max: int = 1_000_000
    latency_quantiles: tuple[float, ...] = ()
    latency_window_ns: int = 600 * _SECOND_NS
    requeue_on_close: bool = False
    prepared_expiry_ns: int = _HOUR_NS
    slots_dense: int = SLOTS_DENSE
