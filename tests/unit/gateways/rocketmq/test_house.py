from __future__ import annotations

from .harness import World


def test_the_buffer_for_output_is_kept_while_it_is_small() -> None:
    house = World().house
    small = house.room(1000)
    assert len(small) >= 1000
    assert house.room(10) is small
    large = house.room(2 * 1024 * 1024)
    assert len(large) >= 2 * 1024 * 1024
    assert house.room(10) is small


def test_everybody_has_a_session_of_their_own() -> None:
    world = World()
    assert world.house.session() is not world.house.session()
    assert world.house.session().principal is world.house.principal
