"""The shapes of nsqd's HTTP answers, and which of them a refusal of the broker becomes."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from polymq.errors import Refusal, RefusalCode, StoreError
from polymq.gateways.nsq import http_format
from polymq.wire.exchange import BodyState, Response, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.wire.exchange import Promise, Request

__all__ = [
    "DONE",
    "REFUSALS",
    "ApiError",
    "arguments",
    "done",
    "endpoint",
    "error",
    "json",
    "json_headers",
    "ok",
    "plain",
    "refuse",
    "text",
]

Context = TypeVar("Context")

_V1: Final = ("X-NSQ-Content-Type", "nsq; version=1.0")
_JSON: Final = ("Content-Type", "application/json; charset=utf-8")

DONE: Final = Response(headers=(_V1,))

# What the broker's own "no" is called by nsqd. A publish that cannot be stored is `EXITING` there, whatever the cause.
REFUSALS: Final[Mapping[RefusalCode, tuple[int, str]]] = {
    RefusalCode.TOPIC_NAME_INVALID: (400, "INVALID_TOPIC"),
    RefusalCode.GROUP_NAME_INVALID: (400, "INVALID_ARG_CHANNEL"),
    RefusalCode.TOPIC_NOT_FOUND: (404, "TOPIC_NOT_FOUND"),
    RefusalCode.GROUP_NOT_FOUND: (404, "CHANNEL_NOT_FOUND"),
    RefusalCode.GROUP_FULL: (500, "INTERNAL_ERROR"),
    RefusalCode.MESSAGE_NOT_FOUND: (404, "MESSAGE_NOT_FOUND"),
    RefusalCode.MESSAGE_NOT_LEASED: (500, "INTERNAL_ERROR"),
    RefusalCode.MESSAGE_NOT_OWNED: (500, "INTERNAL_ERROR"),
    RefusalCode.DELAY_OUT_OF_RANGE: (400, "INVALID_DEFER"),
    RefusalCode.BATCH_TOO_LARGE: (413, "BODY_TOO_BIG"),
    RefusalCode.OFFSET_OUT_OF_RANGE: (500, "INTERNAL_ERROR"),
    RefusalCode.POLICY_INVALID: (400, "INVALID_POLICY"),
    RefusalCode.TOPIC_FULL: (503, "TOPIC_FULL"),
    RefusalCode.LIMIT_REACHED: (503, "LIMIT_REACHED"),
    RefusalCode.STORE_FULL: (503, "EXITING"),
    RefusalCode.STORE_FAILED: (503, "EXITING"),
    RefusalCode.UNAUTHENTICATED: (401, "UNAUTHENTICATED"),
    RefusalCode.LOGIN_EXPIRED: (401, "UNAUTHENTICATED"),
    RefusalCode.FORBIDDEN: (403, "FORBIDDEN"),
    RefusalCode.SHUTTING_DOWN: (503, "EXITING"),
}


# Where there is no endpoint, or nobody whom it would answer.
_REFUSED: Final = {401: "UNAUTHENTICATED", 403: "FORBIDDEN", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


class ApiError(Exception):
    """An answer that is not 200, on its way out of an endpoint. Never leaves this package's endpoints."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def error(status: int, message: str) -> Response:
    """Answer with an error."""
    return Response(status, (_JSON, _V1), http_format.json({"message": message}))


def json(value: object, ticket: Promise | None = None) -> Response:
    """Answer with JSON, once what it says is safe."""
    return Response(headers=(_JSON, _V1), body=http_format.json(value), ticket=ticket, failure=_not_stored, publishes=False)


def json_headers() -> tuple[tuple[str, str], ...]:
    """Give the headers of a JSON answer whose body is made in pieces."""
    return (_JSON, _V1)


def text(body: str) -> Response:
    """Answer with plain text."""
    return Response(headers=(_V1,), body=body.encode("utf-8"))


def plain(status: int, body: str) -> Response:
    """Answer with text, and without nsqd's own header."""
    return Response(status, body=body.encode("utf-8"))


def text_headers() -> tuple[tuple[str, str], ...]:
    """Give the headers of a text answer whose body is made in pieces."""
    return (_V1,)


def ok(ticket: Promise | None) -> Response:
    """Answer `OK` once what was published is safe."""
    return Response(headers=(_V1,), body=b"OK", ticket=ticket, failure=_not_stored)


def done(ticket: Promise) -> Response:
    """Answer with nothing, as most changes are, once the change is safe."""
    return Response(headers=(_V1,), ticket=ticket, failure=_not_stored, publishes=False)


def _not_stored(_reason: str) -> Response:
    return error(*REFUSALS[RefusalCode.STORE_FAILED])


def refuse(status: int) -> Response:
    """Answer where there is no endpoint, or nobody whom it would answer."""
    return error(status, _REFUSED[status])


def endpoint(function: Callable[[Request, Context], Response | Retry]) -> Callable[[Request, Context], Response | Retry]:
    """Turn what an endpoint raises into an answer, also when it is asked again later."""

    def answering(ask: Callable[[], Response | Retry]) -> Response | Retry:
        try:
            answer = ask()
        except ApiError as problem:
            return error(problem.status, problem.message)
        except Refusal as refusal:
            return error(*REFUSALS[refusal.code])
        except StoreError:
            # Something is wrong with what was to be read; /ping and the log say what.
            return error(503, "STORE_FAILED")
        return answer if isinstance(answer, Response) else replace(answer, again=functools.partial(answering, answer.again))

    @functools.wraps(function)
    def wrapped(request: Request, context: Context) -> Response | Retry:
        return answering(lambda: function(request, context))

    return wrapped


def arguments(request: Request) -> Mapping[str, str]:
    """Give the query's arguments; raises ApiError if they, or the body that nobody looks at, make no sense."""
    if request.arguments is None or request.body_state is BodyState.BROKEN:
        raise ApiError(400, "INVALID_REQUEST")
    return request.arguments
