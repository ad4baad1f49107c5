from __future__ import annotations

import pytest

from tests.unit.core.conftest import World


@pytest.fixture
def single() -> World:
    return World(1)
