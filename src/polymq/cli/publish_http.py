"""`polymq publish --http`: the same over HTTP, where a message may have a key and headers (docs/NSQ_HTTP.md)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.cli.nsq_http import NsqHttp

__all__ = ["HttpProducer", "described"]

_KEY: Final = "Polymq-Key"
_HEADER: Final = "Polymq-Header-"
_NAME: Final = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
# What HTTP cannot carry in a header, or takes away from it.
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_SPACES: Final = b" \t"


def described(key: str | None, headers: Sequence[str]) -> list[tuple[str, bytes]]:
    """Give the HTTP headers for a key and for headers as they are typed, "Name: value". Raises ConfigError."""
    found: list[tuple[str, bytes]] = []
    if key is not None:
        found.append((_KEY, _value("--key", key)))
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not _NAME.fullmatch(name):
            raise ConfigError([f"--header {header!r}: expected 'Name: value', the name of letters, digits and -"])
        found.append((_HEADER + name, _value("--header", value.strip())))
    return found


def _value(option: str, text: str) -> bytes:
    value = text.encode(errors="surrogateescape")
    if _CONTROL.search(value) or value.strip(_SPACES) != value:
        raise ConfigError([f"{option} {text!r}: HTTP carries no control characters, and no spaces at the ends"])
    return value


class HttpProducer:
    """Publishes to one broker over HTTP; every message gets the headers. Nothing else runs while an answer is awaited."""

    def __init__(self, broker: NsqHttp, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        self._broker = broker
        self._headers = headers

    async def publish(self, topic: str, body: bytes, *, delay_ms: int = 0) -> None:
        """Publish one message."""
        self._broker.send("/pub", body, self._headers, topic=topic, defer=delay_ms or None)

    async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish several messages, all or none of them; they can have no headers."""
        assert not self._headers
        inner = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
        self._broker.send("/mpub", len(bodies).to_bytes(4, "big") + inner, topic=topic, binary="true")
