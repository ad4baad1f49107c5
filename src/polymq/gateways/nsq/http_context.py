"""What nsqd's HTTP endpoints know: the session, the node's facts, and the few options that can be changed."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polymq.gateways.nsq.stats_memory import memory_of_this_process
from polymq.protocols.nsq.settings import NsqSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.core.ports import Clock
    from polymq.core.session import Session
    from polymq.gateways.nsq.http_streaming import Stream
    from polymq.gateways.nsq.stats_memory import MemoryFigures

__all__ = ["NsqChanging", "NsqHttp", "NsqNode", "default_node_id"]


@dataclass(frozen=True, slots=True)
class NsqNode:
    """What this node says of itself. A port of -1 is a unix socket's; addresses are as they were configured.

    The ports to broadcast are those that nsqlookupd is told; `runtime` stands where nsqd names its Go version;
    `node_id` None is nsqd's default, made of the host's name. `log_name` is what the log is called by those who read several.
    """

    broadcast_address: str
    host_name: str
    tcp_port: int
    http_port: int
    started_at_ns: int
    tcp_address: str = ""
    http_address: str = ""
    https_address: str = ""
    data_path: str = ""
    broadcast_tcp_port: int = 0
    broadcast_http_port: int = 0
    node_id: int | None = None
    runtime: str = "polymq"
    log_name: str = ""


def default_node_id(host_name: str) -> int:
    """Make a node's id of its name, in 10 bits.

    Source: nsqd/options.go, NewOptions, NSQ 1.3.0.
    """
    digest = hashlib.md5(host_name.encode("utf-8"), usedforsecurity=False).digest()
    return zlib.crc32(digest) % 1024


@dataclass(slots=True)
class NsqChanging:
    """What requests change: the options that can be, and the answers to `/sub` under way, by the token that settles theirs."""

    log_level: str = "info"
    lookupd_addresses: list[str] | None = field(default_factory=list)
    streams: dict[str, Stream] = field(default_factory=dict)


@dataclass(slots=True)
class NsqHttp:
    """The context of every endpoint in `http.py`. `change_log_level` gets one of debug, info, warn, error, fatal.

    `change_lookupd_addresses` gets all of them, as they hold from now on.
    `make_token` gives text that nobody can guess.
    `changing` is shared by all contexts made from this one, with other sessions.
    `log_port` gives the port of the log's own HTTP door, 0 if that is not open.
    `options` are those of nsqd that other parts of this node answer for, by the names of nsqd's configuration file.
    """

    session: Session
    clock: Clock
    node: NsqNode
    make_token: Callable[[], str]
    settings: NsqSettings = field(default_factory=NsqSettings)
    memory: Callable[[], MemoryFigures] = memory_of_this_process
    change_log_level: Callable[[str], None] = lambda _: None
    change_lookupd_addresses: Callable[[list[str]], None] = lambda _: None
    changing: NsqChanging = field(default_factory=NsqChanging)
    log_port: Callable[[], int] = lambda: 0
    options: Mapping[str, object] = field(default_factory=dict)

    def health_text(self) -> str:
        """Say how the node is, as nsqd does."""
        problems = self.session.health()
        return f"NOK - {'; '.join(problems)}" if problems else "OK"
