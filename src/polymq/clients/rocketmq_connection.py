"""One connection of a RocketMQ client: requests and answers, each found by its number, in both directions.

Answers come in any order. Writes are gathered and made once per turn of the loop. What the server asks by itself
(`on_request`) is answered here with "not supported" unless somebody knows better. Which connections there are, and
to whom, is in `rocketmq_session.py`.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.clients.connection import ClientConnection
from polymq.errors import ConnectionLost, PolyMQError, Refusal, RefusalCode, RemoteProtocolError
from polymq.protocols.rocketmq import acl
from polymq.protocols.rocketmq.codes import ResponseCode, not_supported
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import encode_request, encode_response
from polymq.protocols.rocketmq.events import Request, Violation
from polymq.protocols.rocketmq.settings import RocketmqSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.clients.rocketmq_options import RocketMQOptions
    from polymq.protocols.rocketmq.events import Event

__all__ = ["Answer", "RocketMQConnection", "refused"]

# Requests without an answer: far more than a producer's tasks and a consumer's queues ever have under way.
_WAITING_MAX: Final = 100_000
# Numbers of requests are 31 bits.
_NUMBER_MAX: Final = 2**31 - 1
_SETTINGS: Final = RocketmqSettings()
_CODES: Final[Mapping[int, RefusalCode]] = {
    ResponseCode.SYSTEM_BUSY: RefusalCode.LIMIT_REACHED,
    ResponseCode.MESSAGE_ILLEGAL: RefusalCode.BATCH_TOO_LARGE,
    ResponseCode.SERVICE_NOT_AVAILABLE: RefusalCode.STORE_FAILED,
    ResponseCode.NO_PERMISSION: RefusalCode.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: RefusalCode.TOPIC_NOT_FOUND,
    ResponseCode.QUERY_NOT_FOUND: RefusalCode.MESSAGE_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: RefusalCode.GROUP_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: RefusalCode.GROUP_NOT_FOUND,
    ResponseCode.FLOW_CONTROL: RefusalCode.LIMIT_REACHED,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered: a code, words for people, fields, a body."""

    code: int
    remark: str = ""
    ext: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    version: int = 0

    @property
    def is_success(self) -> bool:
        """Whether the code is 0."""
        return self.code == ResponseCode.SUCCESS

    def number(self, name: str) -> int:
        """Read a field that is a number; raises RemoteProtocolError when it is not there or none."""
        try:
            return int(self.ext[name])
        except (KeyError, ValueError) as error:
            raise RemoteProtocolError(f"an answer has no number {name!r}") from error


def refused(answer: Answer, what: str) -> Refusal:
    """Make an exception of an answer that says no."""
    code = _CODES.get(answer.code, RefusalCode.POLICY_INVALID)
    if answer.code == ResponseCode.SYSTEM_ERROR and "acl" in answer.remark.lower():
        code = RefusalCode.UNAUTHENTICATED
    return Refusal(code, f"{what}: code {answer.code}: {answer.remark or 'no words'}")


class RocketMQConnection(ClientConnection):
    """The protocol object of one connection; made by `rocketmq_session.Session`.

    `is_introduced` says that a heartbeat has been answered on it: the server knows who we are. `heard_at` is when
    anything came last.
    """

    def __init__(self, options: RocketMQOptions, on_request: Callable[[Request], Answer | None]) -> None:
        super().__init__()
        self.is_introduced = False
        self.introducing = asyncio.Lock()
        self.heard_at = self._loop.time()
        self._options = options
        self._on_request = on_request
        self._decoder = Decoder(_SETTINGS, server=False)
        self._rest = bytearray()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = itertools.count(1)

    # --- Called by asyncio --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Hand each frame to whoever it is for."""
        self.heard_at = self._loop.time()
        self._rest += data
        events: list[Event] = []
        at = 0
        while self.reason is None and len(self._rest) - at >= max(1, self._decoder.need):
            with memoryview(self._rest) as whole, whole[at:] as view:
                consumed = self._decoder.feed(view, events)
            at += consumed
            for event in events:
                self._take(event)
            if not consumed and not events and self._decoder.need <= len(self._rest) - at:
                break
            events.clear()
        del self._rest[:at]

    def _take(self, event: Event) -> None:
        if self.reason is not None:
            return
        if isinstance(event, Request):
            if event.response:
                self._answered(event)
            else:
                self._asked(event)
        elif isinstance(event, Violation):
            self.abort(RemoteProtocolError(f"the server does not speak RocketMQ: {event.reason}"))

    def _give_up(self, reason: PolyMQError) -> None:
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(reason)

    # --- Called by sessions -------------------------------------------------------------------------------------------

    async def request(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> Answer:
        """Ask, and wait for the answer, for as long as the caller does; raises ConnectionLost, LocalProtocolError."""
        await self._writable.wait()
        if not self.is_open:
            raise self.reason or ConnectionLost("the connection is closed")
        if len(self._waiting) >= _WAITING_MAX:
            raise ConnectionLost(f"the server owes {len(self._waiting)} answers")
        number = next(self._numbers) & _NUMBER_MAX
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[number] = waiter
        try:
            self._gather(encode_request(code, number, ext=self._signed(ext, body), body=body, binary=self._options.binary))
            return await waiter
        finally:
            self._waiting.pop(number, None)

    async def tell(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Ask for no answer; returns when there is room for more; raises ConnectionLost, LocalProtocolError."""
        await self._writable.wait()
        if not self.is_open:
            raise self.reason or ConnectionLost("the connection is closed")
        number = next(self._numbers) & _NUMBER_MAX
        self._gather(encode_request(code, number, ext=self._signed(ext, body), body=body, oneway=True, binary=self._options.binary))

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _signed(self, ext: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        options = self._options
        if not options.access_key:
            return ext
        named = {**ext, "AccessKey": options.access_key}
        if options.security_token:
            named["SecurityToken"] = options.security_token
        return {**named, "Signature": acl.sign(options.secret_key, named, body)}

    def _answered(self, frame: Request) -> None:
        waiter = self._waiting.get(frame.opaque)
        if waiter is not None and not waiter.done():  # else given up by whoever asked
            waiter.set_result(Answer(frame.code, frame.remark or "", frame.ext, frame.body, frame.version))

    def _asked(self, frame: Request) -> None:
        answer = self._on_request(frame)
        if frame.oneway or not self.is_open:
            return
        if answer is None:
            answer = Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported(frame.code))
        self._gather(
            encode_response(answer.code, frame.opaque, remark=answer.remark or None, ext=answer.ext, body=answer.body, binary=frame.binary)
        )
