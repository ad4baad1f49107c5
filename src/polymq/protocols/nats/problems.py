"""The words of every error that nats-server sends, byte for byte, because clients compare them; and why it hangs up.

Each text is what stands between the quotes of one `-ERR '…'` line; `encode.error_line` writes the line. `CloseReason`
has the words of nats-server's monitoring and log, which no peer is told. Observed on 2.9.10 and 2.14.5.
"""

from __future__ import annotations

import enum
from typing import Final

from polymq.wire.go_quote import quote

__all__ = [
    "ACCOUNT_CONNECTIONS_EXCEEDED",
    "ACCOUNT_EXPIRED",
    "AUTH_EXPIRED",
    "AUTH_REVOKED",
    "AUTH_TIMEOUT",
    "AUTH_VIOLATION",
    "BAD_CLIENT_PROTOCOL",
    "CLIENT_ON_ROUTE_PORT",
    "CONNECTIONS_EXCEEDED",
    "INVALID_PUBLISH_SUBJECT",
    "INVALID_ROUTED_SUBJECT",
    "INVALID_SUBJECT",
    "LINE_TOO_LONG",
    "NO_RESPONDERS_WITHOUT_HEADERS",
    "PAYLOAD_TOO_LARGE",
    "STALE_CONNECTION",
    "SUBSCRIPTIONS_EXCEEDED",
    "TLS_REQUIRED",
    "UNKNOWN_OPERATION",
    "CloseReason",
    "cluster_name_conflict",
    "no_route_for",
    "not_stored",
    "publish_forbidden",
    "reply_forbidden",
    "subscription_forbidden",
    "subscription_revoked",
    "too_many_tokens",
    "unknown_account",
    "unsupported_compression",
    "wrong_gateway",
]


class CloseReason(enum.Enum):
    """Why a connection was closed, as nats-server's /connz and log say it."""

    CLIENT_CLOSED = "Client Closed"
    AUTH_TIMEOUT = "Authentication Timeout"
    AUTH_VIOLATION = "Authentication Failure"
    TLS_HANDSHAKE = "TLS Handshake Failure"
    SLOW_CONSUMER_PENDING = "Slow Consumer (Pending Bytes)"
    SLOW_CONSUMER_DEADLINE = "Slow Consumer (Write Deadline)"
    WRITE_ERROR = "Write Error"
    READ_ERROR = "Read Error"
    PARSE_ERROR = "Parse Error"
    STALE_CONNECTION = "Stale Connection"
    PROTOCOL_VIOLATION = "Protocol Violation"
    BAD_CLIENT_PROTOCOL = "Bad Client Protocol Version"
    WRONG_PORT = "Incorrect Port"
    ACCOUNT_CONNECTIONS_EXCEEDED = "Maximum Account Connections Exceeded"
    CONNECTIONS_EXCEEDED = "Maximum Connections Exceeded"
    PAYLOAD_TOO_LARGE = "Maximum Message Payload Exceeded"
    LINE_TOO_LONG = "Maximum Control Line Exceeded"
    DUPLICATE_ROUTE = "Duplicate Route"
    SERVER_SHUTDOWN = "Server Shutdown"
    AUTH_EXPIRED = "Authentication Expired"
    WRONG_GATEWAY = "Wrong Gateway"
    NO_RESPONDERS_WITHOUT_HEADERS = "No Responders Requires Headers"
    CLUSTER_NAME_CONFLICT = "Cluster Name Conflict"
    DUPLICATE_SERVER_NAME = "Duplicate Server Name"


# What would end the text, or the line.
_NO_QUOTES: Final = bytes.maketrans(b"'\r\n", b"`  ")

# After each of these the connection is closed.
UNKNOWN_OPERATION: Final = b"Unknown Protocol Operation"
LINE_TOO_LONG: Final = b"maximum control line exceeded"
PAYLOAD_TOO_LARGE: Final = b"Maximum Payload Violation"
AUTH_VIOLATION: Final = b"Authorization Violation"
AUTH_TIMEOUT: Final = b"Authentication Timeout"
AUTH_EXPIRED: Final = b"User Authentication Expired"
AUTH_REVOKED: Final = b"User Authentication Revoked"
ACCOUNT_EXPIRED: Final = b"Account Authentication Expired"
ACCOUNT_CONNECTIONS_EXCEEDED: Final = b"maximum account active connections exceeded"
CONNECTIONS_EXCEEDED: Final = b"maximum connections exceeded"
STALE_CONNECTION: Final = b"Stale Connection"
TLS_REQUIRED: Final = b"Secure Connection - TLS Required"
BAD_CLIENT_PROTOCOL: Final = b"invalid client protocol"
NO_RESPONDERS_WITHOUT_HEADERS: Final = b"no responders requires headers support"
CLIENT_ON_ROUTE_PORT: Final = b"attempted to connect to route port"

# After each of these it stays open.
INVALID_SUBJECT: Final = b"Invalid Subject"
INVALID_PUBLISH_SUBJECT: Final = b"Invalid Publish Subject"
# A real server closes a route on which it gets any error, so this is for what nats-server says, not for us to say.
INVALID_ROUTED_SUBJECT: Final = b"Invalid Subscription"
SUBSCRIPTIONS_EXCEEDED: Final = b"maximum subscriptions exceeded"


def publish_forbidden(subject: bytes) -> bytes:
    """A message that may not be published, by permission or because the subject is the server's own; stays open."""
    return b"Permissions Violation for Publish to " + quote(subject)


def not_stored(subject: bytes, reason: str) -> bytes:
    """A message that was handed on, but not stored as it should have been; `subject` may be unknown.

    Ours: nats-server stores nothing. It begins like what every client takes for the trouble of one message: at any other
    text they close the connection for good.
    """
    said = reason.encode().translate(_NO_QUOTES)
    return b"Permissions Violation for Publish" + (b" to " + quote(subject) if subject else b"") + b": not stored: " + said


def reply_forbidden(reply: bytes) -> bytes:
    """A message whose answers would go where only servers may send them; stays open."""
    return b"Permissions Violation for Publish with Reply of " + quote(reply)


def subscription_forbidden(subject: bytes, queue: bytes = b"") -> bytes:
    """A subscription that is not permitted, or whose queue group is the server's own; stays open."""
    text = b"Permissions Violation for Subscription to " + quote(subject)
    return text + b" using queue " + quote(queue) if queue else text


def subscription_revoked(subject: bytes, sid: bytes) -> bytes:
    """A subscription that is ended because it is not permitted any more; the connection stays open."""
    return b"Permissions Violation for Subscription to " + quote(subject) + b" (sid " + quote(sid) + b")"


def too_many_tokens(subject: bytes) -> bytes:
    """A subscription whose subject has more tokens than the server allows; stays open."""
    return subscription_forbidden(subject) + b", too many tokens"


def cluster_name_conflict(theirs: bytes, ours: bytes) -> bytes:
    """The two ends of a route belong to clusters of different names."""
    return b"Rejecting connection, cluster name %b does not match %b" % (quote(theirs), quote(ours))


def wrong_gateway(name: bytes) -> bytes:
    """A gateway has taken the route port for a gateway's."""
    return b"Rejecting connection from gateway %b on the Route port" % quote(name)


def no_route_for(account: bytes) -> bytes:
    """A route is to be for one account alone, and one of the servers does not do that."""
    return b"Not possible to have a dedicated route for account %b between those servers" % quote(account)


def unknown_account(account: bytes) -> bytes:
    """A route is to be for one account alone, which is not known here."""
    return b"Unable to lookup account %b: account missing" % quote(account)


def unsupported_compression(mode: bytes) -> bytes:
    """A route's INFO asks for a compression that does not exist."""
    return b"unsupported route compression mode " + quote(mode)
