"""How the endpoints say no."""

from __future__ import annotations

import pytest

from polymq.admin.door import REFUSALS, Door, Problem, endpoint, number
from polymq.core.session import Session
from polymq.errors import CorruptRecord, Refusal, RefusalCode
from polymq.wire.exchange import Request, Response, Retry

from .door_world import DoorWorld


@pytest.fixture
def world() -> DoorWorld:
    return DoorWorld()


@pytest.mark.parametrize("code", RefusalCode)
def test_every_refusal_has_an_answer(world: DoorWorld, monkeypatch: pytest.MonkeyPatch, code: RefusalCode) -> None:
    def refuse(*_args: object) -> None:
        raise Refusal(code)

    monkeypatch.setattr(Session, "log", refuse)
    assert world.json("/v1/topics/t/0/offset?time_ns=0", REFUSALS[code])["error"] == code.name


def test_unknown_paths_and_methods(world: DoorWorld) -> None:
    assert world.json("/v1/nope", 404)["error"] == "NOT_FOUND"
    wire = world.wire("/v1/topics", method="DELETE")
    assert wire.output.startswith(b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, OPTIONS\r\n")
    assert b'"error":"METHOD_NOT_ALLOWED"' in wire.output


def test_every_refusal_is_in_the_table() -> None:
    assert set(REFUSALS) == set(RefusalCode)


def test_what_is_refused_later_is_answered_too(world: DoorWorld) -> None:
    def again() -> Response | Retry:
        raise Refusal(RefusalCode.FORBIDDEN)

    @endpoint
    def late(_request: Request, _door: Door) -> Response | Retry:
        return Retry(1, lambda: Retry(2, again))

    first = late(Request("GET", "/"), world.door)
    assert isinstance(first, Retry)
    second = first.again()
    assert isinstance(second, Retry)
    answer = second.again()
    assert isinstance(answer, Response)
    assert answer.status == 403


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "1e3", "x", "٣", str(1 << 63), "9" * 30])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(Problem, match="n is not a number"):
        number(Request("GET", "/", arguments={"n": text}), "n")


def test_numbers() -> None:
    assert number(Request("GET", "/", arguments={"n": str((1 << 63) - 1)}), "n") == (1 << 63) - 1
    assert number(Request("GET", "/"), "n", 7) == 7
    with pytest.raises(Problem, match="lacks n="):
        number(Request("GET", "/"), "n")


def test_damage_is_an_answer_and_not_the_end_of_the_connection(world: DoorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_args: object) -> None:
        raise CorruptRecord("a.seg", position=7, expected="a batch", found="zeros")

    monkeypatch.setattr(Session, "log", damaged)
    answer = world.json("/v1/topics/t/0/offset?time_ns=0", 503)
    assert answer["error"] == "STORE_FAILED"
    assert "a.seg at byte 7" in answer["message"]
