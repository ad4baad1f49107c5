"""The table: where a publisher's fields go in a record of the log, what each reader shows of a record, and what it has to leave out.

`expected` follows from it for every cell of the matrix; `test_matrix.py` compares it with docs/CONVERSIONS.md. Nothing of polymq is imported
here, so that nothing of polymq's can agree with itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.interop.matrix_traffic import Parcel

__all__ = ["MARK", "NAMES", "PROTOCOLS", "READERS", "READS", "WRITES", "Record", "Shown", "expected", "left_out", "record_of"]

PROTOCOLS = ("nsq", "nats", "rocketmq", "phpmq")
READERS = (*PROTOCOLS, "spark")
# The value of headers that must not come through to a protocol for which their names mean something.
MARK = "published by somebody else"

# Where a field of a message goes. A field that is not here is one that the protocol does not have.
WRITES = {
    "nsq": {"delay": "schedule"},
    "nats": {"headers": "headers", "tags": "header TAGS", "reply": "header reply-to"},
    "rocketmq": {"key": "key", "headers": "headers", "tags": "header TAGS", "reply": "header reply-to", "delay": "schedule"},
    "phpmq": {"ttl": "expiry"},
}
# What of a record a reader shows, and as what.
READS = {
    "nsq": {"time": "timestamp", "attempts": "attempts"},
    "nats": {"key": "header KEYS", "headers": "headers", "tags": "header TAGS", "reply": "reply"},
    "rocketmq": {
        "time": "storeTimestamp",
        "key": "property KEYS",
        "headers": "properties",
        "tags": "property TAGS",
        "reply": "property reply-to",
        "attempts": "reconsumeTimes",
    },
    "phpmq": {"ttl": "TTL"},
    "spark": {"time": "timestamp", "key": "key", "headers": "headers", "tags": "header TAGS", "reply": "header reply-to"},
}
# What topics are called, by the core's name; None: the protocol has no name for it. Half of them have to be written otherwise by somebody.
NAMES: dict[str, dict[str, str | None]] = {
    core: dict(zip(PROTOCOLS, names, strict=True))
    for core, *names in (
        ("orders.eu-1", "orders.eu-1", "orders.eu-1", "orders%2Eeu-1", "orders.eu-1"),
        ("two words", None, None, "two%20words", "two words"),
        ("größe", None, "größe", None, "größe"),
        ("a..b", "a..b", None, "a%2E%2Eb", "a..b"),
        ("a.*", None, None, "a%2E%2A", "a.*"),
        ("100%", None, "100%", "100%", "100%"),
        ("line%0Abreak", None, "line%0Abreak", "line%250Abreak", "line\nbreak"),
    )
}
# Names that are RocketMQ's own: what they would say is not the publisher's to say.
SYSTEM_NAMES = frozenset({"UNIQ_KEY", "DELAY", "WAIT"})
NATS_NAME = re.compile(r"[!-9;-~]+")


@dataclass(frozen=True, slots=True)
class Record:
    """What is in the log for everybody. `expires`: the TTL."""

    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    ttl_s: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """What a reader sees beside the body. `ttl_s` is the most that may be left, 0: none."""

    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    reply: str = ""
    ttl_s: int = 0


def record_of(publisher: str, parcel: Parcel) -> Record:
    """What the log has of a message."""
    fields = WRITES[publisher]
    headers = list(parcel.headers) if "headers" in fields else []
    # RocketMQ's clients send the tags behind the properties of users, and NATS' have them among the headers.
    if publisher == "rocketmq":
        headers += [("reply-to", parcel.reply)] * bool(parcel.reply) + [("TAGS", parcel.tags)] * bool(parcel.tags)
    elif parcel.reply and "reply" in fields:
        headers.append(("reply-to", parcel.reply))
    return Record(parcel.key if fields.get("key") == "key" else "", tuple(headers), parcel.ttl_s if fields.get("ttl") == "expiry" else 0)


def left_out(reader: str, name: str, value: str) -> bool:
    """Whether a reader of another protocol cannot be shown this header."""
    if reader == "nats":
        return not NATS_NAME.fullmatch(name) or "\r" in value or "\n" in value
    if reader == "rocketmq":
        return not name or not value or bool(set("\x01\x02") & set(name + value)) or name in SYSTEM_NAMES
    return False


def expected(publisher: str, reader: str, parcel: Parcel) -> Shown:
    """What the reader has to see of a message beside its body."""
    record, fields = record_of(publisher, parcel), READS[reader]
    headers = record.headers
    reply = ""
    if reader == "nats":
        # The subject for answers is one in NATS, whoever has said it; to NATS' own clients their headers are what they were.
        reply = dict(headers).get("reply-to", "")
        headers = tuple(each for each in headers if each[0] != "reply-to")
        headers = (("KEYS", record.key),) * bool(record.key) + headers
    if publisher != reader:
        headers = tuple(each for each in headers if not left_out(reader, *each))
    key = record.key if "key" in fields and reader != "nats" else ""
    if reader == "rocketmq" and not key:
        # A header KEYS is one to RocketMQ if there is no key.
        key = dict(headers).get("KEYS", "")
    if reader == "rocketmq":
        # Properties have no order.
        headers = tuple(sorted(each for each in headers if each[0] != "KEYS"))
    return Shown(key, headers if "headers" in fields else (), reply, record.ttl_s if "ttl" in fields else 0)
