"""Who takes care of which request: the tables of all modules put together. A code that is not here is not supported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.gateways.rocketmq import heartbeats, locks, nameserver, offsets, pulls, queries, returns, sends, topics

if TYPE_CHECKING:
    from polymq.gateways.rocketmq.answers import Handler

__all__ = ["HANDLERS"]

_MODULES: Final = (sends, pulls, offsets, topics, queries, heartbeats, locks, returns, nameserver)

HANDLERS: Final[dict[int, Handler]] = {code: handler for module in _MODULES for code, handler in module.HANDLERS.items()}

# Two modules for one request would be a slip.
assert len(HANDLERS) == sum(len(module.HANDLERS) for module in _MODULES)
