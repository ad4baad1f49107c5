"""What the endpoints know: one session, the clock, the registry; and how they say no."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson

from polymq.errors import Refusal, RefusalCode, StoreError
from polymq.wire.exchange import Response, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.admin.tails import Tails
    from polymq.core.ports import Clock
    from polymq.core.session import Session
    from polymq.core.statistics import Registry
    from polymq.wire.exchange import Request

__all__ = ["JSON", "REFUSALS", "Door", "Problem", "endpoint", "json", "number", "problem", "refuse"]

JSON: Final = ("Content-Type", "application/json")

# The status of each refusal; its name is the machine's code, its text the message.
REFUSALS: Final[Mapping[RefusalCode, int]] = {
    RefusalCode.TOPIC_NAME_INVALID: 400,
    RefusalCode.GROUP_NAME_INVALID: 400,
    RefusalCode.TOPIC_NOT_FOUND: 404,
    RefusalCode.GROUP_NOT_FOUND: 404,
    RefusalCode.GROUP_FULL: 409,
    RefusalCode.MESSAGE_NOT_FOUND: 404,
    RefusalCode.MESSAGE_NOT_LEASED: 409,
    RefusalCode.MESSAGE_NOT_OWNED: 409,
    RefusalCode.DELAY_OUT_OF_RANGE: 400,
    RefusalCode.BATCH_TOO_LARGE: 413,
    RefusalCode.OFFSET_OUT_OF_RANGE: 416,
    RefusalCode.POLICY_INVALID: 400,
    RefusalCode.TOPIC_FULL: 503,
    RefusalCode.LIMIT_REACHED: 503,
    RefusalCode.STORE_FULL: 503,
    RefusalCode.STORE_FAILED: 503,
    RefusalCode.UNAUTHENTICATED: 401,
    RefusalCode.LOGIN_EXPIRED: 401,
    RefusalCode.FORBIDDEN: 403,
    RefusalCode.SHUTTING_DOWN: 503,
}

_REFUSED: Final = {
    401: ("UNAUTHENTICATED", "a secret is needed: Authorization: Bearer"),
    403: ("FORBIDDEN", "not allowed"),
    404: ("NOT_FOUND", "there is nothing at this path"),
    405: ("METHOD_NOT_ALLOWED", "this path does not take that method"),
}
_INTEGER_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = len(str(_INTEGER_MAX))


@dataclass(frozen=True, slots=True)
class Door:
    """The context of every endpoint. Without `tails`, who waits for records looks by itself. `node` names this log among others."""

    session: Session
    clock: Clock
    statistics: Registry
    tails: Tails | None = None
    node: str = ""


class Problem(Exception):
    """An answer that is not 200, on its way out of an endpoint. Never leaves this package's endpoints."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def json(value: object, status: int = 200) -> Response:
    """Answer with JSON."""
    return Response(status, (JSON,), orjson.dumps(value) + b"\n")


def problem(status: int, code: str, message: str, **more: object) -> Response:
    """Answer with an error: a code for machines, a message for people."""
    return json({"error": code, "message": message, **more}, status)


def refuse(status: int) -> Response:
    """Answer where there is no endpoint, or nobody whom it would answer."""
    return problem(status, *_REFUSED[status])


def endpoint(function: Callable[[Request, Door], Response | Retry]) -> Callable[[Request, Door], Response | Retry]:
    """Turn what an endpoint raises into an answer, also when it is asked again later."""

    def answering(ask: Callable[[], Response | Retry]) -> Response | Retry:
        try:
            answer = ask()
        except Problem as error:
            return problem(error.status, error.code, str(error))
        except Refusal as refusal:
            return problem(REFUSALS[refusal.code], refusal.code.name, refusal.text)
        except (StoreError, OSError) as error:
            return problem(503, "STORE_FAILED", str(error))
        if isinstance(answer, Retry):
            return replace(answer, again=functools.partial(answering, answer.again))
        return answer

    @functools.wraps(function)
    def wrapped(request: Request, door: Door) -> Response | Retry:
        return answering(lambda: function(request, door))

    return wrapped


def number(request: Request, name: str, default: int | None = None) -> int:
    """Give an argument that is a number, not negative; raises Problem. None as default: it must be there."""
    if request.arguments is None:
        raise Problem(400, "INVALID_ARGUMENT", "the query cannot be decoded")
    text = request.arguments.get(name)
    if text is None:
        if default is None:
            raise Problem(400, "INVALID_ARGUMENT", f"the query lacks {name}=")
        return default
    return digits(text, name)


def digits(text: str, name: str) -> int:
    """Read a number that is not negative and fits 64 bits; raises Problem."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and int(text) <= _INTEGER_MAX):
        raise Problem(400, "INVALID_ARGUMENT", f"{name} is not a number: {text[:40]!r}")
    return int(text)
