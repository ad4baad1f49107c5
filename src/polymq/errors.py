"""Every exception that polymq raises on purpose, as one tree.

    PolyMQError
    ├── ProtocolError                 abstract: never raised itself
    │   ├── LocalProtocolError        we tried to send something illegal
    │   │   └── Unsupported           the protocol has no such thing: what to do instead
    │   └── RemoteProtocolError       the peer did: reason, the reply it is owed, fatal or not
    ├── Refusal                       the broker says no: an expected answer, with a RefusalCode
    ├── StoreError
    │   ├── CorruptRecord             path, position, what was expected, what was found
    │   ├── StoreFull                 no room for another segment
    │   └── StoreFailed               a write or sync failed: the partition takes no more writes
    ├── TransportError                client side
    │   ├── ConnectFailed
    │   ├── ConnectionLost
    │   └── DeadlineExceeded
    └── ConfigError                   every problem of a configuration at once

Codecs do not raise in the middle of a batch: they return the events so far and end with a Violation. Any other
exception that leaves a codec is a bug of ours, and the fuzzers look for it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "CorruptRecord",
    "DeadlineExceeded",
    "LocalProtocolError",
    "PolyMQError",
    "ProtocolError",
    "Refusal",
    "RefusalCode",
    "RemoteProtocolError",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "TransportError",
    "Unsupported",
]


class PolyMQError(Exception):
    """Root of the tree: catch this to catch everything that polymq raises on purpose."""


class ProtocolError(PolyMQError):
    """Abstract: somebody broke a wire protocol. Raise one of the two subclasses."""

    def __init__(self, reason: str) -> None:
        if type(self) is ProtocolError:
            raise TypeError("ProtocolError is abstract: raise LocalProtocolError or RemoteProtocolError")
        super().__init__(reason)
        self.reason = reason


class LocalProtocolError(ProtocolError):
    """We were asked to send something that the protocol does not allow."""


class Unsupported(LocalProtocolError):
    """We were asked for something that the protocol does not have; says what to do instead. Nothing has been sent."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol does not allow.

    `reply` is the encoded answer that the peer is owed (may be empty); `fatal` says whether the connection ends.
    """

    def __init__(self, reason: str, *, reply: bytes = b"", fatal: bool = True) -> None:
        super().__init__(reason)
        self.reply = reply
        self.fatal = fatal


class RefusalCode(enum.Enum):
    """Why the broker refuses. Every gateway maps each of these to an answer (a test proves it)."""

    TOPIC_NAME_INVALID = "topic name invalid"
    GROUP_NAME_INVALID = "group name invalid"
    TOPIC_NOT_FOUND = "topic not found"
    GROUP_NOT_FOUND = "group not found"
    GROUP_FULL = "group has as many consumers as it may have"
    MESSAGE_NOT_FOUND = "message not found"
    MESSAGE_NOT_LEASED = "message not leased"
    MESSAGE_NOT_OWNED = "message leased to another consumer"
    DELAY_OUT_OF_RANGE = "delay out of range"
    BATCH_TOO_LARGE = "batch too large"
    OFFSET_OUT_OF_RANGE = "offset out of range"
    POLICY_INVALID = "policy not possible"
    TOPIC_FULL = "topic is full"
    LIMIT_REACHED = "limit reached"
    STORE_FULL = "no room left in the data folder"
    STORE_FAILED = "the partition cannot be written"
    UNAUTHENTICATED = "login required"
    LOGIN_EXPIRED = "login expired"
    FORBIDDEN = "not allowed"
    SHUTTING_DOWN = "shutting down"


class Refusal(PolyMQError):
    """The broker says no. An expected answer, not a fault: `code` for machines, `text` for people."""

    def __init__(self, code: RefusalCode, text: str = "") -> None:
        super().__init__(text or code.value)
        self.code = code
        self.text = text or code.value


class StoreError(PolyMQError):
    """Abstract: something is wrong with the data folder."""


class CorruptRecord(StoreError):
    """Stored bytes are not what was written. `position` is in bytes from the start of the file at `path`."""

    def __init__(self, path: str, *, position: int, expected: str, found: str) -> None:
        super().__init__(f"{path} at byte {position}: expected {expected}, found {found}")
        self.path = path
        self.position = position
        self.expected = expected
        self.found = found


class StoreFull(StoreError):
    """There is no room for another segment. Nothing that was acknowledged is affected."""


class StoreFailed(StoreError):
    """A write or a sync failed, or damage was found. Never retried: the partition takes no more writes."""


class TransportError(PolyMQError):
    """Abstract: a client could not talk to its server."""


class ConnectFailed(TransportError):
    """No connection could be made."""


class ConnectionLost(TransportError):
    """The connection ended while something was waiting for it."""


class DeadlineExceeded(TransportError):
    """The answer did not come in time."""


class ConfigError(PolyMQError):
    """The configuration is wrong; `problems` names everything that is, not only the first."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
