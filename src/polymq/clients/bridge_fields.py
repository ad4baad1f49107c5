"""What becomes of a message's fields on the way over a bridge: the table of docs/BRIDGE.md, as functions without state.

A record has a key and headers, of which `TAGS` and `reply-to` mean something to protocols (docs/BRIDGE.md). What a target cannot say is
left out and named, so that it can be counted; nothing here raises.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from polymq.clients.broker_messages import Outgoing
from polymq.clients.rocketmq_messages import RESERVED
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.clients.bridge_ends import Carried
    from polymq.clients.broker_messages import BrokerMessage

__all__ = ["fields_of", "fitted"]

_TAGS: Final = b"TAGS"
_KEYS: Final = b"KEYS"
_REPLY_TO: Final = b"reply-to"
_NAME_OF_NATS: Final = re.compile(r"[!-9;-~]+")
_BREAKS: Final = re.compile(r"[\r\n]")
_SEPARATORS: Final = re.compile("[\x01\x02]")
# Left to the properties that the client itself adds, and to what separates them.
_PROPERTIES_SIZE_BYTES_MAX: Final = PROPERTIES_SIZE_BYTES_MAX - 1024
_NS_PER_SECOND: Final = 1_000_000_000


def fields_of(message: BrokerMessage) -> tuple[bytes | None, list[tuple[bytes, bytes]]]:
    """Make key and headers, as a record has them, of a message that `polymq.connect` has delivered."""
    headers = [(_encoded(name), _encoded(value)) for name, value in message.headers.items()]
    names = {name for name, _ in headers}
    if message.tags and _TAGS not in names:
        headers.append((_TAGS, _encoded(message.tags)))
    if message.reply_to and _REPLY_TO not in names:
        headers.append((_REPLY_TO, _encoded(message.reply_to)))
    return (_encoded(message.key) if message.key else None), headers


def fitted(message: Carried, protocol: str, topic: str, now_ns: int, *, has_ttl: bool = True) -> tuple[Outgoing, list[str]]:
    """Make what is published: as much of a message as the protocol can carry; also name what is left out, each time.

    `has_ttl` False: PHPMQ in its older dialect.
    """
    dropped: list[str] = []
    ttl = 0.0
    if message.expiry_ns is not None:
        if protocol == "phpmq" and has_ttl:
            ttl = max((message.expiry_ns - now_ns) / _NS_PER_SECOND, 1.0)
        else:
            dropped.append("ttl")
    if protocol in ("nsq", "phpmq"):
        dropped += ["key"] * (message.key is not None) + ["header"] * len(message.headers)
        return Outgoing(topic, message.body, ttl=ttl), dropped
    if protocol == "nats":
        pairs: Iterable[tuple[bytes, bytes]] = message.headers
        if message.key is not None:
            pairs = [(_KEYS, message.key), *(pair for pair in message.headers if pair[0] != _KEYS)]
            dropped += ["header"] * (len(message.headers) + 1 - len(pairs))
        return Outgoing(topic, message.body, headers=_spoken(pairs, _is_said_by_nats, dropped)), dropped
    return _for_rocketmq(message, topic, dropped), dropped


def _for_rocketmq(message: Carried, topic: str, dropped: list[str]) -> Outgoing:
    key = _key_of(message.key)
    if message.key is not None and not key:
        dropped.append("key")
    tags = ""
    others = []
    for name, value in message.headers:
        if name == _TAGS and (text := _decoded(value)) and _is_said_by_rocketmq("tags", text):
            dropped += ["header"] * bool(tags)  # the last one counts
            tags = text
        elif name == _KEYS and message.key is None and not key and _key_of(value):
            key = _key_of(value)
        else:
            others.append((name, value))
    headers = _spoken(others, _is_said_by_rocketmq, dropped)
    size_bytes = len(key.encode()) + len(tags.encode())
    for header, text in list(headers.items()):
        own = len(header.encode()) + len(text.encode()) + 2
        if size_bytes + own > _PROPERTIES_SIZE_BYTES_MAX:
            del headers[header]
            dropped.append("header")
        else:
            size_bytes += own
    return Outgoing(topic, message.body, key, headers, tags, order=message.order)


def _key_of(raw: bytes | None) -> str:
    """Give what can be the KEYS of a message; "" if it cannot."""
    text = _decoded(raw or b"") or ""
    return "" if _SEPARATORS.search(text) or " ".join(text.split()) != text else text


def _spoken(pairs: Iterable[tuple[bytes, bytes]], is_said: Callable[[str, str], bool], dropped: list[str]) -> dict[str, str]:
    """Give the headers that can be said; of a name that is there twice the first."""
    found: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = _decoded(raw_name), _decoded(raw_value)
        if name is None or value is None or name in found or not is_said(name, value):
            dropped.append("header")
        else:
            found[name] = value
    return found


def _is_said_by_nats(name: str, value: str) -> bool:
    return _NAME_OF_NATS.fullmatch(name) is not None and not _BREAKS.search(value) and value == value.strip()


def _is_said_by_rocketmq(name: str, value: str) -> bool:
    return bool(name and value) and name not in RESERVED and not _SEPARATORS.search(name + value)


def _decoded(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
