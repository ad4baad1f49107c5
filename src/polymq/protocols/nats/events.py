"""What a client or another server said, as the decoder hands it to the gateway: the only thing that passes between the two.

Every message of a run is in one event (`Publishes`), whatever their subjects. Names are raw bytes, not yet checked
(`subjects` does that): a wrong name is an answer, not the end of the connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polymq.wire.live import COLUMNS, PAYLOAD_AT, PAYLOAD_SIZE

if TYPE_CHECKING:
    from polymq.protocols.nats.problems import CloseReason
    from polymq.wire.live import LiveBatch

__all__ = [
    "Connect",
    "Event",
    "Info",
    "LeftOut",
    "PeerError",
    "Ping",
    "Pong",
    "Publishes",
    "RemoteSubscribe",
    "RemoteUnsubscribe",
    "SilentClose",
    "Subscribe",
    "Unsubscribe",
    "Violation",
]


@dataclass(frozen=True, slots=True)
class Connect:
    """CONNECT with its JSON, not looked at; it may hold secrets. Always the last event of its feed."""

    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Info:
    """INFO of another server with its JSON, not looked at. Always the last event of its feed."""

    body: bytes


@dataclass(slots=True)
class Publishes:
    """A run of PUBs and HPUBs, or on a route of RMSGs, HMSGs and LMSGs. Valid as long as the view that was fed.

    `size_bytes` is the sum of the payloads, headers included. `unusual`: some subject or reply of a client begins as
    only the servers' own may, or a pedantic client publishes to wildcards or empty tokens (`subjects.publish_problem` tells); on a
    route, some message names queue groups. Not frozen, because making a frozen object takes three times as long, and who sends one
    message at a time causes one of these for each.
    """

    batch: LiveBatch
    size_bytes: int
    unusual: bool = False

    def end_of(self, count: int) -> int:
        """Say where the first `count` messages end in the view that was fed: for who has no time for more of them."""
        row = COLUMNS * (count - 1)
        # A payload has a line's end of two bytes.
        return int(self.batch.rows[row + PAYLOAD_AT] + self.batch.rows[row + PAYLOAD_SIZE]) + 2

    def payloads_size_bytes(self, count: int) -> int:
        """Add up the payloads of the first `count` messages."""
        if count == self.batch.count:
            return self.size_bytes
        return sum(self.batch.rows[PAYLOAD_SIZE : COLUMNS * count : COLUMNS])


@dataclass(slots=True)
class Subscribe:
    """SUB of a client; `sid` is its own name for the subscription, any token. Not frozen for the same reason."""

    subject: bytes
    sid: bytes
    queue: bytes = b""


@dataclass(slots=True)
class Unsubscribe:
    """UNSUB: after `deliveries_max` messages in all since SUB; 0, or fewer than it has had: at once."""

    sid: bytes
    deliveries_max: int = 0


@dataclass(slots=True)
class RemoteSubscribe:
    """RS+ or LS+: another server has takers for a subject.

    Of a queue group it has `weight` members; 0 if the number made no sense: then the group is never chosen there.
    """

    account: bytes
    subject: bytes
    queue: bytes = b""
    weight: int = 1


@dataclass(slots=True)
class RemoteUnsubscribe:
    """RS- or LS-: another server has no takers any more."""

    account: bytes
    subject: bytes
    queue: bytes = b""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A message of another server was larger than what is taken from routes; its payload is thrown away as it comes."""

    account: bytes
    subject: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Ping:
    """PING: one PONG is owed."""


@dataclass(frozen=True, slots=True)
class Pong:
    """PONG: whoever sent it is alive."""


@dataclass(frozen=True, slots=True)
class PeerError:
    """-ERR: the peer has given up on this connection; close it. Always the last event."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Violation:
    """The peer broke the protocol: `text` is the error it is owed, then the connection is closed.

    Always the last event: the decoder takes no more input.
    """

    text: bytes
    reason: CloseReason


@dataclass(frozen=True, slots=True)
class SilentClose:
    """A line with the wrong number of words, or a number that is none: closed without a word, as nats-server does."""

    reason: CloseReason


Event = (
    Connect
    | Info
    | LeftOut
    | PeerError
    | Ping
    | Pong
    | Publishes
    | RemoteSubscribe
    | RemoteUnsubscribe
    | SilentClose
    | Subscribe
    | Unsubscribe
    | Violation
)
