from __future__ import annotations

import pandas as pd
import pytest
from examples.flights import data, gold, report


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    return data.load()


def test_the_table_is_whole_and_every_flight_has_its_own_name(flights: pd.DataFrame) -> None:
    assert len(flights) == 336_776
    assert len(data.identities(flights)) == 336_776
    assert flights["time_hour"].is_monotonic_increasing


def test_messages_hold_whole_numbers_and_nulls(flights: pd.DataFrame) -> None:
    cancelled = flights[flights["dep_delay"].isna()].head(1)
    (body,) = data.encode(cancelled)
    assert b'"dep_delay":null' in body
    assert b"." not in body
    assert data.encode(flights.head(2)) == data.encode(flights.head(1)) + data.encode(flights.iloc[1:2])


def test_batches_cover_all_messages() -> None:
    assert list(data.batches([b"1", b"2", b"3"], 2)) == [[b"1", b"2"], [b"3"]]


def table(**changes: object) -> pd.DataFrame:
    row = {"carrier": "AA", "hour": 5, "flights": 3, "cancelled": 1, "delay_mean": 10.0, "delay_p95": 19.0} | changes
    return pd.DataFrame([row])


def test_the_reference_is_what_a_person_would_compute() -> None:
    flights = pd.DataFrame({"carrier": ["AA"] * 3 + ["B6"], "hour": [5, 5, 5, 6], "dep_delay": pd.array([0, 20, None, None], "Int64")})
    found = gold.gold_of_table(flights)
    assert gold.differences(found.iloc[:1], table()) == []
    assert found.iloc[1].to_dict() == pytest.approx(
        {"carrier": "B6", "hour": 6, "flights": 1, "cancelled": 1, "delay_mean": float("nan"), "delay_p95": float("nan")}, nan_ok=True
    )


@pytest.mark.parametrize(
    "change", [{"flights": 4}, {"cancelled": 0}, {"delay_mean": 10.000001}, {"delay_p95": None}, {"hour": 6}, {"carrier": "B6"}]
)
def test_every_kind_of_difference_is_found(change: dict[str, object]) -> None:
    assert gold.differences(table(**change), table())


def test_the_order_of_summing_is_no_difference() -> None:
    assert gold.differences(table(delay_mean=10.0 + 1e-12), table()) == []
    assert gold.differences(table(delay_p95=None), table(delay_p95=None)) == []


def test_carriers_are_summed_up_for_the_report() -> None:
    cells = pd.concat(
        [
            table(flights=200, cancelled=0, delay_mean=1.0, delay_p95=5.0),
            table(hour=6, flights=300, cancelled=100, delay_mean=4.0, delay_p95=9.0),
        ]
    )
    rare = table(carrier="B6", flights=2, cancelled=2, delay_mean=None, delay_p95=None)
    rows = report.carriers(pd.concat([cells, rare.astype({"delay_mean": float, "delay_p95": float})]))
    assert rows[0][:3] + rows[0][4:] == ("AA", 500, 100, 6, 9.0)
    assert rows[0][3] == pytest.approx(2.5)
    assert rows[1][:4] == ("B6", 2, 2, 0.0)
