"""What the matrix publishes: for each protocol numbered messages with every field that it has, no two bodies alike."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.interop.matrix_table import MARK, PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COUNT", "DELAY_MS", "TTL_S", "Parcel", "topic_of", "traffic"]

COUNT = 10_000
MEBIBYTE = 1 << 20
DELAY_MS = 1_500
TTL_S = 3_600
# How many bodies have about so many bytes; the others have at most a KiB, and the first 256 are all the single bytes.
SIZES = ((8, MEBIBYTE), (16, 256 * 1024), (100, 64 * 1024), (1_000, 6 * 1024))
ALL_BYTES = bytes(range(256))
# What a careless reader of some protocol would take for the end of a body, or for a command.
TRAPS = (b"\r\n\r\nPING\r\n", b"\n  V2FIN \n", b"H0100304P01", b"\x01\x02\x00\xff", b"%RETRY%\r\n")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message as its publisher means it; `tags` and `key` are RocketMQ's, which has fields for them."""

    number: int
    body: bytes
    key: str = ""
    tags: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    reply: str = ""
    ttl_s: int = 0
    delay_ms: int = 0


def topic_of(publisher: str) -> str:
    """The topic of a publisher's row, by the core's name: RocketMQ cannot spell the dot."""
    return f"matrix.{publisher}-row_1"


def bodies(seed: int) -> list[bytes]:
    """All bodies: every single byte, some as large as every protocol takes them, most small; half of the long ones can be compressed."""
    chance = random.Random(seed)
    sizes = [size for count, size in SIZES for size in [size] * count]
    sizes += [chance.randrange(8, 1024) for _ in range(COUNT - len(sizes) - len(ALL_BYTES))]
    chance.shuffle(sizes)
    found = [bytes([each]) for each in ALL_BYTES]
    for number, size in enumerate(sizes):
        trap = TRAPS[number % len(TRAPS)] if size > 64 else b""
        fill = size - 4 - len(trap)
        filling = chance.randbytes(fill) if number % 2 else (ALL_BYTES * (fill // 256 + 1))[:fill]
        found.append((number + 70_000).to_bytes(4, "big") + filling + trap)
    assert len(set(found)) == COUNT
    chance.shuffle(found)
    return found


def of_nsq(number: int, body: bytes) -> Parcel:
    return Parcel(number, body, delay_ms=DELAY_MS if number % 200 == 7 else 0)


def of_nats(number: int, body: bytes) -> Parcel:
    # The largest have no headers: with them they would be more than nats-server's max_payload.
    headers: Sequence[tuple[str, str]] = {
        1: [("Gate", "A7")],
        2: [("TAGS", "delays")],
        4: [("KEYS", f"BA{number}"), ("a.b", "c: d"), ("TAGS", "gates"), ("city", "Zürich 漢")],
        5: [("UNIQ_KEY", MARK), ("DELAY", MARK), ("ok", "1")],
        6: [("Empty", ""), ("control", "one\x01two"), ("x", "1")],
    }.get(number % 8, [])
    if len(body) == MEBIBYTE:
        return Parcel(number, body)
    return Parcel(number, body, headers=tuple(headers), reply=f"answers.{number}" if number % 8 in (3, 4) else "")


def of_rocketmq(number: int, body: bytes) -> Parcel:
    kind = number % 8
    headers: Sequence[tuple[str, str]] = {
        3: [("gate", "A7"), ("city", "Zürich 漢")],
        4: [("z", "last first"), ("a", "1")],
        5: [("text", "two\r\nlines"), ("ok", "1")],
        6: [("two words", "x"), ("Über", "y"), ("a.b", "c: d")],
    }.get(kind, [])
    key = f"DL{number}" if kind in (1, 4) else f"DL{number} order-{number}" if kind == 6 else ""
    reply = f"answers.{number}" if kind in (2, 4) else ""
    delay_ms = DELAY_MS if number % 200 == 7 else 0
    return Parcel(number, body, key, "delays" if kind in (2, 4) else "", tuple(headers), reply, delay_ms=delay_ms)


def of_phpmq(number: int, body: bytes) -> Parcel:
    return Parcel(number, body, ttl_s=TTL_S if number % 3 == 0 else 0)


KINDS = {"nsq": of_nsq, "nats": of_nats, "rocketmq": of_rocketmq, "phpmq": of_phpmq}
assert tuple(KINDS) == PROTOCOLS


def traffic(publisher: str) -> list[Parcel]:
    """All messages of a row, in the order in which they are published."""
    return [KINDS[publisher](number, body) for number, body in enumerate(bodies(PROTOCOLS.index(publisher)))]
