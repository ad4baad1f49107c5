from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.core.statistics import Family, Kind, Registry

if TYPE_CHECKING:
    from .conftest import World


def test_families_have_unique_names_and_samples() -> None:
    registry = Registry()
    family = Family("a_total", Kind.COUNTER, "text", list)
    registry.register(family)
    with pytest.raises(ValueError, match="a_total"):
        registry.register(family)
    assert list(registry) == [family]


def test_the_registry_shows_topics_and_groups(single: World) -> None:
    single.consume("t", "g", 1)
    single.publish("t", b"abc", b"de")
    single.turn()
    found = {family.name: list(family.collect()) for family in single.broker.statistics}
    assert [sample.value for sample in found["polymq_topic_messages_total"]] == [2]
    assert [sample.value for sample in found["polymq_topic_message_bytes_total"]] == [5]
    (depth,) = found["polymq_group_depth_messages"]
    assert (depth.labels, depth.value) == ({"namespace": "", "topic": "t", "group": "g"}, 1)
