"""What a request is answered with, and what the core's refusals are called in RocketMQ.

A handler returns an `Answer`; `client.py` makes a frame of it. Read next: `client.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.errors import RefusalCode
from polymq.protocols.rocketmq.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.core.ports import Ticket
    from polymq.errors import Refusal
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Request

    Handler = Callable[["RocketmqClient", Request], "Answer | None"]

__all__ = [
    "SEE",
    "TOO_MANY",
    "Answer",
    "Handler",
    "RequestProblem",
    "Stumble",
    "failed",
    "integer",
    "loose",
    "refused",
    "required",
    "small",
    "truth",
]

# What RocketMQ puts behind some of its words.
SEE: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
# With SYSTEM_BUSY.
TOO_MANY: Final = "too many questions wait for the disk"
_INTEGER_SIZE_MAX: Final = 20  # digits and sign of 64 bits


@dataclass(slots=True)
class Answer:
    """What a request is answered with. `ticket`: the answer waits until that is durable.

    `publishes`: it is for messages, so the connection is not read while the disk has too many of them to sync.
    """

    code: int = 0
    remark: str | None = None
    ext: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    ticket: Ticket | None = None
    publishes: bool = False


class RequestProblem(Exception):
    """A request cannot be carried out as it is: `answer` says so. Raised by handlers, and never leaves `client.py`."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.answer = Answer(code, remark)


class Stumble(RequestProblem):
    """A request that the real broker takes, and stumbles over: what it says then has none of the fields that its other answers have."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


_CODES: Final[Mapping[RefusalCode, ResponseCode]] = {
    RefusalCode.TOPIC_NAME_INVALID: ResponseCode.SYSTEM_ERROR,
    RefusalCode.GROUP_NAME_INVALID: ResponseCode.SYSTEM_ERROR,
    RefusalCode.TOPIC_NOT_FOUND: ResponseCode.TOPIC_NOT_EXIST,
    RefusalCode.GROUP_NOT_FOUND: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    RefusalCode.GROUP_FULL: ResponseCode.SYSTEM_ERROR,
    RefusalCode.MESSAGE_NOT_FOUND: ResponseCode.SYSTEM_ERROR,
    RefusalCode.MESSAGE_NOT_LEASED: ResponseCode.SYSTEM_ERROR,
    RefusalCode.MESSAGE_NOT_OWNED: ResponseCode.SYSTEM_ERROR,
    RefusalCode.DELAY_OUT_OF_RANGE: ResponseCode.MESSAGE_ILLEGAL,
    RefusalCode.BATCH_TOO_LARGE: ResponseCode.MESSAGE_ILLEGAL,
    RefusalCode.OFFSET_OUT_OF_RANGE: ResponseCode.SYSTEM_ERROR,
    RefusalCode.POLICY_INVALID: ResponseCode.SYSTEM_ERROR,
    RefusalCode.TOPIC_FULL: ResponseCode.SERVICE_NOT_AVAILABLE,
    RefusalCode.LIMIT_REACHED: ResponseCode.SYSTEM_ERROR,
    RefusalCode.STORE_FULL: ResponseCode.SERVICE_NOT_AVAILABLE,
    RefusalCode.STORE_FAILED: ResponseCode.SYSTEM_ERROR,
    RefusalCode.UNAUTHENTICATED: ResponseCode.NO_PERMISSION,
    RefusalCode.LOGIN_EXPIRED: ResponseCode.NO_PERMISSION,
    RefusalCode.FORBIDDEN: ResponseCode.NO_PERMISSION,
    RefusalCode.SHUTTING_DOWN: ResponseCode.SERVICE_NOT_AVAILABLE,
}


def refused(refusal: Refusal) -> Answer:
    """Say in RocketMQ's codes what the core refuses; the words are the core's."""
    return Answer(_CODES[refusal.code], refusal.text)


def failed(reason: str) -> Answer:
    """Say that something went wrong here."""
    return Answer(ResponseCode.SYSTEM_ERROR, reason)


def required(request: Request, name: str) -> str:
    """Give a field that a request must have; raises RequestProblem."""
    value = request.ext.get(name)
    if value is None:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    return value


def integer(request: Request, name: str, default: int | None = None) -> int:
    """Give a field as a number of 64 bits; without a default it must be there, and one that is there must be a number. Raises RequestProblem."""
    value = request.ext.get(name)
    if value is None:
        if default is None:
            raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
        return default
    try:
        # Python reads blanks and underlines as well.
        if len(value) > _INTEGER_SIZE_MAX or "_" in value or value != value.strip():
            raise ValueError
        found = int(value)
    except ValueError:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is no number") from None
    if not -(1 << 63) <= found < 1 << 63:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is out of range")
    return found


def small(request: Request, name: str, default: int | None = None) -> int:
    """Give a field as a number of 32 bits, as `integer` does."""
    found = integer(request, name, default)
    if not -(1 << 31) <= found < 1 << 31:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is out of range")
    return found


def loose(request: Request, name: str, default: int) -> int:
    """Give a field as a number of 32 bits, and the default for what is none: so the real broker reads what need not be there."""
    try:
        return small(request, name, default)
    except RequestProblem:
        return default


def truth(request: Request, name: str) -> bool:
    """Give a field as true or false, however the peer spells it; absent is false."""
    return request.ext.get(name, "").lower() in {"true", "1"}
