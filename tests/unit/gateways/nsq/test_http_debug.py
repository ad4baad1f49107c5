"""`/debug/…`, as a real nsqd 1.3.0 answers."""

from __future__ import annotations

import pytest

from tests.unit.gateways.nsq.http_world import NsqWorld, message


@pytest.fixture
def world() -> NsqWorld:
    return NsqWorld()


def test_success_looks_like_an_error(world: NsqWorld) -> None:
    assert message(world.ask("PUT", "/debug/setblockrate?rate=-1")) == (500, "INTERNAL_ERROR")
    assert message(world.post("/debug/freememory")) == (500, "INTERNAL_ERROR")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", 'parsing "": invalid syntax'),
        ("?rate=x%22", 'parsing "x\\"": invalid syntax'),
        ("?rate=9223372036854775808", 'parsing "9223372036854775808": value out of range'),
        (f"?rate={'9' * 5000}", f'parsing "{"9" * 5000}": value out of range'),
    ],
)
def test_wrong_rates(world: NsqWorld, query: str, text: str) -> None:
    answer = world.ask("PUT", f"/debug/setblockrate{query}")
    assert (answer.status, answer.text) == (400, f"invalid block rate : strconv.Atoi: {text}")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "X-Nsq-Content-Type" not in answer.headers


def test_methods(world: NsqWorld) -> None:
    assert world.get("/debug/freememory").headers["Allow"] == "OPTIONS, POST"
    assert world.get("/debug/setblockrate").headers["Allow"] == "OPTIONS, PUT"


def test_there_are_no_profiles_of_go(world: NsqWorld) -> None:
    assert message(world.get("/debug/pprof/")) == (404, "NOT_FOUND")
