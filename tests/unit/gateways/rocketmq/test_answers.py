from __future__ import annotations

import pytest

from polymq.errors import Refusal, RefusalCode
from polymq.gateways.rocketmq.answers import RequestProblem, integer, refused, required, truth
from polymq.protocols.rocketmq.events import Request


@pytest.mark.parametrize("code", list(RefusalCode))
def test_every_refusal_has_an_answer_in_words(code: RefusalCode) -> None:
    answer = refused(Refusal(code, "because"))
    assert answer.code != 0
    assert answer.remark == "because"


def request(**ext: str) -> Request:
    return Request(1, 2, 0, ext)


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("-1", -1), ("+7", 7), (str((1 << 63) - 1), (1 << 63) - 1)])
def test_numbers_come_as_text(text: str, value: int) -> None:
    assert integer(request(n=text), "n") == value


@pytest.mark.parametrize("text", ["x", "1.5", "", "9" * 19, "9" * 100_000, "0x1", " 7", "7 ", "1_000"])
def test_what_is_no_number_is_named(text: str) -> None:
    with pytest.raises(RequestProblem, match="<n>"):
        integer(request(n=text), "n")


def test_a_field_may_be_missing_where_it_has_a_default() -> None:
    assert integer(request(), "n", 3) == 3
    with pytest.raises(RequestProblem):
        integer(request(n=""), "n", 3)
    with pytest.raises(RequestProblem):
        integer(request(), "n")
    with pytest.raises(RequestProblem):
        required(request(), "n")
    assert required(request(n=""), "n") == ""


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("TRUE", True), ("false", False), ("0", False), ("", False)])
def test_booleans_are_spelt_in_many_ways(text: str, *, value: bool) -> None:
    assert truth(request(n=text), "n") is value
    assert truth(request(), "n") is False
