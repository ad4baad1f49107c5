"""What brokers ask their consumers by themselves: to begin elsewhere, where they are, how they are. Operators' tools want that."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from polymq.clients.rocketmq_connection import Answer
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.relaxed_json import ObjectKey, dumps, loads

if TYPE_CHECKING:
    from polymq.clients.rocketmq_member import Member
    from polymq.clients.rocketmq_session import Session
    from polymq.protocols.rocketmq.events import Request

__all__ = ["answer_pushes"]

_log: Final = logging.getLogger(__name__)
_BYTES_PER_MIB: Final = 1024 * 1024


def answer_pushes(session: Session, member: Member) -> None:
    """Have a session answer for a member what concerns its queues."""

    def reset(request: Request) -> Answer:
        offsets = _offsets(request)
        if request.ext.get("group") == member.group and offsets:
            _log.warning("%s: the broker has %d queues of %s begin elsewhere", session.client_id, len(offsets), member.group)
            session.spawn(member.reset(offsets), "new positions")
        return Answer(ResponseCode.SUCCESS)

    def positions(request: Request) -> Answer:
        topic = request.ext.get("topic", "")
        table = {_key(queue): reader.window.position for queue, reader in member.readers.items() if topic in ("", queue.topic)}
        return Answer(ResponseCode.SUCCESS, body=dumps({"messageQueueTable": table, "consumerTable": {}}))

    session.handlers[RequestCode.RESET_CONSUMER_CLIENT_OFFSET] = reset
    session.handlers[RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT] = positions
    session.handlers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda _: Answer(ResponseCode.SUCCESS, body=dumps(_running(member)))


def _key(queue: MessageQueue) -> ObjectKey:
    return ObjectKey.of(brokerName=queue.broker_name, queueId=queue.queue_id, topic=queue.topic)


def _offsets(request: Request) -> dict[MessageQueue, int]:
    """Read `{"offsetTable":{{queue}:offset,…}}`; raises RemoteProtocolError when it is something else."""
    document = loads(request.body)
    table = document.get("offsetTable") if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise RemoteProtocolError("no table of offsets", fatal=False)
    found = {}
    for key, offset in table.items():
        if not isinstance(key, ObjectKey) or not isinstance(offset, int):
            raise RemoteProtocolError("a table of offsets that makes no sense", fatal=False)
        number = key.get("queueId")
        if not isinstance(number, int):
            raise RemoteProtocolError("a queue without a number", fatal=False)
        found[MessageQueue(str(key.get("topic")), str(key.get("brokerName")), number)] = offset
    return found


def _running(member: Member) -> dict[str, object]:
    """Describe a member as Java's ConsumerRunningInfo does."""
    rows = {}
    for queue, reader in member.readers.items():
        window = reader.window
        rows[_key(queue)] = {
            "cachedMsgCount": window.count,
            "cachedMsgMaxOffset": max(window.position, window.next_offset - 1),
            "cachedMsgMinOffset": window.position,
            "cachedMsgSizeInMiB": window.size_bytes // _BYTES_PER_MIB,
            "commitOffset": window.committed or 0,
            "droped": window.is_dropped,
            "lastConsumeTimestamp": 0,
            "lastLockTimestamp": 0,
            "lastPullTimestamp": 0,
            "locked": window.locked_at is not None,
            "transactionMsgCount": 0,
            "transactionMsgMaxOffset": 0,
            "transactionMsgMinOffset": 0,
            "tryUnlockTimes": 0,
        }
    return {
        "mqTable": rows,
        "properties": {
            "PROP_CLIENT_VERSION": "V4_9_8",
            "PROP_CONSUMEORDERLY": str(member.is_ordered).lower(),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY" if member.is_passive else "CONSUME_ACTIVELY",
            "PROP_CONSUMER_START_TIMESTAMP": str(member.begun_ms),
            "PROP_THREADPOOL_CORE_SIZE": "1",
        },
        "statusTable": {},
        "subscriptionSet": [
            {
                "classFilterMode": each.class_filter,
                "codeSet": list(each.codes),
                "expressionType": each.expression_type,
                "subString": each.expression,
                "subVersion": each.version,
                "tagsSet": list(each.tags),
                "topic": each.topic,
            }
            for each in member.subscriptions.values()
        ],
    }
