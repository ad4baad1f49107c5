from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polymq.gateways.rocketmq import filters
from polymq.gateways.rocketmq.answers import Answer
from polymq.gateways.rocketmq.filters import Wanted, wanted_of
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.names import tag_hash

from .harness import World

if TYPE_CHECKING:
    import pytest


class Pull:
    """As much of a pull as is looked at."""

    def __init__(self, expression: str, kind: str = "TAG") -> None:
        self.expression = (kind, expression)


def codes(expression: str) -> list[int] | None:
    house: Any = None
    pull: Any = Pull(expression)
    found = wanted_of(house, pull)
    assert isinstance(found, Wanted)
    return None if found.codes is None else list(found.codes)


def test_expressions_name_tags() -> None:
    assert codes("*") is None
    assert codes("TagA") == [tag_hash("TagA")]
    assert codes("TagB||TagA") == sorted([tag_hash("TagA"), tag_hash("TagB")])


def test_what_is_no_expression_is_told() -> None:
    house: Any = None
    pull: Any = Pull("||")
    answer = wanted_of(house, pull)
    assert isinstance(answer, Answer)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "FILTERS_REMEMBERED_MAX", 2)
    for index in range(5):
        assert codes(f"T{index}") == [tag_hash(f"T{index}")]
    assert len(filters._by_expression) <= 2


def test_a_consumer_asks_beforehand_whether_it_may_filter() -> None:
    talk = World().connect()
    body = b'{"clientId":"c","group":"G","subscriptionData":{"topic":"T","subString":"%b","expressionType":"%b"}}'
    check = RequestCode.CHECK_CLIENT_CONFIG
    assert talk.ask(check, body=body % (b"A", b"TAG")).code == 0
    assert talk.ask(check, body=body % (b"a > 1", b"SQL92")).code == ResponseCode.SYSTEM_ERROR
    assert talk.ask(check, body=b"{").code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
