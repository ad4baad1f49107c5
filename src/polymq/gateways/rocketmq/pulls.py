"""Pulls: messages from an offset on, at once or when there are some.

A pull is answered straight from the log into one buffer; no message is an object. What it waits for if it has to is in `holds.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from polymq.errors import Refusal, RefusalCode
from polymq.gateways.effects import Send
from polymq.gateways.rocketmq.answers import Answer, RequestProblem, failed, integer, refused, required, small
from polymq.gateways.rocketmq.filters import NOT_LATEST, Wanted, wanted_of
from polymq.gateways.rocketmq.holds import Waiting
from polymq.gateways.rocketmq.offsets import commit
from polymq.gateways.rocketmq.topics import no_topic
from polymq.protocols.rocketmq.codes import PullFlag, RequestCode, ResponseCode
from polymq.protocols.rocketmq.encode import PULL_HEAD_SIZE_BYTES, encode_found_head, encode_response
from polymq.protocols.rocketmq.stored import encode_stored, stored_room
from polymq.rocketmq_limits import (
    MESSAGE_COUNT_PER_PULL_MAX,
    PULL_HOLD_NS_MAX,
    PULL_SCAN_RECORDS_MAX,
    PULL_SCAN_SIZE_BYTES_MAX,
    PULL_SIZE_BYTES_MAX,
    PULL_SIZE_BYTES_PER_FEED_MAX,
    PULL_SUBSCRIPTION_WAIT_NS,
)

if TYPE_CHECKING:
    from array import array

    from polymq.core.ports import Log, Reader
    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Request
    from polymq.protocols.rocketmq.places import Place

__all__ = ["HANDLERS", "Pull", "expire", "go_on"]

log = logging.getLogger(__name__)

_NS_PER_MS: Final = 1_000_000
# Records that are looked at together where only some are wanted.
_SCAN_COUNT: Final = 1024
_I32: Final = 1 << 31
_I64: Final = 1 << 63
_SUSPEND: Final = int(PullFlag.SUSPEND)
_COMMIT: Final = int(PullFlag.COMMIT_OFFSET)
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)


class Pull:
    """One pull that is not answered yet. `next` is how far it has looked: everything before is not wanted.

    Whoever asked may read this log, and has it: nobody is asked again while the pull waits. `suspend_ns` 0: it is not to wait for messages.
    """

    __slots__ = (
        "binary",
        "client",
        "commit_offset",
        "count_max",
        "due_ns",
        "expression",
        "flags",
        "group",
        "log",
        "next",
        "number",
        "offset",
        "opaque",
        "place",
        "queue_id",
        "raced",
        "reader",
        "size_max",
        "spot",
        "suspend_ns",
        "topic",
        "topic_key",
        "version",
        "wanted",
    )

    def __init__(self, client: RocketmqClient, request: Request, group: str, topic: str, topic_key: tuple[str, str]) -> None:
        self.client = client
        self.opaque = request.opaque
        self.binary = request.binary
        self.group = group
        self.topic = topic
        self.topic_key = topic_key
        numbers = _numbers(request.ext)
        if numbers is None:  # something is wrong, or unusual: what it is, in words
            numbers = _numbers_one_by_one(request)
        self.queue_id, self.offset, count_max, self.flags, size_max, suspend_ms, self.version, self.commit_offset = numbers
        if self.flags & _COMMIT and "commitOffset" not in request.ext:
            raise RequestProblem(ResponseCode.SYSTEM_ERROR, "the custom field <commitOffset> is null")
        if count_max < 0:
            raise RequestProblem(ResponseCode.SYSTEM_ERROR, "the custom field <maxMsgNums> is negative")
        self.next = self.offset
        self.count_max = min(max(count_max, 1), MESSAGE_COUNT_PER_PULL_MAX)
        self.size_max = min(size_max, PULL_SIZE_BYTES_MAX) if size_max > 0 else PULL_SIZE_BYTES_MAX
        self.suspend_ns = min(max(suspend_ms, 0) * _NS_PER_MS, PULL_HOLD_NS_MAX) if self.flags & _SUSPEND else 0
        # Without a subscription of its own it is for what its group has subscribed to.
        self.expression: tuple[str, str] | Wanted | None = None
        if self.flags & _SUBSCRIPTION:
            ext = request.ext
            self.expression = (ext.get("expressionType") or "TAG", ext.get("subscription") or "*")
        self.wanted: array[int] | None = None
        self.due_ns = 0
        self.raced = False  # `due_ns` is the end of the wait for a heartbeat
        self.place = Waiting.NOWHERE
        self.reader: Reader | None = None
        self.log: Log
        self.number = 0
        self.spot: Place


_Numbers = tuple[int, int, int, int, int, int, int, int]


def _numbers(ext: dict[str, str]) -> _Numbers | None:
    """Read what a pull says in numbers, if nothing is wrong with them: queue, offset, messages, flags, bytes, time to wait, version, commit."""
    get = ext.get
    try:
        said = (
            ext["queueId"],
            ext["queueOffset"],
            ext["maxMsgNums"],
            ext["sysFlag"],
            get("maxMsgBytes", "0"),
            get("suspendTimeoutMillis", "0"),
            get("subVersion", "0"),
            get("commitOffset", "-1"),
        )
        found = tuple(map(int, said))
    except (KeyError, ValueError):
        return None
    # Python reads blanks and underlines as well.
    if not "".join(said).replace("-", "").isdigit():
        return None
    small_enough = -_I32 <= min(found) and max(found[0], found[2], found[3], found[4]) < _I32 and max(found) < _I64
    return cast("_Numbers", found) if small_enough else None


def _numbers_one_by_one(request: Request) -> _Numbers:
    """Do the same, a field at a time. Raises RequestProblem."""
    return (
        small(request, "queueId"),
        integer(request, "queueOffset"),
        small(request, "maxMsgNums"),
        small(request, "sysFlag"),
        small(request, "maxMsgBytes", 0),
        integer(request, "suspendTimeoutMillis", 0),
        integer(request, "subVersion", 0),
        integer(request, "commitOffset", -1),
    )


def _pull(client: RocketmqClient, request: Request) -> Answer | None:
    """Begin a pull; None: it is answered already, or will be."""
    house, session = client.house, client.session
    group, topic = required(request, "consumerGroup"), required(request, "topic")
    try:
        name = house.topics.core_name(topic)
    except RequestProblem:
        return no_topic(topic, gap=" ")
    pull = Pull(client, request, group, topic, (session.principal.namespace, name))
    try:
        pull.log = session.log_for(name, group, max(pull.queue_id, 0))
    except Refusal as refusal:
        if refusal.code is RefusalCode.TOPIC_NOT_FOUND:
            return no_topic(topic, gap=" ") if house.topics.queues(session, topic) is None else _no_queue(pull)
        return refused(refusal)
    if pull.queue_id < 0:
        return _no_queue(pull)
    pull.number = pull.log.number
    pull.spot = house.topics.place(topic, pull.queue_id, pull.number, client.store_host)
    if request.oneway:
        return None
    found = wanted_of(house, pull)
    if isinstance(found, Answer):
        return found
    if pull.flags & _COMMIT:
        commit(session, name, group, pull.queue_id, pull.commit_offset)
    may_wait = _make_room(client)
    house.holds.begin(pull)
    if isinstance(found, Wanted):
        pull.wanted = found.codes
        try:
            _read(pull)
        except Exception:
            house.holds.end(pull)
            raise
    else:
        pull.raced, pull.due_ns = True, house.clock.monotonic_ns() + PULL_SUBSCRIPTION_WAIT_NS
        house.holds.wait_for_heartbeat(pull)
        client.wait_until(pull.due_ns, pull)
    if not may_wait and pull in client.pulls:
        _refuse(pull)
    return None


def _make_room(client: RocketmqClient) -> bool:
    """Whether a pull of a connection may wait; where all have as many as there may be, one of who has most goes."""
    holds = client.house.holds
    if holds.has_room(client):
        return True
    other = holds.in_the_way(client)
    if other is None:
        return False
    _refuse(other)
    return holds.has_room(client)


def _refuse(pull: Pull) -> None:
    _answer(pull, Answer(ResponseCode.SYSTEM_BUSY, "too many pulls wait here already"))


def _no_queue(pull: Pull) -> Answer:
    client = pull.client
    queues = client.house.topics.queues(client.session, pull.topic)
    said = f"topic:[{pull.topic}] topicConfig.readQueueNums:[{queues}] consumer:[/{client.peer.address}]"
    return failed(f"queueId[{pull.queue_id}] is illegal, {said}")


def go_on(pull: Pull) -> None:
    """Look again at a pull that something has come for. What goes wrong is said to the client."""
    client = pull.client
    if pull not in client.pulls:
        return
    try:
        pull.place = Waiting.NOWHERE
        if pull.number not in client.house.broker.catalogue.owners:
            _answer(pull, no_topic(pull.topic, gap=" "))
            return
        found = wanted_of(client.house, pull)
        if isinstance(found, Answer):
            _answer(pull, found)
        elif isinstance(found, Wanted):
            pull.wanted = found.codes
            if pull.raced:  # that time was for the heartbeat; its own begins now
                pull.raced, pull.due_ns = False, 0
            _read(pull)
        else:
            client.house.holds.wait_for_heartbeat(pull)
    except Exception:
        log.exception("%s: a pull has failed: internal error", client.peer)
        _answer(pull, failed("internal error"))


def expire(pull: Pull) -> None:
    """Answer a pull whose time is over; one that only waits for the disk, or for room, is answered then."""
    if pull.place is Waiting.HELD:
        _say_nothing_found(pull)
    elif pull.place is Waiting.RACE:
        _answer(pull, Answer(ResponseCode.SUBSCRIPTION_NOT_LATEST, NOT_LATEST))
    else:
        pull.suspend_ns = 0


def _read(pull: Pull) -> None:
    """Answer a pull, or let it wait for what it takes."""
    client, log = pull.client, pull.log
    holds = client.house.holds
    start, readable, offset = log.start, log.readable, pull.next
    if offset >= readable or offset < start:
        _read_outside(pull, start, readable)
        return
    if client.said_size_bytes >= PULL_SIZE_BYTES_PER_FEED_MAX or client.is_full:
        _park(pull)
        return
    reader = client.reader(pull.group, log)
    pull.reader = reader
    if reader.offset == offset and pull.wanted is None and not reader.keeps_copy:
        _read_on(pull, reader)
        holds.used(reader)
        return
    # It may take a while: to look messages through, or to read what is not in memory. What was read for it is not left lying.
    if holds.is_spent and reader not in holds.needed:
        holds.wait_in_line(pull)
        return
    if reader.offset != offset:
        reader.seek(offset)
        if holds.is_disk_busy and not reader.keeps_copy:
            holds.wait_in_line(pull)
            return
    holds.needed.discard(reader)
    begun_ns = client.house.clock.monotonic_ns()
    _read_on(pull, reader)
    holds.used(reader)
    holds.spent_ns += client.house.clock.monotonic_ns() - begun_ns


def _park(pull: Pull) -> None:
    """Let a pull wait until what was said before has been written."""
    client = pull.client
    pull.place = Waiting.READY
    if not client.ready:
        client.want_writable()
    client.ready.append(pull)


def _read_outside(pull: Pull, start: int, readable: int) -> None:
    """Answer a pull from where there is nothing; it waits only at the end."""
    if pull.next == readable and pull.next >= start:
        _hold(pull)
    elif readable == 0:
        _answer_empty(pull, ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0)
    elif pull.next < start:
        _answer_empty(pull, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", start)
    else:
        _answer_empty(pull, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", readable)


def _hold(pull: Pull) -> None:
    client = pull.client
    if not pull.suspend_ns:
        _say_nothing_found(pull)
        return
    now_ns = client.house.clock.monotonic_ns()
    if not pull.due_ns:
        pull.due_ns = now_ns + pull.suspend_ns
        client.wait_until(pull.due_ns, pull)
    client.house.holds.hold(pull)


def _say_nothing_found(pull: Pull) -> None:
    if pull.next > pull.offset:
        _answer_empty(pull, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", pull.next)
    else:
        remark = "OFFSET_OVERFLOW_ONE" if pull.log.readable else "NO_MESSAGE_IN_QUEUE"
        _answer_empty(pull, ResponseCode.PULL_NOT_FOUND, remark, pull.offset)


def _read_on(pull: Pull, reader: Reader) -> None:
    """Write the messages that are there into an answer, from one piece of the log after the other; none of them: say so."""
    client, wanted, spot = pull.client, pull.wanted, pull.spot
    house = client.house
    at = PULL_HEAD_SIZE_BYTES
    buffer = house.scratch
    count_left, size_left = pull.count_max, pull.size_max
    begun = pull.next
    scan_left, scan_size_left = PULL_SCAN_RECORDS_MAX, PULL_SCAN_SIZE_BYTES_MAX
    while True:
        piece = reader.take(count_left if wanted is None else min(_SCAN_COUNT, scan_left), max(size_left, 1))
        if piece is None:
            if reader.waiting and pull.next == begun:
                house.holds.wait_for_disk(pull)
                return
            break
        room = at + stored_room(piece, spot, size_left)
        if room > len(buffer):
            larger = house.room(room)
            if at > PULL_HEAD_SIZE_BYTES:
                larger[:at] = buffer[:at]
            buffer = larger
        end, count, next_offset, scanned = encode_stored(buffer, at, piece, spot, wanted, count_left, size_left)
        if count_left < pull.count_max and end - at > size_left:
            # Only the first message of an answer may be larger than there is room for: the next pull has to find it again.
            break
        at, pull.next = end, next_offset
        count_left -= count
        size_left = pull.size_max - (at - PULL_HEAD_SIZE_BYTES)
        scan_left -= scanned
        scan_size_left -= piece.end - piece.position
        behind = pull.next < piece.offset + piece.count
        if behind or count_left <= 0 or size_left <= 0 or scan_left <= 0 or scan_size_left <= 0:
            break
    if count_left < pull.count_max:
        _answer_found(pull, buffer, at)
    elif pull.next == begun:
        # A client that is told that there is nothing comes again at once, and for ever.
        _answer(pull, failed(pull.log.failed or f"the message at offset {pull.next} cannot be read"))
    elif pull.due_ns and pull.next >= pull.log.readable:
        _hold(pull)
    else:
        _say_nothing_found(pull)


def _answer_found(pull: Pull, buffer: bytearray, end: int) -> None:
    client, log = pull.client, pull.log
    start = encode_found_head(
        buffer,
        0,
        opaque=pull.opaque,
        binary=pull.binary,
        body_size=end - PULL_HEAD_SIZE_BYTES,
        next_offset=pull.next,
        min_offset=log.start,
        max_offset=log.readable,
    )
    client.said_size_bytes += end - start
    client.house.holds.end(pull)
    with memoryview(buffer) as view:
        client.emit(Send(bytes(view[start:end])))


def _answer_empty(pull: Pull, code: int, remark: str, next_offset: int) -> None:
    """Answer without messages: with all four fields, or Java's client fails."""
    ext = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(pull.log.start),
        "maxOffset": str(pull.log.readable),
    }
    _answer(pull, Answer(code, remark, ext))


def _answer(pull: Pull, answer: Answer) -> None:
    client = pull.client
    client.house.holds.end(pull)
    client.emit(Send(encode_response(answer.code, pull.opaque, remark=answer.remark, ext=answer.ext, binary=pull.binary)))


HANDLERS: Final[dict[int, Handler]] = {RequestCode.PULL_MESSAGE: _pull, RequestCode.LITE_PULL_MESSAGE: _pull}
