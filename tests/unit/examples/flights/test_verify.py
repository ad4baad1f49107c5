from __future__ import annotations

import pandas as pd
import pytest
from examples.flights.broker import ChannelState, channel_state
from examples.flights.verify import prove_archive, prove_gold, prove_log, prove_settled

EXPECTED = {("2013-01-01T10:00:00Z", "AA", 1), ("2013-01-01T10:00:00Z", "AA", 2)}
EMPTY = ChannelState(0, 0, 0)


def names(*rows: tuple[int, int, bool]) -> pd.DataFrame:
    table = [("2013-01-01T10:00:00Z", "AA", flight, copies, agree) for flight, copies, agree in rows]
    return pd.DataFrame(table, columns=["time_hour", "carrier", "flight", "copies", "agree"])


def test_repeats_are_counted_and_do_no_harm() -> None:
    proof = prove_archive(names((1, 3, True), (2, 1, True)), EXPECTED)
    assert proof.holds
    assert proof.numbers == "4 rows, 2 flights, 2 repeats removed"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(1, 2, True)], "1 missing"),
        ([(1, 1, True), (2, 1, True), (3, 1, True)], "1 unknown"),
        ([(1, 2, False), (2, 1, True)], "1 with contradicting"),
        ([], "2 missing"),
    ],
)
def test_an_archive_that_is_not_complete_fails(rows: list[tuple[int, int, bool]], words: str) -> None:
    proof = prove_archive(names(*rows), EXPECTED)
    assert not proof.holds
    assert words in proof.numbers


def test_the_archive_has_every_offset_once() -> None:
    assert prove_log(5, 5).holds
    assert not prove_log(5, 6).holds
    assert not prove_log(6, 5).holds


@pytest.mark.parametrize(
    ("settled", "channel", "holds"),
    [
        (EXPECTED, EMPTY, True),
        (EXPECTED, None, False),
        (EXPECTED, ChannelState(1, 0, 0), False),
        (EXPECTED, ChannelState(0, 1, 0), False),
        (EXPECTED, ChannelState(0, 0, 1), False),
        (set(list(EXPECTED)[:1]), EMPTY, False),
        (EXPECTED | {("x", "AA", 1)}, EMPTY, False),
    ],
)
def test_everything_is_settled_on_both_sides(settled: set[tuple[str, str, int]], channel: ChannelState | None, holds: bool) -> None:
    assert prove_settled(settled, 5, channel, EXPECTED).holds == holds


def test_one_wrong_cell_fails() -> None:
    assert prove_gold([], 8).holds
    proof = prove_gold(iter(["flights of AA at 5 is 1, not 2"]), 8)
    assert not proof.holds
    assert "not 2" in proof.numbers


def test_the_state_of_a_channel_is_found_in_the_statistics() -> None:
    channel = {"channel_name": "delays", "depth": 3, "in_flight_count": 2, "deferred_count": 1}
    statistics = {
        "topics": [{"topic_name": "other", "depth": 9, "channels": []}, {"topic_name": "flights", "depth": 4, "channels": [channel]}]
    }
    assert channel_state(statistics, "flights", "delays") == ChannelState(7, 2, 1)
    assert channel_state(statistics, "flights", "x") is None
    assert channel_state({}, "flights", "delays") is None
