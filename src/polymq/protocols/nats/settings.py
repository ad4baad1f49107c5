"""The limits that a NATS server tells its clients or holds them to, with nats-server's defaults.

Every number can be set by whoever runs the server, so they travel as one value instead of living in `polymq.limits`.
Names follow polymq; the key of nats-server's configuration that sets the same thing stands beside each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from polymq.limits import MESSAGE_SIZE_BYTES_MAX, PENDING_INPUT_SIZE_BYTES_MAX

__all__ = ["SIZE_DIGITS_MAX", "NatsSettings"]

_SECOND_NS: Final = 1_000_000_000

# A size of more digits is not one. Observed on nats-server 2.9.10 and 2.14.5.
SIZE_DIGITS_MAX: Final = 9

# A control line of a route may be as many times larger as one of a client. nats-server 2.11.17, 2.12.8, 2.14.0; older
# ones have no limit.
_ROUTE_LINE_FACTOR: Final = 16


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """What a server accepts. Clients look at the version to see what it can do."""

    version: str = "2.12.0"
    payload_size_bytes_max: int = 1024 * 1024  # max_payload: headers included
    line_size_bytes_max: int = 4096  # max_control_line: what stands behind the verb, without the line's end
    connections_max: int = 65_536  # max_connections
    subscriptions_max: int = 0  # max_subscriptions, of one connection; 0: any number
    subscription_tokens_max: int = 0  # max_subscription_tokens; 0: any number
    pending_size_bytes_max: int = 64 * 1024 * 1024  # max_pending: of one connection
    write_deadline_ns: int = 10 * _SECOND_NS  # write_deadline
    ping_interval_ns: int = 120 * _SECOND_NS  # ping_interval
    pings_unanswered_max: int = 2  # ping_max
    auth_timeout_ns: int = 2 * _SECOND_NS  # authorization.timeout
    tls_timeout_ns: int = 2 * _SECOND_NS  # tls.timeout
    lame_duck_duration_ns: int = 120 * _SECOND_NS  # lame_duck_duration
    lame_duck_grace_period_ns: int = 10 * _SECOND_NS  # lame_duck_grace_period
    # Not nats-server's: what another server may send, whatever its own max_payload. A larger message is left out.
    routed_payload_size_bytes_max: int = MESSAGE_SIZE_BYTES_MAX

    @property
    def route_line_size_bytes_max(self) -> int:
        """What may stand behind the verb on a line of another server: queue groups are many."""
        return _ROUTE_LINE_FACTOR * self.line_size_bytes_max

    @property
    def command_size_bytes_max(self) -> int:
        """Bytes that one command may occupy on the wire, its verb and line ends included."""
        client = self.line_size_bytes_max + self.payload_size_bytes_max
        route = self.route_line_size_bytes_max + self.routed_payload_size_bytes_max
        return max(client, route) + 16


_DEFAULT: Final = NatsSettings()
assert _DEFAULT.payload_size_bytes_max <= MESSAGE_SIZE_BYTES_MAX < 10**SIZE_DIGITS_MAX
assert _DEFAULT.command_size_bytes_max <= PENDING_INPUT_SIZE_BYTES_MAX
