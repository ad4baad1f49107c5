"""Sends: runs of plain ones straight from the decoder's rows into the log, and all others one by one.

One run of sends to a queue is one append and one piece of output, which waits until the append is safe. Read next: `pulls.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq.errors import Refusal, RefusalCode, RemoteProtocolError
from polymq.gateways.effects import Send, SendAfter
from polymq.gateways.rocketmq.answers import Answer, RequestProblem, Stumble, failed, integer, loose, refused, small, truth
from polymq.gateways.rocketmq.topics import no_topic
from polymq.protocols.rocketmq import properties
from polymq.protocols.rocketmq.batch_records import encode_batch_records
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode, SysFlag
from polymq.protocols.rocketmq.encode import SEND_REPLY_SIZE_BYTES_MAX, by_queue, encode_message_ids, encode_response, encode_send_replies
from polymq.protocols.rocketmq.events import BINARY, FLAGS, ONEWAY, OPAQUE
from polymq.protocols.rocketmq.header import decode_binary, decode_json
from polymq.protocols.rocketmq.ids import physical_offset
from polymq.protocols.rocketmq.names import dead_letter_topic, group_of, is_dead_letter_topic, is_retry_topic, send_problem, topic_problem
from polymq.protocols.rocketmq.send_records import encode_records
from polymq.protocols.rocketmq.stored import ORIGIN_ROCKETMQ, Extra, make_message
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX
from polymq.wire.records import encode_message

if TYPE_CHECKING:
    from polymq.core.ports import Ticket
    from polymq.gateways.effects import Effect
    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Request, Sends

__all__ = [
    "HANDLERS",
    "Sending",
    "Stored",
    "extra_of",
    "read_sending",
    "region",
    "send_answer",
    "store",
    "stored_properties",
    "take_run",
    "too_large",
]

_NEW_TOPIC_QUEUES_MAX: Final = 8  # what the real broker gives at most because a producer asks for it
_RECONSUME_TIMES_MAX: Final = 16  # of a group that says nothing about it
_VERSION_OF_MAX: Final = 121
# Bits of a header's size that say how it is written.
_HEADER_SIZE_MASK: Final = 0xFFFFFF
# What is said of a body that is no batch at all.
_MISSHAPEN: Final = frozenset({"the batch is empty", "a size in the batch does not fit"})
# A message that asks for one of these is not stored at once.
_LATER: Final = (properties.DELAY, properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)


@dataclass(frozen=True, slots=True)
class Sending:
    """One message as it was sent, or a batch of them (`body` holds them all then). `max_reconsume` None: nothing is said about it."""

    group: str
    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    sysflag: int = 0
    flag: int = 0
    born_ms: int = 0
    reconsume: int = 0
    max_reconsume: int | None = None
    default_queues: int = 0
    batch: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """Where messages were put: `count` of them from `offset` on; the first is called `physical`."""

    ticket: Ticket
    queue_id: int
    offset: int
    physical: int
    count: int = 1


# -- runs --------------------------------------------------------------------------------------------------------------


def take_run(client: RocketmqClient, sends: Sends, effects: list[Effect]) -> None:
    """Append a run of plain sends, and answer them."""
    house = client.house
    publish = client.session.publish_run
    order, queues = by_queue(sends)
    for topic_index, queue_id, first, count in queues:
        topic = sends.topics[topic_index]
        records = encode_records(sends, order, first, count)
        name, made = house.topics.sent_to(topic)
        try:
            ticket, partition, offset = publish(name, queue_id, records, count, origin=ORIGIN_ROCKETMQ, partitions=made)
        except Refusal as refusal:
            _refuse_run(client, sends, order[first : first + count], _send_refused(client, topic, queue_id, refusal))
            continue
        place = client.places.get(partition) or client.place(topic, partition)
        size = count * SEND_REPLY_SIZE_BYTES_MAX
        buffer = house.scratch if size <= len(house.scratch) else house.room(size)
        end = encode_send_replies(buffer, 0, sends, order, first, count, place=place, first_offset=offset)
        with memoryview(buffer) as view:
            data = bytes(view[:end])
        effects.append(SendAfter(ticket, data, partial(_run_failed, data)))


def _refuse_run(client: RocketmqClient, sends: Sends, rows: memoryview, answer: Answer) -> None:
    for row in rows:
        flags = sends.number(row, FLAGS)
        if not flags & ONEWAY:
            binary = bool(flags & BINARY)
            opaque = sends.number(row, OPAQUE)
            client.emit(Send(encode_response(answer.code, opaque, remark=answer.remark, ext=region(client), binary=binary)))


def _run_failed(replies: bytes, reason: str) -> bytes:
    """Take back the answers to a run whose append has failed: the same requests get another answer."""
    failures = []
    at = 0
    while at < len(replies):
        size = int.from_bytes(replies[at : at + 4], "big")
        word = int.from_bytes(replies[at + 4 : at + 8], "big")
        binary = bool(word >> 24)
        data = replies[at + 8 : at + 8 + (word & _HEADER_SIZE_MASK)]
        header = decode_binary(data) if binary else decode_json(data)
        failures.append(encode_response(ResponseCode.SYSTEM_ERROR, header.opaque, remark=reason, binary=binary))
        at += 4 + size
    return b"".join(failures)


def region(client: RocketmqClient) -> dict[str, str]:
    """Give the fields that every answer to a send has."""
    return {"MSG_REGION": client.house.settings.region, "TRACE_ON": "true"}


def _illegal_queue(client: RocketmqClient, topic: str, queue_id: int, queues: int) -> str:
    said = f"TopicConfig [topicName={topic}, readQueueNums={queues}, writeQueueNums={queues}, perm=RW-, topicFilterType=SINGLE_TAG"
    return f"request queueId[{queue_id}] is illegal, {said}, topicSysFlag=0, order=false] Producer: {client.peer.address}"


def _send_refused(client: RocketmqClient, topic: str, queue_id: int, refusal: Refusal) -> Answer:
    """Say why a message was not taken, as the real broker does where it has words for it."""
    if refusal.code is RefusalCode.TOPIC_NOT_FOUND:
        queues = client.house.topics.queues(client.session, topic)
        return no_topic(topic) if queues is None else failed(_illegal_queue(client, topic, queue_id, queues))
    return refused(refusal)


# -- one by one --------------------------------------------------------------------------------------------------------


def _send(client: RocketmqClient, request: Request) -> Answer | None:
    """Take a message that is more than an append, or whose fields are not as they should be. What goes wrong says where it went wrong."""
    if not request.ext.get(_names(request)["topic"]):
        return Answer(ResponseCode.SYSTEM_ERROR, topic_problem(""), region(client))
    sending = read_sending(request)
    try:
        answer = _take(client, sending)
    except Stumble:
        raise
    except RequestProblem as problem:
        answer = problem.answer
    except Refusal as refusal:
        answer = refused(refusal)
    if answer is not None and not answer.ext:
        answer.ext = region(client)
    return answer


def _take(client: RocketmqClient, sending: Sending) -> Answer | None:
    client.house.topics.core_name(sending.topic)
    problem = send_problem(sending.topic)
    if problem is not None:
        return Answer(ResponseCode.NO_PERMISSION, problem)
    if len(sending.body) > client.house.settings.body_size_bytes_max or len(sending.properties) > PROPERTIES_SIZE_BYTES_MAX:
        return too_large(client)
    if sending.batch and sending.sysflag & SysFlag.TRANSACTION_ROLLBACK:
        return too_large(client)
    if sending.sysflag & SysFlag.TRANSACTION_ROLLBACK == SysFlag.TRANSACTION_PREPARED or (
        properties.get(sending.properties, properties.TRANSACTION_PREPARED) == "true"
    ):
        return Answer(ResponseCode.NO_PERMISSION, "transaction messages are not supported here")
    later = any(properties.get(sending.properties, name) is not None for name in _LATER)
    if sending.batch:
        return too_large(client) if later else _send_batch(client, sending)
    sending = _redirected(sending)
    if later and not is_dead_letter_topic(sending.topic):
        _check_queue(client, sending)
        answer = client.house.delays.take(client, sending)
        if answer is not None:
            return answer
    return send_answer(client, store(client, sending), sending)


def too_large(client: RocketmqClient) -> Answer:
    """Say that a message, or its properties, take more than they may."""
    most = client.house.settings.body_size_bytes_max
    said = f"msg body length limit {most}B, msg properties length limit 32KB."
    return _illegal(f"maybe msg body or properties length not matched. {said}")


def _illegal(words: str) -> Answer:
    return Answer(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal, {words}")


def read_sending(request: Request) -> Sending:
    """Read the fields of a send, by either kind of names. Raises RequestProblem."""
    ext = request.ext
    names = _names(request)
    optional = loose if names is _LONG_NAMES else small
    properties_text = ext.get(names["properties"]) or ""
    # Clients before 3.4.9 do not know what they say there.
    most = ext.get(names["max_reconsume"]) if request.version >= _VERSION_OF_MAX else None
    return Sending(
        group=ext.get(names["group"]) or "",
        topic=ext.get(names["topic"]) or "",
        queue_id=small(request, names["queue_id"]),
        body=request.body,
        properties=properties_text.encode("utf-8", "replace"),
        sysflag=small(request, names["sys_flag"]),
        flag=small(request, names["flag"]),
        born_ms=integer(request, names["born_ms"]),
        reconsume=optional(request, names["reconsume_times"], 0),
        max_reconsume=optional(request, names["max_reconsume"], _RECONSUME_TIMES_MAX) if most else None,
        default_queues=small(request, names["default_queues"], 0),
        batch=truth(request, names["batch"]),
    )


_NAMED_LONG: Final = frozenset({int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE)})
_SHORT_NAMES: Final = {
    "group": "a",
    "topic": "b",
    "default_queues": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_ms": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "max_reconsume": "l",
    "batch": "m",
}
_LONG_NAMES: Final = {
    "group": "producerGroup",
    "topic": "topic",
    "default_queues": "defaultTopicQueueNums",
    "queue_id": "queueId",
    "sys_flag": "sysFlag",
    "born_ms": "bornTimestamp",
    "flag": "flag",
    "properties": "properties",
    "reconsume_times": "reconsumeTimes",
    "max_reconsume": "maxReconsumeTimes",
    "batch": "batch",
}


def _names(request: Request) -> dict[str, str]:
    return _LONG_NAMES if request.code in _NAMED_LONG else _SHORT_NAMES


def _redirected(sending: Sending) -> Sending:
    """Send to the dead letters what a group has given back too often: by sending it, as clients do that cannot say so otherwise."""
    if not is_retry_topic(sending.topic):
        return sending
    most = sending.max_reconsume if sending.max_reconsume is not None else _RECONSUME_TIMES_MAX
    if sending.reconsume < most:
        return sending
    raw = sending.properties
    for name in _LATER:
        raw = properties.without_property(raw, name)
    return replace(sending, topic=dead_letter_topic(group_of(sending.topic) or ""), queue_id=0, properties=raw)


def _new_queues(client: RocketmqClient, sending: Sending) -> int:
    """Say how many queues a topic gets by being sent to: what the producer asks for, in reason."""
    found = client.house.topics.new_queues(sending.topic)
    if found and sending.default_queues > 0 and group_of(sending.topic) is None:
        return min(sending.default_queues, max(_NEW_TOPIC_QUEUES_MAX, found))
    return found


def _check_queue(client: RocketmqClient, sending: Sending) -> None:
    """Make sure that the topic is there, and has the queue. Raises RequestProblem, Refusal."""
    topics, session = client.house.topics, client.session
    made = _new_queues(client, sending)
    queues = topics.queues(session, sending.topic)
    if queues is None and not made:
        raise RequestProblem(ResponseCode.TOPIC_NOT_EXIST, f"topic[{sending.topic}] not exist, apply first please!")
    queues = topics.ensure(session, sending.topic, made)
    if sending.queue_id >= queues:
        raise RequestProblem(ResponseCode.SYSTEM_ERROR, _illegal_queue(client, sending.topic, sending.queue_id, queues))


def extra_of(client: RocketmqClient, sending: Sending, raw: bytes) -> Extra:
    """Say what a message has besides its body. `raw` are its properties."""
    sys_flag = sending.sysflag & ~(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    if len(client.born_host) != 4:
        sys_flag |= SysFlag.BORN_HOST_V6
    return Extra(
        flag=sending.flag,
        sys_flag=sys_flag,
        born_ms=sending.born_ms,
        born_host=client.born_host,
        born_port=client.peer.port,
        reconsume_times=sending.reconsume,
        properties=raw,
    )


def stored_properties(client: RocketmqClient, raw: bytes) -> bytes:
    """Change the properties of a message as the real broker does when it stores it."""
    kept = properties.without_property(raw, properties.WAIT)
    return properties.with_property(kept, properties.CLUSTER, client.house.facts.cluster)


def store(client: RocketmqClient, sending: Sending) -> Stored:
    """Append one message. Raises Refusal, RequestProblem."""
    raw = stored_properties(client, sending.properties)
    if len(raw) > PROPERTIES_SIZE_BYTES_MAX:
        answer = too_large(client)
        raise RequestProblem(answer.code, answer.remark or "")
    most = client.house.settings.body_size_bytes_max
    record = encode_message(make_message(sending.body, extra_of(client, sending, raw), unpacked_size_max=most))
    return _append(client, sending, memoryview(record), 1)


def _append(client: RocketmqClient, sending: Sending, records: memoryview, count: int) -> Stored:
    name = client.house.topics.core_name(sending.topic)
    try:
        ticket, partition, offset = client.session.publish_run(
            name,
            sending.queue_id,
            records,
            count,
            origin=ORIGIN_ROCKETMQ,
            partitions=_new_queues(client, sending),
        )
    except Refusal as refusal:
        answer = _send_refused(client, sending.topic, sending.queue_id, refusal)
        raise RequestProblem(answer.code, answer.remark or "") from refusal
    return Stored(ticket, partition.index, offset, physical_offset(partition.number, offset), count)


def _send_batch(client: RocketmqClient, sending: Sending) -> Answer:
    """Append messages that were sent together: all or none, one behind the other."""
    sys_flag = extra_of(client, sending, b"").sys_flag
    try:
        records, count = encode_batch_records(
            sending.body,
            client.keeper,
            sys_flag=sys_flag,
            born_ms=sending.born_ms,
            reconsume_times=sending.reconsume,
            properties=sending.properties,
        )
    except RemoteProtocolError as error:
        if error.reason in _MISSHAPEN:
            raise Stumble(error.reason) from None
        return _illegal(error.reason)
    return send_answer(client, _append(client, sending, records, count), sending)


def send_answer(client: RocketmqClient, stored: Stored, sending: Sending) -> Answer:
    """Say where messages were put, when that is safe. The queue is the one that was asked for, even if they come there later."""
    ext = {
        "msgId": encode_message_ids(client.store_host, client.house.facts.port, stored.physical, stored.count),
        "queueId": str(sending.queue_id if sending.queue_id >= 0 else stored.queue_id),
        "queueOffset": str(stored.offset),
        "MSG_REGION": client.house.settings.region,
        "TRACE_ON": "true",
    }
    return Answer(ext=ext, ticket=stored.ticket, publishes=True)


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.SEND_MESSAGE: _send,
    RequestCode.SEND_MESSAGE_V2: _send,
    RequestCode.SEND_BATCH_MESSAGE: _send,
}
