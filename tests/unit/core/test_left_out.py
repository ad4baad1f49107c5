from __future__ import annotations

from polymq.core.left_out import LeftOut
from polymq.core.statistics import Registry
from polymq.wire.left_out import EXPIRED, HEADER, KEY, LARGE, UNHEARD


def test_counts_are_each_readers_own_and_are_shown() -> None:
    left_out, registry = LeftOut(), Registry()
    left_out.register(registry)
    assert [list(family.collect()) for family in registry] == [[], []]
    counts = left_out.of("nats")
    assert left_out.of("nats") is counts
    counts[KEY], counts[HEADER], counts[LARGE] = 1, 2, 3
    left_out.of("a")[EXPIRED] = 4
    left_out.of("a")[UNHEARD] = 5
    shown = {
        (family.name, sample.labels["protocol"], sample.labels.get("what") or sample.labels["reason"]): sample.value
        for family in registry
        for sample in family.collect()
        if sample.value
    }
    assert shown == {
        ("polymq_conversion_dropped_total", "nats", "key"): 1,
        ("polymq_conversion_dropped_total", "nats", "header"): 2,
        ("polymq_conversion_passed_over_total", "nats", "size"): 3,
        ("polymq_conversion_passed_over_total", "a", "expired"): 4,
        ("polymq_conversion_passed_over_total", "a", "unheard"): 5,
    }
