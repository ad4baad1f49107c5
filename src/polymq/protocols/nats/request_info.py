"""The header by which servers tell a service of their own who asks: `Nats-Request-Info`.

    NATS/1.0␍␊ Nats-Request-Info: {"acc":"$G","server":"m2","cluster":"c1", …}␍␊ (the asker's own headers) ␍␊

It is the servers' word: JetStream takes the account from it, so whatever a client says under that name, or hides where a server
might find it, must not count. Hence it comes first, behind a first line of our own: who looks for it finds it before anything that a
client wrote. Observed on nats-server 2.9.10 and 2.15.2, which write it last.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REQUEST_INFO", "request_info", "with_request_info"]

REQUEST_INFO: Final = b"Nats-Request-Info"

_FIRST_LINE: Final = b"NATS/1.0\r\n"
_LINE_END: Final = b"\r\n"
_BLANKS: Final = b" \t\r\n"
_NAMED: Final = re.compile(REQUEST_INFO, re.IGNORECASE)
# Of a client's lines those that some reader could take for this header, whichever end of line he believes in.
_FORGED: Final = re.compile(rb"(?:^|[\r\n])[ \t]*" + REQUEST_INFO + rb"[ \t]*:", re.IGNORECASE)


def request_info(facts: Mapping[str, object]) -> bytes:
    """Write the header's line of what is known; what is empty is left out, as by nats-server."""
    text = json.dumps({key: value for key, value in facts.items() if value}, separators=(",", ":"))
    return REQUEST_INFO + b": " + text.encode() + _LINE_END


def with_request_info(block: bytes, line: bytes) -> bytes:
    """Put the line of `request_info` into a block of headers (empty: there are none), and give the new one.

    A client's block may be anything, for servers do not look into it: of what is no line nothing is kept that could be taken
    for the header. Its first line, which has a status in answers, says nothing in a question. Cost: O(size of the block).
    """
    rest = block.partition(_LINE_END)[2]
    if _NAMED.search(rest):
        rest = _LINE_END.join(each for each in rest.split(_LINE_END) if not _FORGED.search(each))
    # A line that begins with a blank would be read as the end of ours.
    rest = rest.lstrip(_BLANKS).rstrip(_LINE_END)
    return b"".join((_FIRST_LINE, line, rest, _LINE_END if rest else b"", _LINE_END))
