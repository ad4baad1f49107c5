"""Questions about single messages: by where they are, and by their keys.

There is no index of keys: a query looks through the log, piece by piece, over as many turns as it takes, and gives up after a while.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from polymq.core.access import Action
from polymq.errors import Refusal, RefusalCode, StoreFailed
from polymq.gateways.rocketmq.answers import TOO_MANY, Answer, RequestProblem, failed, integer, small, truth
from polymq.gateways.rocketmq.filters import check_filter
from polymq.protocols.rocketmq import properties
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.generic import foreign_properties
from polymq.protocols.rocketmq.ids import offset_at, parse_physical_offset, physical_offset
from polymq.protocols.rocketmq.names import SCHEDULE_TOPIC, is_valid_topic, to_topic
from polymq.protocols.rocketmq.stored import ORIGIN_ROCKETMQ, encode_stored_message, extra_of, read_extra
from polymq.rocketmq_limits import (
    QUERY_ANSWER_SIZE_BYTES_MAX,
    QUERY_MESSAGES_MAX,
    QUERY_NS_MAX,
    QUERY_PIECE_COUNT,
    QUERY_PIECE_SIZE_BYTES,
    QUERY_SIZE_BYTES_MAX,
)
from polymq.wire.batch import read_messages, read_shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Log, Reader
    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Request
    from polymq.wire.records import Message
    from polymq.wire.slices import Slice

__all__ = ["HANDLERS", "Found", "look_up"]

_NS_PER_MS: Final = 1_000_000
# The queue of what waits for a time of its own.
_SCHEDULED: Final = 0
_TIME_MS_MAX: Final = (1 << 62) // _NS_PER_MS
_NO_INDEX: Final = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
_NOT_FOUND: Final = "can not find message, maybe time range not correct"


@dataclass(frozen=True, slots=True)
class Found:
    """One message of the log, and where it is."""

    topic: str
    queue_id: int
    number: int
    offset: int
    message: Message


class _LookUp:
    """One message that is asked for by its place; `then` is told what it is, or None."""

    def __init__(self, client: RocketmqClient, found: tuple[str, int, Log, int], then: Callable[[Found | None], None]) -> None:
        self.client = client
        self.waits = False
        self._topic, self._index, self._log, self._offset = found
        self._reader = self._log.reader(self._offset)
        self._then = then

    def step(self) -> bool:
        """Read it, if it is in memory."""
        piece = self._reader.take(1, 1)
        self.waits = piece is None and self._reader.waiting
        if self.waits:
            return False
        found = None
        if piece is not None and piece.offset == self._offset:
            (message,) = _messages(piece)
            found = Found(self._topic, self._index, self._log.number, self._offset, message)
        self._then(found)
        return True


def look_up(client: RocketmqClient, physical: int, then: Callable[[Found | None], None], *, group: str = "") -> None:
    """Find a message by its physical offset, for who may read it: `then` gets it, at once or in a later turn; None: there is none.

    `group`: for who may be in that one, which is less. Raises Refusal, RequestProblem; then nobody is told anything.
    """
    session = client.house.inner if group else client.session
    place = parse_physical_offset(physical)
    try:
        name, index = session.place_of(-1 if place is None else place[0])
    except Refusal as refusal:
        if refusal.code is not RefusalCode.MESSAGE_NOT_FOUND:
            raise
        then(None)
        return
    assert place is not None
    if group:
        client.session.require(Action.SUBSCRIBE, name, group)
    topic = to_topic(name)
    if topic is None:
        then(None)
    else:
        _begin(client, (topic, index, session.log(name, index)), place[1], then)


def _begin(client: RocketmqClient, where: tuple[str, int, Log], low: int, then: Callable[[Found | None], None]) -> None:
    """Look for the message with these lower bits of its offset. Raises RequestProblem."""
    topic, index, log = where
    offset = offset_at(low, log.end)
    if offset is None or not log.start <= offset < log.readable:
        then(None)
    elif not client.house.jobs.begin(_LookUp(client, (topic, index, log, offset), then)):
        raise RequestProblem(ResponseCode.SYSTEM_BUSY, TOO_MANY)


def _messages(piece: Slice) -> list[Message]:
    return read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)


def encoded(client: RocketmqClient, found: Found) -> bytes:
    """Write a message as clients get it."""
    place = client.house.topics.place(found.topic, found.queue_id, found.number, client.store_host)
    return encode_stored_message(found.message, found.offset, place)


def _view(client: RocketmqClient, request: Request) -> Answer | None:
    """Give one message by its physical offset, also one that was sent for later, by the id that its sender was told."""
    physical = integer(request, "offset")

    def then(found: Found | None) -> None:
        client.answer(
            request, failed(f"can not find message by the offset, {physical}") if found is None else Answer(body=encoded(client, found))
        )

    place = parse_physical_offset(physical)
    if place is not None and place[0] in client.house.broker.catalogue.schedules:
        log = client.session.schedule_log(place[0])
        _begin(client, (SCHEDULE_TOPIC, _SCHEDULED, log), place[1], lambda found: then(None if found is None else _as_scheduled(found)))
    else:
        look_up(client, physical, then)
    return None


def _as_scheduled(found: Found) -> Found:
    """Say which queue of its own a real broker has for messages that wait as long as this one: the one of its level."""
    extra = extra_of(found.message)
    level = properties.get(extra.properties, properties.DELAY) if extra is not None else None
    return replace(found, queue_id=int(level) - 1) if level is not None and level.isascii() and level.isdigit() else found


class _Scan:
    """One partition's part of a query: from the first message in the time range to the last."""

    def __init__(self, index: int, log: Log, begin_ns: int, end_ns: int) -> None:
        self.index = index
        self.log = log
        self.begin_ns = begin_ns
        self.end_ns = end_ns
        self.end = log.readable
        self.done = self.end <= log.start
        self.reader: Reader | None = None

    def piece(self) -> Slice | None:
        """Read on; None: there is no more (`done`), or the disk is being read."""
        if self.reader is None:
            first = self.log.offset_at(self.begin_ns) if self.begin_ns > 0 else self.log.start
            if first is None:
                return None
            self.reader = self.log.reader(first)
        piece = None
        if self.reader.offset < self.end:
            piece = self.reader.take(QUERY_PIECE_COUNT, QUERY_PIECE_SIZE_BYTES)
        if (piece is None and not self.reader.waiting) or (piece is not None and piece.base_time_ns > self.end_ns):
            self.done = True
        return piece


class _Query:
    """A query by key, as a job: a piece of one partition in each step, all partitions in turn."""

    def __init__(self, client: RocketmqClient, request: Request, topic: str, scans: list[_Scan]) -> None:
        self.client = client
        self.waits = False
        self._request = request
        self._topic = topic
        self._scans = scans
        self._key = request.ext["key"]
        self._raw_key = self._key.encode("utf-8", "replace")
        self._unique = truth(request, "_UNIQUE_KEY_QUERY")
        self._is_the_one = False  # nothing else is wanted
        self._left = min(max(integer(request, "maxNum"), 1), QUERY_MESSAGES_MAX)
        self._size_left = QUERY_SIZE_BYTES_MAX
        self._ends_ns = client.house.clock.monotonic_ns() + QUERY_NS_MAX
        self._bodies: list[bytes] = []
        self._body_size = 0
        self._last = (0, 0)

    def step(self) -> bool:
        """Look through one piece of a partition that has one; answer when all is done, or it has taken too long."""
        scans = self._scans
        piece = None
        for _ in range(len(scans)):
            scan = scans[0]
            try:
                piece = scan.piece()
            except StoreFailed:
                scan.done = True
            if piece is not None:
                self._look_through(scan, piece)
            if scan.done:
                del scans[0]
            else:
                scans.append(scans.pop(0))
            if piece is not None:
                break
        self.waits = piece is None and bool(scans)
        late = self.client.house.clock.monotonic_ns() > self._ends_ns
        if scans and self._left and self._size_left > 0 and not late and not self._is_the_one:
            return False
        self.client.answer(self._request, self._result())
        return True

    def _look_through(self, scan: _Scan, piece: Slice) -> None:
        self._size_left -= piece.end - piece.position
        with piece.view[piece.position : piece.end] as view:
            # Whether the key is there at all is found in a fraction of the time that reading messages takes.
            if self._raw_key not in bytes(view):
                return
        for index, message in read_shown(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end):
            offset = piece.offset + index
            if offset >= scan.end or message.time_ns > scan.end_ns:
                return
            if message.time_ns >= scan.begin_ns and self._has_key(message):
                self._take(scan, offset, message)
                if not self._left or self._is_the_one:
                    return

    def _has_key(self, message: Message) -> bool:
        extras = [data for origin, data in message.extras if origin == ORIGIN_ROCKETMQ]
        extra = read_extra(extras[0]) if extras else None
        raw = foreign_properties(message.key, message.headers)[0] if extra is None else extra.properties
        # As in the real broker's index, where both are keys.
        if properties.get(raw, properties.UNIQUE_KEY) == self._key:
            self._is_the_one = self._unique
            return True
        return self._key in (properties.get(raw, properties.KEYS) or "").split(" ")

    def _take(self, scan: _Scan, offset: int, message: Message) -> None:
        found = Found(self._topic, scan.index, scan.log.number, offset, message)
        body = encoded(self.client, found)
        if self._bodies and self._body_size + len(body) > QUERY_ANSWER_SIZE_BYTES_MAX:
            self._left = 0
            return
        self._bodies.append(body)
        self._body_size += len(body)
        self._left -= 1
        self._last = (message.time_ns // _NS_PER_MS, physical_offset(scan.log.number, offset))

    def _result(self) -> Answer:
        ext = {"indexLastUpdateTimestamp": str(self._last[0]), "indexLastUpdatePhyoffset": str(self._last[1])}
        if not self._bodies:
            return Answer(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, ext)
        return Answer(ext=ext, body=b"".join(self._bodies))


def _query(client: RocketmqClient, request: Request) -> Answer | None:
    """Look for messages that have a key, in a time range."""
    topic, key, most = request.ext.get("topic", ""), request.ext.get("key", ""), small(request, "maxNum")
    if most < 0:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, "the custom field <maxNum> is negative")
    if not key or not most or not is_valid_topic(topic):
        return Answer(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, _NO_INDEX)
    name = client.house.topics.core_name(topic)
    begin_ns = min(max(integer(request, "beginTimestamp"), 0), _TIME_MS_MAX) * _NS_PER_MS
    end_ns = (min(max(integer(request, "endTimestamp"), 0), _TIME_MS_MAX) + 1) * _NS_PER_MS - 1
    session = client.session
    scans = [_Scan(index, session.log(name, index), begin_ns, end_ns) for index in range(client.house.topics.queues(session, topic) or 0)]
    if not scans:
        return Answer(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, _NO_INDEX)
    return None if client.house.jobs.begin(_Query(client, request, topic, scans)) else Answer(ResponseCode.SYSTEM_BUSY, TOO_MANY)


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.QUERY_MESSAGE: _query,
    RequestCode.VIEW_MESSAGE_BY_ID: _view,
    RequestCode.CHECK_CLIENT_CONFIG: check_filter,
}
