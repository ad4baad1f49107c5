"""Pulls: messages from an offset on, at once or when there are some.

A pull is answered straight from the log into one buffer; no message is an object. What it waits for if it has to is in `holds.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from polymq.errors import Refusal, RefusalCode
from polymq.gateways.effects import Send
from polymq.gateways.rocketmq.answers import Answer, RequestProblem, failed, integer, refused, required, small
from polymq.gateways.rocketmq.filters import EVERYTHING, NOT_LATEST, Wanted, wanted_of
from polymq.gateways.rocketmq.holds import Waiting
from polymq.gateways.rocketmq.offsets import commit
from polymq.gateways.rocketmq.topics import no_topic
from polymq.protocols.rocketmq.codes import PullFlag, RequestCode, ResponseCode
from polymq.protocols.rocketmq.encode import PULL_HEAD_SIZE_BYTES, encode_found_head, encode_response
from polymq.protocols.rocketmq.stored import encode_stored, stored_room
from polymq.rocketmq_limits import (
    ANSWERS_SIZE_BYTES_PER_CALL_MAX,
    MESSAGE_COUNT_PER_PULL_MAX,
    PULL_HOLD_NS_MAX,
    PULL_SCAN_RECORDS_MAX,
    PULL_SCAN_SIZE_BYTES_MAX,
    PULL_SIZE_BYTES_MAX,
    PULL_SUBSCRIPTION_WAIT_NS,
)

if TYPE_CHECKING:
    from array import array

    from polymq.core.access import Principal
    from polymq.core.ports import Log, Reader
    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Again, Request
    from polymq.protocols.rocketmq.places import Place

__all__ = ["HANDLERS", "Lane", "Pull", "expire", "go_on"]

log = logging.getLogger(__name__)

_NS_PER_MS: Final = 1_000_000
# Records that are looked at together where only some are wanted.
_SCAN_COUNT: Final = 1024
_I32: Final = 1 << 31
_I64: Final = 1 << 63
_SUSPEND: Final = int(PullFlag.SUSPEND)
_COMMIT: Final = int(PullFlag.COMMIT_OFFSET)
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)


class Lane:
    """What the pulls of one consumer from one queue have in common: who asks, for what, and where that is.

    Kept from one pull to the next (`Decoder.lanes`), and good as long as the queue is there and whoever asks is the same.
    """

    __slots__ = (
        "binary",
        "count_max",
        "expression",
        "flags",
        "group",
        "log",
        "name",
        "number",
        "principal",
        "queue_id",
        "size_max",
        "spot",
        "suspend_ns",
        "topic",
        "topic_key",
        "version",
    )

    def __init__(self, request: Request, group: str, topic: str, name: str, numbers: _Numbers) -> None:
        self.binary = request.binary
        self.group = group
        self.topic = topic
        self.name = name
        self.queue_id, _, count_max, self.flags, size_max, suspend_ms, self.version, _ = numbers
        if self.flags & _COMMIT and "commitOffset" not in request.ext:
            raise RequestProblem(ResponseCode.SYSTEM_ERROR, "the custom field <commitOffset> is null")
        if count_max < 0:
            raise RequestProblem(ResponseCode.SYSTEM_ERROR, "the custom field <maxMsgNums> is negative")
        self.count_max = min(max(count_max, 1), MESSAGE_COUNT_PER_PULL_MAX)
        self.size_max = min(size_max, PULL_SIZE_BYTES_MAX) if size_max > 0 else PULL_SIZE_BYTES_MAX
        self.suspend_ns = min(max(suspend_ms, 0) * _NS_PER_MS, PULL_HOLD_NS_MAX) if self.flags & _SUSPEND else 0
        # Without a subscription of its own it is for what its group has subscribed to.
        self.expression: tuple[str, str] | Wanted | None = None
        if self.flags & _SUBSCRIPTION:
            ext = request.ext
            self.expression = (ext.get("expressionType") or "TAG", ext.get("subscription") or "*")
        # Set by `_locate`; a number below 0: it has not been found.
        self.log: Log
        self.number = -1
        self.spot: Place
        self.principal: Principal
        self.topic_key: tuple[str, str]

    def again(self, client: RocketmqClient, event: Again) -> Answer | None:
        """Carry out a pull that is like the first one. Raises Refusal."""
        if self.number not in client.house.broker.catalogue.owners or self.principal is not client.session.principal:
            answer = _locate(client, self)
            if answer is not None:
                return answer
        return _begin(client, self, event.opaque, event.number, event.commit_offset)


class Pull:
    """One pull that is not answered yet. `next` is how far it has looked: everything before is not wanted.

    Whoever asked may read this log, and has it: nobody is asked again while the pull waits. `suspend_ns` 0: it is not to wait for messages.
    """

    __slots__ = (
        "client",
        "due_ns",
        "group",
        "lane",
        "log",
        "next",
        "number",
        "offset",
        "opaque",
        "place",
        "raced",
        "reader",
        "suspend_ns",
        "topic_key",
        "wanted",
    )

    def __init__(self, client: RocketmqClient, lane: Lane, opaque: int, offset: int) -> None:
        self.client = client
        self.lane = lane
        self.opaque = opaque
        self.offset = self.next = offset
        self.group = lane.group
        self.topic_key = lane.topic_key
        self.log = lane.log
        self.number = lane.number
        self.suspend_ns = lane.suspend_ns
        self.wanted: array[int] | None = None
        self.due_ns = 0
        self.raced = False  # `due_ns` is the end of the wait for a heartbeat
        self.place = Waiting.NOWHERE
        self.reader: Reader | None = None


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
    house = client.house
    group, topic = required(request, "consumerGroup"), required(request, "topic")
    try:
        name = house.topics.core_name(topic)
    except RequestProblem:
        return no_topic(topic, gap=" ")
    numbers = _numbers(request.ext)
    if numbers is None:  # something is wrong, or unusual: what it is, in words
        numbers = _numbers_one_by_one(request)
    lane = Lane(request, group, topic, name, numbers)
    answer = _locate(client, lane)
    if answer is not None or request.oneway:
        return answer
    if request.key:
        client.keep_lane(request.key, lane)
    return _begin(client, lane, request.opaque, numbers[1], numbers[7])


def _locate(client: RocketmqClient, lane: Lane) -> Answer | None:
    """Find the queue of a lane, for who asks now; an answer if there is none, or none for them."""
    house, session, topic = client.house, client.session, lane.topic
    lane.number = -1
    lane.principal = session.principal
    lane.topic_key = (session.principal.namespace, lane.name)
    try:
        lane.log = session.log_for(lane.name, lane.group, max(lane.queue_id, 0))
    except Refusal as refusal:
        if refusal.code is RefusalCode.TOPIC_NOT_FOUND:
            return no_topic(topic, gap=" ") if house.topics.queues(session, topic) is None else _no_queue(client, lane)
        return refused(refusal)
    if lane.queue_id < 0:
        return _no_queue(client, lane)
    lane.number = lane.log.number
    lane.spot = house.topics.place(topic, lane.queue_id, lane.number, client.store_host)
    return None


def _begin(client: RocketmqClient, lane: Lane, opaque: int, offset: int, commit_offset: int) -> Answer | None:
    house = client.house
    found = wanted_of(house, lane, client)
    if isinstance(found, Answer):
        return found
    if lane.flags & _COMMIT:
        commit(client.session, lane.name, lane.group, lane.queue_id, commit_offset)
    if found is EVERYTHING and _read_at_once(client, lane, opaque, offset):
        return None
    pull = Pull(client, lane, opaque, offset)
    may_wait = _make_room(client)
    house.holds.begin(pull)
    if found is not None:
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


def _read_at_once(client: RocketmqClient, lane: Lane, opaque: int, offset: int) -> bool:
    """Answer with what comes next for whoever reads on, if it is in memory; False: it is not, and nothing has been said."""
    log = lane.log
    if offset < log.start or offset >= log.readable or client.is_spent:
        return False
    house, reader = client.house, client.reader(lane.group, log)
    if reader.offset != offset or (reader.keeps_copy and house.holds.is_spent):
        return False
    piece = reader.take(lane.count_max, lane.size_max)
    if piece is None:
        return False
    spot = lane.spot
    room = PULL_HEAD_SIZE_BYTES + stored_room(piece, spot, lane.size_max)
    buffer = house.scratch if room <= len(house.scratch) else house.room(room)
    at, now_ns = PULL_HEAD_SIZE_BYTES, house.clock.wall_ns()
    end, count, next_offset, _ = encode_stored(
        buffer, at, piece, spot, None, lane.count_max, lane.size_max, now_ns=now_ns, left_out=house.left_out
    )
    ended = next_offset == piece.offset + piece.count < log.readable and 2 * (end - at) < lane.size_max
    if not count or (ended and count < lane.count_max):
        # Nothing of it can be said, or a piece of the log has ended here, and there is more to put into the answer.
        reader.seek(offset)
        return False
    _say_found(client, lane, opaque, buffer, end, next_offset)
    house.holds.used(reader)
    return True


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


def _no_queue(client: RocketmqClient, lane: Lane) -> Answer:
    queues = client.house.topics.queues(client.session, lane.topic)
    said = f"topic:[{lane.topic}] topicConfig.readQueueNums:[{queues}] consumer:[/{client.peer.address}]"
    return failed(f"queueId[{lane.queue_id}] is illegal, {said}")


def go_on(pull: Pull) -> None:
    """Look again at a pull that something has come for. What goes wrong is said to the client."""
    client = pull.client
    if pull not in client.pulls:
        return
    try:
        pull.place = Waiting.NOWHERE
        if pull.number not in client.house.broker.catalogue.owners:
            _answer(pull, no_topic(pull.lane.topic, gap=" "))
            return
        found = wanted_of(client.house, pull.lane, client)
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
    if client.said_size_bytes >= ANSWERS_SIZE_BYTES_PER_CALL_MAX or client.is_full:
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
    client, wanted, lane = pull.client, pull.wanted, pull.lane
    spot = lane.spot
    house = client.house
    at = PULL_HEAD_SIZE_BYTES
    buffer = house.scratch
    count_left, size_left = lane.count_max, lane.size_max
    begun, now_ns = pull.next, house.clock.wall_ns()
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
        end, count, next_offset, scanned = encode_stored(
            buffer, at, piece, spot, wanted, count_left, size_left, now_ns=now_ns, left_out=house.left_out
        )
        if count_left < lane.count_max and end - at > size_left:
            # Only the first message of an answer may be larger than there is room for: the next pull has to find it again.
            break
        at, pull.next = end, next_offset
        count_left -= count
        size_left = lane.size_max - (at - PULL_HEAD_SIZE_BYTES)
        scan_left -= scanned
        scan_size_left -= piece.end - piece.position
        behind = pull.next < piece.offset + piece.count
        if behind or count_left <= 0 or size_left <= 0 or scan_left <= 0 or scan_size_left <= 0:
            break
    if count_left < lane.count_max:
        house.holds.end(pull)
        _say_found(client, lane, pull.opaque, buffer, at, pull.next)
    elif pull.next == begun:
        # A client that is told that there is nothing comes again at once, and for ever.
        _answer(pull, failed(pull.log.failed or f"the message at offset {pull.next} cannot be read"))
    elif pull.due_ns and pull.next >= pull.log.readable:
        _hold(pull)
    else:
        _say_nothing_found(pull)


def _say_found(client: RocketmqClient, lane: Lane, opaque: int, buffer: bytearray, end: int, next_offset: int) -> None:
    log = lane.log
    start = encode_found_head(
        buffer,
        0,
        opaque=opaque,
        binary=lane.binary,
        body_size=end - PULL_HEAD_SIZE_BYTES,
        next_offset=next_offset,
        min_offset=log.start,
        max_offset=log.readable,
    )
    client.said_size_bytes += end - start
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
    _say(client, pull.lane, pull.opaque, answer)


def _say(client: RocketmqClient, lane: Lane, opaque: int, answer: Answer) -> None:
    client.emit(Send(encode_response(answer.code, opaque, remark=answer.remark, ext=answer.ext, binary=lane.binary)))


HANDLERS: Final[dict[int, Handler]] = {RequestCode.PULL_MESSAGE: _pull, RequestCode.LITE_PULL_MESSAGE: _pull}
