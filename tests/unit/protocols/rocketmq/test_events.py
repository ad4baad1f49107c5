"""Events say what their flags mean."""

from __future__ import annotations

import pytest

from polymq.protocols.rocketmq.events import Request


@pytest.mark.parametrize(("flag", "response", "oneway"), [(0, False, False), (1, True, False), (2, False, True), (3, True, True)])
def test_flags(flag: int, *, response: bool, oneway: bool) -> None:
    request = Request(10, 1, flag, {})
    assert (request.response, request.oneway) == (response, oneway)
