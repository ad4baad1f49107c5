from __future__ import annotations

import pytest

from polymq.core.access import ANONYMOUS, Action, Permission, Principal
from polymq.core.patterns import compile_pattern
from polymq.errors import Refusal, RefusalCode, RemoteProtocolError
from polymq.gateways.rocketmq.answers import RequestProblem
from polymq.gateways.rocketmq.joining import read_body, require_group
from polymq.protocols.rocketmq.events import Request
from polymq.rocketmq_limits import JSON_BODY_SIZE_BYTES_MAX

from .group_world import GroupWorld


def allowed(principal: Principal, group: str, *topics: str) -> bool:
    try:
        require_group(GroupWorld().broker.session(principal), group, topics)
    except Refusal as refusal:
        assert refusal.code is RefusalCode.FORBIDDEN
        return False
    return True


def test_to_be_in_a_group_is_to_subscribe_to_its_topics_in_that_group() -> None:
    rights = tuple(
        Permission(frozenset({Action.SUBSCRIBE}), compile_pattern(topic), (compile_pattern("^G$"),))
        for topic in ("^T$", "^%RETRY%G$", "^a[.]b$")
    )
    principal = Principal("reader", permissions=rights)
    assert allowed(principal, "G")
    assert allowed(principal, "G", "T", "%RETRY%G", "%DLQ%G", "a%2Eb")
    assert not allowed(principal, "G", "T", "U")
    assert not allowed(principal, "G", "%RETRY%H")
    assert not allowed(principal, "H")
    assert allowed(ANONYMOUS, "H", "T", "no topic", "%RETRY%G")


@pytest.mark.parametrize("group", ["", "a b", "x" * 121])
def test_a_group_that_cannot_be_is_a_problem(group: str) -> None:
    with pytest.raises(RequestProblem):
        require_group(GroupWorld().broker.session(ANONYMOUS), group)


def test_a_body_that_cannot_be_read_is_a_problem_in_words() -> None:
    def fail(_body: bytes) -> None:
        raise RemoteProtocolError("no JSON", fatal=False)

    with pytest.raises(RequestProblem) as problem:
        read_body(Request(34, 1, 0, {}), fail)
    assert (problem.value.answer.code, problem.value.answer.remark) == (1, "no JSON")


def test_a_body_that_is_too_large_is_not_even_read() -> None:
    request = Request(34, 1, 0, {}, bytes(JSON_BODY_SIZE_BYTES_MAX))
    assert read_body(request, len) == JSON_BODY_SIZE_BYTES_MAX
    request.body += b" "
    with pytest.raises(RequestProblem):
        read_body(request, len)
