r"""A message's properties as they travel: `name \x01 value \x02 name \x01 value`, in UTF-8, with or without the last \x02.

Of a name that is there twice the last counts; those without a name or a value do not count.

Source: RocketMQ 4.9.8 and 5.3.3, MessageDecoder.string2messageProperties, MessageConst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CLUSTER",
    "CORRELATION_ID",
    "DELAY",
    "KEYS",
    "MAX_RECONSUME_TIMES",
    "MESSAGE_TYPE",
    "ORIGIN_MESSAGE_ID",
    "PRODUCER_GROUP",
    "REAL_QUEUE_ID",
    "REAL_TOPIC",
    "RECONSUME_TIME",
    "REPLY_TO_CLIENT",
    "RETRY_TOPIC",
    "SLOW_PROPERTIES",
    "SYSTEM_NAMES",
    "TAGS",
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
    "TRANSACTION_CHECK_TIMES",
    "TRANSACTION_PREPARED",
    "TTL",
    "UNIQUE_KEY",
    "WAIT",
    "encode",
    "get",
    "parse",
    "with_property",
    "without_property",
]

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
CLUSTER: Final = "CLUSTER"
UNIQUE_KEY: Final = "UNIQ_KEY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
MESSAGE_TYPE: Final = "MSG_TYPE"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
# A send with one of these is more than an append: the decoder hands it out as a `Request`.
SLOW_PROPERTIES: Final = frozenset({DELAY, TRANSACTION_PREPARED, MESSAGE_TYPE, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS})
# What clients and brokers tell each other by properties: nobody else is shown these, and nobody else may set them. KEYS and TAGS are
# not among them: users set them, and everybody has something for them. Source: STRING_HASH_SET and all other names of MessageConst
# in RocketMQ 4.9.7, 5.3.3 and 5.5.0.
SYSTEM_NAMES: Final = frozenset(
    {
        WAIT,
        DELAY,
        RETRY_TOPIC,
        "ORIGIN_GROUP",
        REAL_TOPIC,
        REAL_QUEUE_ID,
        TRANSACTION_PREPARED,
        PRODUCER_GROUP,
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        ORIGIN_MESSAGE_ID,
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        RECONSUME_TIME,
        "MSG_REGION",
        "TRACE_ON",
        UNIQUE_KEY,
        "TRANS_OFFSET",
        "EXTEND_UNIQ_INFO",
        MAX_RECONSUME_TIMES,
        "CONSUME_START_TIME",
        "_SYS_MSG_PRIORITY_",
        "INNER_NUM",
        "INNER_BASE",
        "DUP_INFO",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "__transactionId__",
        TRANSACTION_CHECK_TIMES,
        "INSTANCE_ID",
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        TTL,
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        CLUSTER,
        MESSAGE_TYPE,
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "__SHARDINGKEY",
        "__LITE_TOPIC",
        "PROPERTY_FORWARD_QUEUE_ID",
        "REDIRECT",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
        "TRACE_CONTEXT",
        TIMER_DELAY_SEC,
        TIMER_DELAY_MS,
        TIMER_DELIVER_MS,
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_ROLL_LABEL",
        "TIMER_OUT_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL",
        "__BORNHOST",
        "BORN_TIMESTAMP",
        "__CRC32#",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "__RMQ.TRANSIENT.TOPIC_SYS_FLAG",
        "__RMQ.TRANSIENT.GROUP_SYS_FLAG",
    }
)


def parse(raw: bytes | memoryview) -> dict[str, str]:
    """Read all properties."""
    found: dict[str, str] = {}
    for entry in str(raw, "utf-8", "replace").split("\x02"):
        name, _, value = entry.partition("\x01")
        if name and value:
            found[name] = value
    return found


def encode(properties: Mapping[str, str]) -> bytes:
    """Write properties, each with its end; those without a name or a value are left out."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items() if name and value]).encode("utf-8", "replace")


def get(raw: bytes, name: str) -> str | None:
    """Find one property without reading all of them."""
    wanted = name.encode() + b"\x01"
    end = len(raw)
    while True:
        at = raw.rfind(wanted, 0, end)
        if at < 0:
            return None
        if at == 0 or raw[at - 1] == 2:
            start = at + len(wanted)
            stop = raw.find(b"\x02", start)
            value = raw[start:] if stop < 0 else raw[start:stop]
            if value:
                return value.decode("utf-8", "replace")
        end = at + len(wanted) - 1


def without_property(raw: bytes, name: str) -> bytes:
    """Leave out one property, however often it is there."""
    start = name.encode() + b"\x01"
    if start not in raw:
        return raw
    return b"\x02".join([entry for entry in raw.split(b"\x02") if not entry.startswith(start)])


def with_property(raw: bytes, name: str, value: str) -> bytes:
    """Set one property, at the end."""
    kept = without_property(raw, name)
    return kept + (b"\x02" if kept and not kept.endswith(b"\x02") else b"") + f"{name}\x01{value}\x02".encode("utf-8", "replace")
