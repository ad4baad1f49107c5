"""Where clients find the servers of a cluster: what other servers say of themselves, as far as it is passed on to clients.

Whoever says to be a server can say anything; a client that is told too much, or what is no address, gives up connecting at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from polymq.limits import CONNECT_URL_SIZE_BYTES_MAX, CONNECT_URLS_SIZE_BYTES_MAX, ROUTE_CONNECT_URLS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["urls_for_clients"]

# host:port, [address]:port. None of these characters takes more than a byte in INFO.
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]):[0-9]{1,5}")
# What INFO has around each: two quotes and a comma.
_AROUND: Final = 3


def urls_for_clients(own: Sequence[str], others: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], list[int]]:
    """Put together what this server and others say; gives as well how much of each of the others is left out.

    Limits: ROUTE_CONNECT_URLS_MAX and CONNECT_URL_SIZE_BYTES_MAX for each, CONNECT_URLS_SIZE_BYTES_MAX for all. Where that is not
            enough, the first of each come before the second of any, so that nobody takes the room of all.
    Cost:   0.5 µs for each.
    """
    room = CONNECT_URLS_SIZE_BYTES_MAX - sum(len(url) + _AROUND for url in own)
    chosen = dict.fromkeys(own)
    wanted = [dict.fromkeys(filter(_is_address, urls[:ROUTE_CONNECT_URLS_MAX])) for urls in others]
    left_out = [len(dict.fromkeys(urls)) - len(good) for urls, good in zip(others, wanted, strict=True)]
    waiting = [(number, iter(urls)) for number, urls in enumerate(wanted)]
    while waiting:
        going_on = []
        for number, urls in waiting:
            url = next(urls, None)
            if url is None:
                continue
            going_on.append((number, urls))
            if url in chosen:
                continue
            if len(url) + _AROUND > room:
                left_out[number] += 1
                continue
            room -= len(url) + _AROUND
            chosen[url] = None
        waiting = going_on
    # Server by server, as they have joined.
    return tuple(dict.fromkeys((*own, *(url for urls in wanted for url in urls if url in chosen)))), left_out


def _is_address(url: str) -> bool:
    return len(url) <= CONNECT_URL_SIZE_BYTES_MAX and _ADDRESS.fullmatch(url) is not None
