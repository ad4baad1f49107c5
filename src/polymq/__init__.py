"""polymq: one message broker with one durable log that speaks four wire protocols.

Start reading at docs/ARCHITECTURE.md; the README says in which order to read the source.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polymq.clients.broker import Broker

__all__ = ["__version__", "connect"]

__version__ = "0.1.0.dev0"

if sys.flags.optimize:
    # An assertion here states what only a bug of ours could break, and what lies behind it is people's messages.
    raise ImportError("polymq keeps its assertions on: start Python without -O and without PYTHONOPTIMIZE")

if os.environ.get("POLYMQ_PURE", "0") not in ("", "0"):
    from polymq._build import install_pure_finder

    install_pure_finder()


def connect(url: str, options: object = None) -> Broker:
    """Make a broker of an address: nsq://, nats://, rocketmq:// or phpmq://; see `polymq.clients.broker`, and `broker_sync` for scripts."""
    from polymq.clients.broker import Broker

    return Broker(url, options)
