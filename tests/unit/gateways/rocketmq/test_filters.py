from __future__ import annotations

from typing import Any

import pytest

from polymq.gateways.rocketmq import filters
from polymq.gateways.rocketmq.answers import Answer
from polymq.gateways.rocketmq.filters import EVERYTHING, Remembered, Wanted, wanted_of
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.names import tag_hash
from polymq.rocketmq_limits import EXPRESSION_SIZE_MAX, TAGS_PER_SUBSCRIPTION_MAX

from .harness import World


class Lane:
    """As much of a pull as is looked at."""

    def __init__(self, expression: str, kind: str = "TAG") -> None:
        self.expression: tuple[str, str] | Wanted = (kind, expression)


def codes(expression: str) -> list[int] | None:
    house: Any = None
    client: Any = None
    lane: Any = Lane(expression)
    found = wanted_of(house, lane, client)
    assert isinstance(found, Wanted)
    return None if found.codes is None else list(found.codes)


def test_expressions_name_tags() -> None:
    assert codes("*") is None
    assert codes("TagA") == [tag_hash("TagA")]
    assert codes("TagB||TagA") == sorted([tag_hash("TagA"), tag_hash("TagB")])


def test_what_is_no_expression_is_told() -> None:
    house: Any = None
    client: Any = None
    lane: Any = Lane("||")
    answer = wanted_of(house, lane, client)
    assert isinstance(answer, Answer)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "FILTERS_REMEMBERED_MAX", 2)
    for index in range(5):
        assert codes(f"T{index}") == [tag_hash(f"T{index}")]
        assert len(filters._remembered) <= 2


def test_what_is_remembered_takes_so_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "FILTERS_REMEMBERED_SIZE_BYTES_MAX", 3000)
    found = Remembered()
    for index in range(5):
        found.add(f"{index}" * 300, EVERYTHING)
        assert (len(found), found.size_bytes) == (1 + index % 2, 1500 * (1 + index % 2))
    codes = frozenset(range(1000))
    assert found.add(codes, EVERYTHING) is found.get(codes)
    assert len(found) == 1


@pytest.mark.parametrize("text", ["x" * (EXPRESSION_SIZE_MAX + 1), "||".join(["x"] * (TAGS_PER_SUBSCRIPTION_MAX + 1))])
def test_an_expression_that_would_hold_up_everybody_is_refused_and_not_kept(text: str) -> None:
    house: Any = None
    client: Any = None
    lane: Any = Lane(text)
    answer = wanted_of(house, lane, client)
    assert isinstance(answer, Answer)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert filters._remembered.get(text) is None


def test_a_pull_is_worked_out_once_and_keeps_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    house: Any = None
    client: Any = None
    lane: Any = Lane("TagA || TagB")
    found = wanted_of(house, lane, client)
    assert lane.expression is found
    monkeypatch.setattr(filters, "_remembered", None)
    assert wanted_of(house, lane, client) is found


def test_of_a_kind_of_filter_that_is_not_supported_so_much_is_said() -> None:
    house: Any = None
    client: Any = None
    lane: Any = Lane("a", "k" * 1000)
    answer = wanted_of(house, lane, client)
    assert isinstance(answer, Answer)
    assert answer.remark == f"The broker does not support consumer to filter message by {'k' * 64}"


def test_a_consumer_asks_beforehand_whether_it_may_filter() -> None:
    talk = World().connect()
    body = b'{"clientId":"c","group":"G","subscriptionData":{"topic":"T","subString":"%b","expressionType":"%b"}}'
    check = RequestCode.CHECK_CLIENT_CONFIG
    assert talk.ask(check, body=body % (b"A", b"TAG")).code == 0
    assert talk.ask(check, body=body % (b"a > 1", b"SQL92")).code == ResponseCode.SYSTEM_ERROR
    assert talk.ask(check, body=b"{").code == ResponseCode.SYSTEM_ERROR
