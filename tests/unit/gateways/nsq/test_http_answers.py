"""The shapes of nsqd's answers, and that no refusal is without one."""

from __future__ import annotations

import pytest

from polymq.core.session import Session
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.nsq import http_answers
from polymq.gateways.nsq.http_answers import REFUSALS, ApiError, arguments
from polymq.wire.exchange import BodyState, Request
from tests.unit.gateways.nsq.http_world import NsqWorld, message


@pytest.fixture
def world() -> NsqWorld:
    return NsqWorld()


@pytest.mark.parametrize("code", RefusalCode)
def test_every_refusal_has_an_answer(world: NsqWorld, monkeypatch: pytest.MonkeyPatch, code: RefusalCode) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise Refusal(code)

    monkeypatch.setattr(Session, "publish", refuse)
    assert message(world.post("/pub?topic=t", b"x")) == REFUSALS[code]


def test_every_refusal_is_in_the_table() -> None:
    assert set(REFUSALS) == set(RefusalCode)


def test_errors_are_json_with_nsqds_header() -> None:
    answer = http_answers.error(400, "WRONG")
    assert answer.body == b'{"message":"WRONG"}'
    assert dict(answer.headers)["X-NSQ-Content-Type"] == "nsq; version=1.0"


def test_missing_endpoints() -> None:
    assert http_answers.refuse(404).body == b'{"message":"NOT_FOUND"}'
    assert http_answers.refuse(405).body == b'{"message":"METHOD_NOT_ALLOWED"}'


def test_what_is_published_but_not_stored_is_said_to_be_exiting() -> None:
    answer = http_answers.ok(None)
    assert answer.failure is not None
    failed = answer.failure("disk")
    assert (failed.status, failed.body) == (503, b'{"message":"EXITING"}')


@pytest.mark.parametrize("request_", [Request("POST", "/", arguments=None), Request("POST", "/", body_state=BodyState.BROKEN)])
def test_requests_that_make_no_sense(request_: Request) -> None:
    with pytest.raises(ApiError, match="INVALID_REQUEST"):
        arguments(request_)
