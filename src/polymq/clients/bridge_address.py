"""What the ends of a bridge are called: the addresses of `polymq.connect` with a topic, and the log of a polymq node.

nsq://HOST:4150/TOPIC/CHANNEL   rocketmq://NS1:9876,NS2:9876/TOPIC/GROUP   nats://HOST:4222/SUBJECT[/QUEUE GROUP]
phpmq://HOST:9100/QUEUE         polymq://[:SECRET@]HOST:4171/TOPIC
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote

from polymq.clients.broker_address import parse_address
from polymq.errors import LocalProtocolError

__all__ = ["BridgeEnd", "parse_end"]

LOG: Final = "polymq"
_LOG_PORT: Final = 4171
# Who reads for a bridge, where a protocol wants a name for that and none is given.
_GROUP: Final = "bridge"
_GROUPED: Final = ("nsq", "rocketmq")
_PARTS_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class BridgeEnd:
    """An end: `url` is for `polymq.connect`, or HOST:PORT for a log; `shown` is the whole without secrets."""

    protocol: str
    url: str = field(repr=False)
    topic: str
    group: str
    shown: str
    secret: str = field(default="", repr=False)

    @property
    def names(self) -> tuple[str, str, str]:
        """What makes two ends the same, whoever reads there."""
        return self.protocol, self.shown.split("/")[2], self.topic

    @property
    def is_log(self) -> bool:
        """Whether it is the log of a polymq node."""
        return self.protocol == LOG


def parse_end(url: str, *, is_source: bool, topic: str = "") -> BridgeEnd:
    """Read an address; `topic` is for a target that names none. Raises LocalProtocolError, which does not repeat secrets."""
    protocol, _, rest = url.partition("://")
    place, _, path = rest.partition("/")
    if protocol == LOG:
        # Its servers are written as everybody's.
        server = parse_address(f"nats://{place if ':' in place.rpartition('@')[2].rpartition(']')[2] else f'{place}:{_LOG_PORT}'}")
        if server.user:
            raise LocalProtocolError("a polymq node has a secret and no user: write polymq://:SECRET@HOST:PORT/TOPIC, or set POLYMQ_SECRET")
        if not is_source:
            raise LocalProtocolError(
                "the log of a polymq node is only read; name the door of one of its protocols as the target:"
                " rocketmq://HOST:9876/TOPIC carries key, tags and headers, nats:// headers, phpmq:// a TTL, nsq:// bodies"
            )
        servers, shown_servers, secret = server.server, server.server, server.secret
    else:
        address = parse_address(f"{protocol}://{place}")
        servers, shown_servers, secret = f"{protocol}://{place}", ",".join(address.servers), ""
    parts = [unquote(part) for part in path.split("/")] if path else []
    if len(parts) > _PARTS_MAX or (len(parts) == _PARTS_MAX and (not is_source or protocol in (LOG, "phpmq"))):
        what = "/TOPIC/GROUP" if is_source and protocol not in (LOG, "phpmq") else "/TOPIC"
        raise LocalProtocolError(f"behind the servers of {protocol}:// stands {what} and nothing else; a / in a name is written %2F")
    named = parts[0] if parts and parts[0] else topic
    if not named:
        raise LocalProtocolError(f"{protocol}:// needs a topic: {protocol}://{shown_servers}/TOPIC")
    group = parts[1] if len(parts) == _PARTS_MAX else ""
    if is_source and not group and protocol in _GROUPED:
        group = _GROUP
    shown = "/".join([f"{protocol}://{shown_servers}", quote(named, safe="*>"), *([quote(group, safe="")] if group else [])])
    return BridgeEnd(protocol, servers, named, group, shown, secret)
