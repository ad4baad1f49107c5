from __future__ import annotations

from polymq.wire.left_out import EXPIRED, HEADER, KEY, LARGE, UNHEARD, left_out


def test_each_thing_has_a_place_of_its_own() -> None:
    counts = left_out()
    for index in (KEY, HEADER, LARGE, EXPIRED, UNHEARD):
        counts[index] += 1
    assert list(counts) == [1, 1, 1, 1, 1]
