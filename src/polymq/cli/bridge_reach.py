"""How `polymq bridge` reaches a broker: by `polymq.connect`, with TLS and the dialect that the command line asks for."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.clients.broker import Broker
from polymq.clients.nats import NatsOptions
from polymq.clients.nsq_opening import NsqOptions, NsqTls
from polymq.clients.phpmq import PhpmqOptions
from polymq.clients.rocketmq_options import RocketMQOptions, RocketMQTls
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from polymq.clients.bridge_address import BridgeEnd

__all__ = ["SYSTEM", "Reach", "broker_of"]

# How long one attempt to reach a server takes; then it is said, and tried again.
DEADLINE_SECONDS: Final = 10.0
# No body is as large: none is packed, so whoever reads the topic by another protocol, or its log, gets it as it is.
NEVER_BYTES: Final = 1 << 40
ROUTE_SECONDS: Final = 2.0
SYSTEM: Final = "system"


@dataclass(frozen=True, slots=True)
class Reach:
    """What an address does not say: `authorities` vouch for the server within TLS ("system" or a file; None: no TLS)."""

    authorities: str | None = None
    is_legacy: bool = False

    @property
    def root_file(self) -> str | None:
        """The file of the authorities; None for the system's."""
        return None if self.authorities == SYSTEM else self.authorities

    def context(self) -> ssl.SSLContext | None:
        """Make the TLS context of those who want one. Raises ConfigError."""
        if self.authorities is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.root_file)
        except OSError as error:
            raise ConfigError([f"{self.authorities} has no certificates of authorities: {error.strerror or error}"]) from error


def broker_of(end: BridgeEnd, reach: Reach) -> Broker:
    """Make a broker of an end; raises ConfigError, LocalProtocolError."""
    context = reach.context()  # also where only the file is wanted: to say at once that it is none
    has_tls = reach.authorities is not None
    options: object
    match end.protocol:
        case "nsq":
            options = NsqOptions(deadline_seconds=DEADLINE_SECONDS, tls=NsqTls(root_file=reach.root_file) if has_tls else None)
        case "rocketmq":
            options = RocketMQOptions(
                deadline_seconds=DEADLINE_SECONDS,
                send_seconds=DEADLINE_SECONDS,
                route_seconds=ROUTE_SECONDS,
                compress_above_bytes=NEVER_BYTES,
                tls=RocketMQTls(root_file=reach.root_file) if has_tls else None,
            )
        case "nats":
            options = NatsOptions(tls=context, deadline_seconds=DEADLINE_SECONDS)
        case _:
            options = PhpmqOptions(tls=context, legacy=reach.is_legacy, deadline_seconds=DEADLINE_SECONDS)
    return Broker(end.url, options)
