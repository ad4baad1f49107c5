"""The words of every error that nsqd 1.3.0 sends, byte for byte, because clients and their tests compare them.

Each function returns the text of one error frame. After each the connection is closed, except for what `failed`
makes: E_FIN_FAILED, E_REQ_FAILED and E_TOUCH_FAILED.
"""

from __future__ import annotations

from typing import Final

from polymq.protocols.nsq.states import Command
from polymq.wire.go_quote import quote

__all__ = [
    "AUTH_DISABLED",
    "AUTH_EMPTY",
    "AUTH_FAILED",
    "AUTH_PARAMETERS",
    "AUTH_SET",
    "BAD_MESSAGE_ID",
    "BAD_PROTOCOL",
    "COMPRESSION_CONFLICT",
    "HEARTBEATS_DISABLED",
    "auth_first",
    "cannot_in_state",
    "channel_full",
    "delay_out_of_range",
    "failed",
    "identify_failed",
    "insufficient",
    "invalid_command",
    "invalid_count",
    "not_in_flight",
    "not_owned",
    "publish_failed",
    "ready_out_of_range",
    "tls_required",
    "too_big",
    "unauthorized",
    "unparsable",
    "unreadable",
    "unreadable_count",
    "unreadable_message",
    "unreadable_message_size",
    "upgrade_failed",
    "wrong_channel",
    "wrong_message_size",
    "wrong_size",
    "wrong_topic",
]

BAD_PROTOCOL: Final = b"E_BAD_PROTOCOL"
BAD_MESSAGE_ID: Final = b"E_INVALID invalid message ID"
HEARTBEATS_DISABLED: Final = b"E_INVALID cannot SUB with heartbeats disabled"
AUTH_PARAMETERS: Final = b"E_INVALID AUTH invalid number of parameters"
AUTH_DISABLED: Final = b"E_AUTH_DISABLED AUTH disabled"
AUTH_EMPTY: Final = b"E_UNAUTHORIZED AUTH no authorizations found"
AUTH_SET: Final = b"E_INVALID AUTH already set"
AUTH_FAILED: Final = b"E_AUTH_FAILED AUTH failed"
COMPRESSION_CONFLICT: Final = b"E_IDENTIFY_FAILED cannot enable both deflate and snappy compression"

_MESSAGE_COMMANDS: Final = frozenset({Command.PUB, Command.DPUB})  # their body is one message


def invalid_command(name: bytes) -> bytes:
    """The first word of the line is no command."""
    return b"E_INVALID invalid command " + name


def cannot_in_state(command: Command) -> bytes:
    """The command exists, but not now."""
    return b"E_INVALID cannot %b in current state" % command.value


def tls_required(name: bytes) -> bytes:
    """Only IDENTIFY may come before TLS when the server insists on it; this comes before any other check."""
    return b"E_INVALID cannot %b in current state (TLS required)" % name


def insufficient(command: Command, noun: bytes = b"parameters") -> bytes:
    """Words are missing on the line. nsqd says "params" for FIN, REQ and TOUCH."""
    return b"E_INVALID %b insufficient number of %b" % (command.value, noun)


def wrong_topic(command: Command, name: bytes) -> bytes:
    """The topic cannot be called that. nsqd writes the code twice for MPUB."""
    doubled = b"E_BAD_TOPIC " if command is Command.MPUB else b""
    return b"E_BAD_TOPIC %b%b topic name %b is not valid" % (doubled, command.value, quote(name))


def wrong_channel(name: bytes) -> bytes:
    """The channel cannot be called that."""
    return b"E_BAD_CHANNEL SUB channel name %b is not valid" % quote(name)


def unparsable(command: Command, noun: bytes, value: bytes) -> bytes:
    """A number has something else in it than digits; a sign is something else."""
    return b"E_INVALID %b could not parse %b %b" % (command.value, noun, value)


def ready_out_of_range(count: int, count_max: int) -> bytes:
    """RDY asks for more than the server allows."""
    return b"E_INVALID RDY count %d out of range 0-%d" % (count, count_max)


def delay_out_of_range(delay_ms: int, delay_ms_max: int) -> bytes:
    """DPUB wants to wait longer than the server allows; for REQ the delay is brought into range instead."""
    return b"E_INVALID DPUB timeout %d out of range 0-%d" % (delay_ms, delay_ms_max)


def _code_of_body(command: Command) -> bytes:
    return b"E_BAD_MESSAGE" if command in _MESSAGE_COMMANDS else b"E_BAD_BODY"


def _body_of(command: Command) -> bytes:
    return b"message body" if command in _MESSAGE_COMMANDS else b"body"


def unreadable(command: Command, what: bytes = b"") -> bytes:
    """The stream ends before the body of PUB, DPUB, IDENTIFY or AUTH; `what` is " size" if before its size."""
    return b"%b %b failed to read %b%b" % (_code_of_body(command), command.value, _body_of(command), what)


def wrong_size(command: Command, size: int, size_max: int) -> bytes:
    """A body, or a single message, has no bytes, fewer than that, or more than the limit."""
    if size <= 0:
        return b"%b %b invalid %b size %d" % (_code_of_body(command), command.value, _body_of(command), size)
    if command in _MESSAGE_COMMANDS:
        return too_big(command, size, size_max)
    return b"E_BAD_BODY %b body too big %d > %d" % (command.value, size, size_max)


def unreadable_count() -> bytes:
    """The stream ends before an MPUB says how many messages it has."""
    return b"E_BAD_BODY MPUB failed to read message count"


def invalid_count(count: int) -> bytes:
    """An MPUB has no messages, or more than a body of the largest size can hold."""
    return b"E_BAD_BODY MPUB invalid message count %d" % count


def unreadable_message_size(index: int) -> bytes:
    """The stream ends before the size of message `index` of an MPUB."""
    return b"E_BAD_MESSAGE MPUB failed to read message(%d) body size" % index


def unreadable_message() -> bytes:
    """The stream ends within a message of an MPUB; nsqd does not say which."""
    return b"E_BAD_MESSAGE MPUB failed to read message body"


def wrong_message_size(index: int, size: int, size_max: int) -> bytes:
    """Message `index` of an MPUB has no bytes, fewer than that, or more than the limit."""
    if size <= 0:
        return b"E_BAD_MESSAGE MPUB invalid message(%d) body size %d" % (index, size)
    return too_big(Command.MPUB, size, size_max)


def too_big(command: Command, size: int, size_max: int) -> bytes:
    """A single message is over the limit for messages."""
    return b"E_BAD_MESSAGE %b message too big %d > %d" % (command.value, size, size_max)


def failed(command: Command, raw_id: bytes, reason: bytes) -> bytes:
    """FIN, REQ or TOUCH had no effect. One of the three errors that leave the connection open."""
    return b"E_%b_FAILED %b %b failed %b" % (command.value, command.value, raw_id, reason)


def not_in_flight(command: Command, raw_id: bytes) -> bytes:
    """The message is unknown, already settled, or timed out. Leaves the connection open."""
    return failed(command, raw_id, b"ID not in flight")


def not_owned(command: Command, raw_id: bytes) -> bytes:
    """The message is in flight to somebody else. Leaves the connection open."""
    return failed(command, raw_id, b"client does not own message")


def publish_failed(command: Command, reason: bytes) -> bytes:
    """The message could not be stored, or the server is going down (reason "exiting")."""
    return b"E_%b_FAILED %b failed %b" % (command.value, command.value, reason)


def channel_full(topic: bytes, channel: bytes, count_max: int) -> bytes:
    """The channel has as many consumers as it may have."""
    return b"E_SUB_FAILED SUB failed consumers for %b:%b exceeds limit of %d" % (topic, channel, count_max)


def identify_failed(reason: bytes) -> bytes:
    """IDENTIFY's body is wrong: not JSON of the right types, or a value out of its range."""
    return b"E_BAD_BODY IDENTIFY " + reason


def upgrade_failed(reason: str) -> bytes:
    """A byte layer that was agreed on could not be put in place."""
    return b"E_IDENTIFY_FAILED IDENTIFY failed " + reason.encode()


def auth_first(command: Command) -> bytes:
    """The server wants to know who is there before it does that."""
    return b"E_AUTH_FIRST AUTH required before %b" % command.value


def unauthorized(command: Command, topic: bytes, channel: bytes) -> bytes:
    """Whoever is there may not do that; the channel is empty for a publish."""
    return b"E_UNAUTHORIZED AUTH failed for %b on %b %b" % (command.value, quote(topic), quote(channel))
