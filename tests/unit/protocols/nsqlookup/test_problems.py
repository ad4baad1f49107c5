"""The texts that no other test of this package compares."""

from __future__ import annotations

from polymq.protocols.nsqlookup import problems
from polymq.protocols.nsqlookup.states import Command


def test_a_full_directory_says_so() -> None:
    assert problems.limit_reached(Command.REGISTER, 7) == b"E_INVALID REGISTER limit of 7 registrations reached"


def test_names_are_given_back_as_they_came() -> None:
    assert problems.wrong_topic(Command.REGISTER, b"'\"\\\xff") == b"E_BAD_TOPIC REGISTER topic name ''\"\\\xff' is not valid"
