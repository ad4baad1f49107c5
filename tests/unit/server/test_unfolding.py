from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from polymq.limits import LAYER_NS_PER_TURN_MAX, LAYER_PIECES_PER_TURN_MAX
from polymq.server.unfolding import Unfolding
from tests.unit.server.fakes import Clock, Gateway, World

if TYPE_CHECKING:
    from polymq.server.connection import Connection


class Case:
    """Connections with pieces left, each of which takes some time."""

    def __init__(self, *pieces: int, piece_ns: int = 0) -> None:
        world = World()
        self.clock = Clock()
        self.piece_ns = piece_ns
        self.connections = [world.connect(Gateway())[2] for _ in pieces]
        self.left = dict(zip(self.connections, pieces, strict=True))
        self.handled: list[int] = []
        self.unfolding = Unfolding(self.clock, self.handle)
        for each in self.connections:
            self.unfolding.note(each)
            self.unfolding.note(each)

    def handle(self, connection: Connection) -> None:
        self.handled.append(self.connections.index(connection))
        self.clock.now_ns += self.piece_ns
        self.left[connection] -= 1
        if self.left[connection] > 0:
            self.unfolding.note(connection)


def test_what_is_left_is_handled_at_once_while_it_takes_no_time() -> None:
    case = Case(3, 2)
    case.unfolding.run()
    assert case.handled == [0, 0, 0, 1, 1]
    assert not case.unfolding
    case.unfolding.run()
    assert len(case.handled) == 5


@pytest.mark.parametrize(
    ("piece_ns", "in_a_turn"), [(0, LAYER_PIECES_PER_TURN_MAX), (LAYER_NS_PER_TURN_MAX, 1), (LAYER_NS_PER_TURN_MAX // 2, 2)]
)
def test_everybody_has_a_turn_after_some_pieces_and_some_time(piece_ns: int, in_a_turn: int) -> None:
    case = Case(100, 1, piece_ns=piece_ns)
    case.unfolding.run()
    assert case.handled == [0] * in_a_turn + [1]
    assert case.unfolding
    case.unfolding.run()
    assert case.handled.count(0) == 2 * in_a_turn


def test_who_is_not_to_be_read_is_left_alone_until_noted_again() -> None:
    case = Case(1)
    calls: list[Any] = []
    unfolding = Unfolding(case.clock, calls.append)
    note = partial(unfolding.note, case.connections[0])
    case.connections[0].unfolding = False
    note()
    unfolding.run()
    assert (len(calls), bool(unfolding)) == (1, False)
    note()
    unfolding.run()
    assert len(calls) == 2
