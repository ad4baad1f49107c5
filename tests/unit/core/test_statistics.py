from __future__ import annotations

import pytest

from polymq.core.statistics import Family, Kind, Registry


def test_families_have_unique_names_and_samples() -> None:
    registry = Registry()
    family = Family("a_total", Kind.COUNTER, "text", list)
    registry.register(family)
    with pytest.raises(ValueError, match="a_total"):
        registry.register(family)
    assert list(registry) == [family]
