from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.gateways.phpmq.clients import PEER, house_of

if TYPE_CHECKING:
    from tests.unit.core.conftest import World


def test_what_is_closed_is_counted_by_reason(single: World) -> None:
    house = house_of(single)
    house.complain(PEER, "type", "x")
    house.complain(PEER, "type", "y")
    house.complain(PEER, "slow", "z")
    assert house.closed == {"type": 2, "slow": 1}
