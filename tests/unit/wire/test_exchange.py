"""The values of an exchange: what they are when nothing is said."""

from __future__ import annotations

import dataclasses

import pytest

from polymq.wire.exchange import BodyState, Request, Response


def test_request_without_a_body() -> None:
    request = Request("GET", "/")
    assert bytes(request.body_view) == b""
    assert (request.body_state, request.arguments, request.keep_alive) == (BodyState.WHOLE, {}, True)


def test_answer_that_says_nothing() -> None:
    assert Response() == Response(200, (), b"", None, None, close=False)


def test_values_hold_still() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Response().status = 500  # type: ignore[misc]
