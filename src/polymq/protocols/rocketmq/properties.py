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
