"""What a bridge carries knows about how much memory it takes, and what it has counted knows whether anything is missing."""

from __future__ import annotations

from polymq.clients.bridge_ends import Carried, Tally


def test_a_message_takes_at_least_what_its_parts_take() -> None:
    small = Carried(b"")
    assert 100 < small.size_bytes < 1000
    assert Carried(b"x" * 100, None, [(b"n" * 10, b"v" * 20)]).size_bytes == small.size_bytes + 130


def test_a_tally_is_whole_unless_something_was_left_out() -> None:
    assert Tally(moved=1, expired=2, again=3).is_whole
    assert not Tally(skipped=1).is_whole
    assert not Tally(gone=1).is_whole
