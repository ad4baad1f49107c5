"""The words of every error that nsqlookupd 1.3.0 sends, byte for byte; after each of them it closes the connection.

The last three are ours: nsqlookupd takes lines and registrations without limit, and a negative size ends its process.
"""

from __future__ import annotations

from typing import Final

from polymq.protocols.nsqlookup.states import Command

__all__ = [
    "BAD_PROTOCOL",
    "BODY_UNREADABLE",
    "FIELDS_MISSING",
    "NOT_JSON",
    "SIZE_UNREADABLE",
    "cannot",
    "insufficient",
    "invalid_command",
    "limit_reached",
    "line_too_long",
    "wrong_channel",
    "wrong_size",
    "wrong_topic",
]

BAD_PROTOCOL: Final = b"E_BAD_PROTOCOL"
SIZE_UNREADABLE: Final = b"E_BAD_BODY IDENTIFY failed to read body size"
BODY_UNREADABLE: Final = b"E_BAD_BODY IDENTIFY failed to read body"
NOT_JSON: Final = b"E_BAD_BODY IDENTIFY failed to decode JSON body"
FIELDS_MISSING: Final = b"E_BAD_BODY IDENTIFY missing fields"


def invalid_command(name: bytes) -> bytes:
    """The first word of the line is no command."""
    return b"E_INVALID invalid command " + name


def cannot(command: Command) -> bytes:
    """The command exists, but not now: only IDENTIFY comes once, and the others come behind it."""
    return b"E_INVALID cannot IDENTIFY again" if command is Command.IDENTIFY else b"E_INVALID client must IDENTIFY"


def insufficient(command: Command) -> bytes:
    """The topic is missing."""
    return b"E_INVALID %b insufficient number of params" % command.value


def wrong_topic(command: Command, name: bytes) -> bytes:
    """The topic cannot be called that. The name is given back as it came."""
    return b"E_BAD_TOPIC %b topic name '%b' is not valid" % (command.value, name)


def wrong_channel(command: Command, name: bytes) -> bytes:
    """The channel cannot be called that."""
    return b"E_BAD_CHANNEL %b channel name '%b' is not valid" % (command.value, name)


def wrong_size(size: int, size_max: int) -> bytes:
    """IDENTIFY announces a body of fewer than no bytes, or of more than the limit."""
    if size < 0:
        return b"E_BAD_BODY IDENTIFY invalid body size %d" % size
    return b"E_BAD_BODY IDENTIFY body too big %d > %d" % (size, size_max)


def line_too_long(size_max: int) -> bytes:
    """No end of the line in sight."""
    return b"E_INVALID command line longer than %d bytes" % size_max


def limit_reached(command: Command, count_max: int) -> bytes:
    """The directory is full."""
    return b"E_INVALID %b limit of %d registrations reached" % (command.value, count_max)
