from __future__ import annotations

from polymq.protocols.phpmq.codes import PACKETS, MessageType, PacketType
from polymq.protocols.phpmq.events import Violation
from polymq.protocols.phpmq.problems import Problem


def test_the_table_is_the_grammar() -> None:
    assert {(int(kind), count) for kind, count in PACKETS} == {(1, 2), (1, 3), (2, 2), (3, 3), (3, 4), (4, 2), (5, 3), (6, 2)}
    for (_kind, count), packets in PACKETS.items():
        assert len(set(packets)) == len(packets) == count
        assert packets[0] is PacketType.QUEUE
    assert {kind for kind, _count in PACKETS} == set(MessageType)


def test_problems_are_labels() -> None:
    assert all(problem.value.replace("-", "").islower() for problem in Problem)
    assert Violation(Problem.SLOW, "x") == Violation(Problem.SLOW, "x")
