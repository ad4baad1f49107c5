"""Sends messages to RocketMQ or polymq, over one connection for each broker, as many at a time as there are tasks that await."""

from __future__ import annotations

import asyncio
import itertools
import random as random_module
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from polymq.clients.rocketmq_connection import refused
from polymq.clients.rocketmq_messages import SendResult
from polymq.clients.rocketmq_naming import checked_group, with_namespace
from polymq.clients.rocketmq_options import RocketMQOptions, open_socket
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.clients.rocketmq_sending import by_key, check_topic, joined, new_key, packed, raw_properties, send_fields
from polymq.clients.rocketmq_session import Session
from polymq.errors import ConnectFailed, DeadlineExceeded, LocalProtocolError, PolyMQError, Refusal, RefusalCode, TransportError
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from polymq.clients.rocketmq_connection import Answer
    from polymq.clients.rocketmq_messages import OutgoingMessage
    from polymq.clients.rocketmq_options import Opener
    from polymq.clients.rocketmq_routes import Route

__all__ = ["DEFAULT_GROUP", "RocketMQProducer"]

DEFAULT_GROUP: Final = "polymq_producer"
_DEFAULTS: Final = RocketMQOptions()
# Sends without an answer yet; more than that wait, so that a lost connection leaves a known number in doubt.
_PIPELINE_MAX: Final = 1000
# Between attempts to find a broker or a name server.
_PAUSE_SECONDS: Final = 0.05
_SENT: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
# Another broker may do better.
_ELSEWHERE: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)


@dataclass(frozen=True, slots=True)
class _Parcel:
    """What is sent, whatever queue it goes to. `select` makes it go to one and no other."""

    topic: str
    code: int
    body: bytes
    properties: str
    sys_flag: int
    flag: int
    id: str
    select: Callable[[Sequence[MessageQueue]], MessageQueue] | None


class RocketMQProducer:
    """A producer: `send` waits until the broker has the message.

    A message that a broker does not take, or whose answer is lost, is sent again, to another queue, up to
    `options.send_retries` times and within `options.send_seconds`: it may be there twice then, under one `id`. What
    goes to a queue of its own (a sharding key, `select`) is not sent again.

    Raises:  LocalProtocolError when an address or a group makes no sense.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        options: RocketMQOptions = _DEFAULTS,
        *,
        group: str = DEFAULT_GROUP,
        opener: Opener = open_socket,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self._group = checked_group(group, options.namespace)
        self._options = options
        self._session = Session(name_servers, options, opener=opener, random=random)
        self._session.producer_groups.add(self._group)
        self._turn = itertools.count(int(random() * 2**16))
        self._room = asyncio.Semaphore(_PIPELINE_MAX)

    @property
    def client_id(self) -> str:
        """The name of this client."""
        return self._session.client_id

    async def __aenter__(self) -> Self:
        """Begin: a name server has answered. Raises DeadlineExceeded."""
        try:
            await self._session.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        await self.close()

    async def send(self, message: OutgoingMessage, *, select: Callable[[Sequence[MessageQueue]], MessageQueue] | None = None) -> SendResult:
        """Send a message and wait until its broker has it; `select` chooses the queue.

        Raises:  Refusal; LocalProtocolError; ConnectionLost and DeadlineExceeded when it may be there or not.
        """
        return await self._deliver(self._parcel(message, select))

    async def send_one_way(
        self, message: OutgoingMessage, *, select: Callable[[Sequence[MessageQueue]], MessageQueue] | None = None
    ) -> None:
        """Send a message and wait for nothing but room for it: nobody knows whether it arrives. Raises as `send` does."""
        parcel = self._parcel(message, select)
        try:
            async with asyncio.timeout(self._options.send_seconds):
                while True:
                    try:
                        route = await self._route(parcel.topic)
                        queue = self._choose(parcel, route, None)
                        await self._session.tell(_address(route, queue), parcel.code, self._fields(parcel, queue), parcel.body)
                    except ConnectFailed:
                        await asyncio.sleep(_PAUSE_SECONDS)
                    else:
                        return
        except TimeoutError as error:
            raise DeadlineExceeded(f"no broker within {self._options.send_seconds:g} s") from error

    async def send_batch(
        self, messages: Sequence[OutgoingMessage], *, select: Callable[[Sequence[MessageQueue]], MessageQueue] | None = None
    ) -> SendResult:
        """Send messages of one topic to one queue, all or none; the result is that of the first, with all ids.

        `select` chooses the queue: their sharding keys may differ then. Raises as `send` does.
        """
        unique_keys = [new_key() for _ in messages]
        body = joined(messages, unique_keys, is_placed=select is not None)
        topic, sharding_key = self._topic(messages[0]), messages[0].sharding_key
        waits = "true" if all(each.wait_store for each in messages) else "false"
        if select is None and sharding_key is not None:
            select = _by(sharding_key)
        ids = ",".join(unique_keys)
        return await self._deliver(_Parcel(topic, RequestCode.SEND_BATCH_MESSAGE, body, f"WAIT\x01{waits}\x02", 0, 0, ids, select))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Say which queues messages of a topic can go to; raises Refusal when there are none, TransportError."""
        return list((await self._route(with_namespace(self._options.namespace, topic))).write_queues)

    async def close(self) -> None:
        """Leave the brokers and disconnect, within some seconds; what still waits for an answer gets ConnectionLost."""
        await self._session.close()

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _topic(self, message: OutgoingMessage) -> str:
        topic = with_namespace(self._options.namespace, message.topic)
        check_topic(topic)
        return topic

    def _parcel(self, message: OutgoingMessage, select: Callable[[Sequence[MessageQueue]], MessageQueue] | None) -> _Parcel:
        unique_key = new_key()
        options = self._options
        body, sys_flag = packed(message.body, above_bytes=options.compress_above_bytes, level=options.compression_level)
        if select is None and message.sharding_key is not None:
            select = _by(message.sharding_key)
        return _Parcel(
            self._topic(message),
            RequestCode.SEND_MESSAGE_V2,
            body,
            raw_properties(message, unique_key),
            sys_flag,
            message.flag,
            unique_key,
            select,
        )

    async def _deliver(self, parcel: _Parcel) -> SendResult:
        failures: list[PolyMQError] = []
        try:
            async with asyncio.timeout(self._options.send_seconds), self._room:
                return await self._send(parcel, failures)
        except TimeoutError as error:
            detail = f"; last failure: {failures[-1]}" if failures else ""
            raise DeadlineExceeded(f"sending took longer than {self._options.send_seconds:g} s{detail}") from error

    async def _send(self, parcel: _Parcel, failures: list[PolyMQError]) -> SendResult:
        """Try queue after queue. Who cannot be connected to has not been sent anything, which is no attempt."""
        attempts_left = 1 if parcel.select is not None else 1 + self._options.send_retries
        last: str | None = None
        while True:
            try:
                route = await self._route(parcel.topic)
                queue = self._choose(parcel, route, last)
                last = queue.broker_name
                answer = await self._session.ask(
                    _address(route, queue), parcel.code, self._fields(parcel, queue), parcel.body, seconds=self._options.send_seconds
                )
            except ConnectFailed as error:
                failures.append(error)
                del failures[:-1]
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            except TransportError as error:
                failures.append(error)
                attempts_left -= 1
                if not attempts_left:
                    raise
                continue
            if answer.code in _SENT:
                return _result(answer, parcel, queue)
            attempts_left -= 1
            failures.append(refused(answer, f"a message for {parcel.topic}"))
            if not attempts_left or answer.code not in _ELSEWHERE:
                raise failures[-1]

    async def _route(self, topic: str) -> Route:
        route = await self._session.route_to_send(topic)
        if route is None or not route.write_queues:
            raise Refusal(RefusalCode.TOPIC_NOT_FOUND, f"no name server knows a queue of {topic} that can be written to")
        return route

    def _choose(self, parcel: _Parcel, route: Route, last: str | None) -> MessageQueue:
        """Take the next queue, of another broker than the last one and than those that cannot be reached, if there is any."""
        queues = route.write_queues
        if parcel.select is not None:
            chosen = parcel.select(queues)
            if chosen not in queues:
                raise LocalProtocolError("select chose something that is not one of the queues")
            return chosen
        first = next(self._turn)
        others = [each for each in queues if each.broker_name != last] if last is not None else queues
        there = [each for each in others or queues if self._session.is_reachable(route.address(each.broker_name) or "")]
        some = there or others or queues
        return some[first % len(some)]

    def _fields(self, parcel: _Parcel, queue: MessageQueue) -> dict[str, str]:
        return send_fields(
            self._group,
            queue,
            born_ms=time.time_ns() // 1_000_000,
            raw_properties=parcel.properties,
            sys_flag=parcel.sys_flag,
            flag=parcel.flag,
            is_batch=parcel.code == RequestCode.SEND_BATCH_MESSAGE,
        )


def _by(key: str | int) -> Callable[[Sequence[MessageQueue]], MessageQueue]:
    return lambda queues: by_key(queues, key)


def _address(route: Route, queue: MessageQueue) -> str:
    address = route.address(queue.broker_name)
    if address is None:
        raise ConnectFailed(f"no address of the broker {queue.broker_name} is known")
    return address


def _result(answer: Answer, parcel: _Parcel, queue: MessageQueue) -> SendResult:
    place = MessageQueue(queue.topic, queue.broker_name, answer.number("queueId"))
    return SendResult(parcel.id, answer.ext.get("msgId", ""), place, answer.number("queueOffset"), answer.code)
