"""`/debug/…`: what scripts for nsqd may call. Nothing of Go's is here to be turned, so the answers are all there is.

nsqd answers both with an error although they have succeeded, because it cannot write "nothing" as text; clients that
know that see the same here. Go's profiles (`/debug/pprof/…`) are not there: `py-spy` and perf look at this process.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import orjson

from polymq.gateways.nsq.http_answers import ApiError, endpoint, plain

if TYPE_CHECKING:
    from polymq.gateways.nsq.http_context import NsqHttp
    from polymq.wire.exchange import Request, Response

__all__ = ["free_memory", "set_block_rate"]

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INTEGER_MAX: Final = (1 << 63) - 1


@endpoint
def set_block_rate(request: Request, _context: NsqHttp) -> Response:
    """PUT /debug/setblockrate?rate=.

    Source: nsqd/http.go, setBlockRateHandler, NSQ 1.3.0; the text is that of Go's strconv.
    """
    rate = (request.arguments or {}).get("rate", "")
    if not _INTEGER.fullmatch(rate):
        problem = "invalid syntax"
    elif not -_INTEGER_MAX - 1 <= int(rate[:21]) <= _INTEGER_MAX:
        problem = "value out of range"
    else:
        raise ApiError(500, "INTERNAL_ERROR")
    quoted = orjson.dumps(rate).decode("utf-8")
    return plain(400, f"invalid block rate : strconv.Atoi: parsing {quoted}: {problem}")


@endpoint
def free_memory(_request: Request, _context: NsqHttp) -> Response:
    """POST /debug/freememory."""
    raise ApiError(500, "INTERNAL_ERROR")
