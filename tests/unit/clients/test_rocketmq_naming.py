"""Names with and without their namespace, and what is no name."""

from __future__ import annotations

import pytest

from polymq.clients.rocketmq_naming import checked_group, subscribed, with_namespace, without_namespace
from polymq.errors import LocalProtocolError


@pytest.mark.parametrize(
    ("name", "on_the_wire"),
    [("t", "ns%t"), ("%RETRY%g", "%RETRY%ns%g"), ("%DLQ%g", "%DLQ%ns%g"), ("TBW102", "TBW102"), ("rmq_sys_x", "rmq_sys_x")],
)
def test_namespaces_there_and_back(name: str, on_the_wire: str) -> None:
    assert with_namespace("ns", name) == on_the_wire
    assert with_namespace("ns", on_the_wire) == on_the_wire
    assert without_namespace("ns", on_the_wire) == name
    assert with_namespace("", name) == without_namespace("", name) == name


def test_groups_that_nobody_can_have() -> None:
    assert checked_group("g", "ns") == "ns%g"
    for group in ("", " ", "a b", "x" * 256):
        with pytest.raises(LocalProtocolError):
            checked_group(group, "")


def test_subscriptions() -> None:
    found = subscribed({"a": "x || y", "b": "*", "c": ""}, "ns")
    assert list(found) == ["ns%a", "ns%b", "ns%c"]
    assert sorted(found["ns%a"].tags) == ["x", "y"]
    assert not found["ns%b"].tags
    assert not found["ns%c"].tags
    assert list(subscribed("a", "")) == ["a"]
    assert list(subscribed(("a", "b"), "")) == ["a", "b"]
    for topics in ("no topic", {"a": "||"}):
        with pytest.raises(LocalProtocolError):
            subscribed(topics, "")
