"""Control lines: which verbs there are for whom, and what the lines without a message say.

The decoder finds verbs and the ends of lines, and reads those that announce a message itself; the rest is interpreted
here, one line at a time, and needs to be right rather than fast.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from polymq.protocols.nats import problems
from polymq.protocols.nats.events import (
    Connect,
    Event,
    Info,
    PeerError,
    RemoteSubscribe,
    RemoteUnsubscribe,
    SilentClose,
    Subscribe,
    Unsubscribe,
    Violation,
)
from polymq.protocols.nats.info import parse_info
from polymq.protocols.nats.problems import CloseReason
from polymq.protocols.nats.settings import SIZE_DIGITS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CONNECT_MISSING",
    "LINE_TOO_LONG",
    "MISREAD",
    "PAYLOAD_TOO_LARGE",
    "UNKNOWN_OPERATION",
    "PeerKind",
    "Verb",
    "readers_of",
    "verbs_of",
]


class PeerKind(enum.Enum):
    """Who is at the other end: verbs and limits differ."""

    CLIENT = enum.auto()
    ROUTE = enum.auto()


class Verb(enum.IntEnum):
    """The first word of a control line. Case does not matter."""

    PUB = 1
    HPUB = 2
    RMSG = 3
    HMSG = 4
    LMSG = 5
    PING = 6
    PONG = 7
    OK = 8
    CONNECT = 9
    INFO = 10
    ERR = 11
    SUB = 12
    UNSUB = 13
    REMOTE_SUB = 14
    REMOTE_UNSUB = 15
    LEAF_SUB = 16
    LEAF_UNSUB = 17
    ACCOUNT_SUB = 18  # between gateways of superclusters; ignored
    ACCOUNT_UNSUB = 19


_FOR_ALL: Final = {
    b"PUB": Verb.PUB,
    b"HPUB": Verb.HPUB,
    b"PING": Verb.PING,
    b"PONG": Verb.PONG,
    b"+OK": Verb.OK,
    b"CONNECT": Verb.CONNECT,
    b"INFO": Verb.INFO,
    b"-ERR": Verb.ERR,
    b"SUB": Verb.SUB,
    b"UNSUB": Verb.UNSUB,
}
_FOR_ROUTES: Final = {
    **_FOR_ALL,
    b"RMSG": Verb.RMSG,
    b"HMSG": Verb.HMSG,
    b"LMSG": Verb.LMSG,
    b"RS+": Verb.REMOTE_SUB,
    b"RS-": Verb.REMOTE_UNSUB,
    b"LS+": Verb.LEAF_SUB,
    b"LS-": Verb.LEAF_UNSUB,
    b"A+": Verb.ACCOUNT_SUB,
    b"A-": Verb.ACCOUNT_UNSUB,
}

# What ends a connection, always in the same words.
MISREAD: Final = SilentClose(CloseReason.PROTOCOL_VIOLATION)
UNKNOWN_OPERATION: Final = Violation(problems.UNKNOWN_OPERATION, CloseReason.PROTOCOL_VIOLATION)
LINE_TOO_LONG: Final = Violation(problems.LINE_TOO_LONG, CloseReason.LINE_TOO_LONG)
PAYLOAD_TOO_LARGE: Final = Violation(problems.PAYLOAD_TOO_LARGE, CloseReason.PAYLOAD_TOO_LARGE)
CONNECT_MISSING: Final = Violation(problems.AUTH_VIOLATION, CloseReason.AUTH_VIOLATION)


def _with_beginnings(verbs: Mapping[bytes, Verb]) -> Mapping[bytes, Verb | None]:
    """Add all beginnings of the verbs, which are None: more is needed."""
    beginnings = {name[:size]: None for name in verbs for size in range(1, len(name))}
    assert not beginnings.keys() & verbs.keys()
    return {**beginnings, **verbs}


_VERBS: Final = {PeerKind.CLIENT: _with_beginnings(_FOR_ALL), PeerKind.ROUTE: _with_beginnings(_FOR_ROUTES)}


def verbs_of(kind: PeerKind) -> Mapping[bytes, Verb | None]:
    """List the verbs that a peer may use, in upper case, and their beginnings: what is not in it is wrong at its last byte."""
    return _VERBS[kind]


# Reads what stands behind a verb, up to the line's end; None if it means nothing. The flag says that the account is
# that of the whole route, and left out.
Reader = Callable[[bytes, bool], "Event | None"]


def readers_of(kind: PeerKind) -> tuple[Reader, ...]:
    """List how the lines of a peer are read, by verb.

    A wrong number of words ends the connection without a word, as in nats-server. A carriage return within the line
    does too: what nats-server makes of it depends on how the bytes come in.
    """
    return _READERS[kind]


def _words(text: bytes, leave_out: int = -1) -> list[bytes]:
    """Take a line apart at its blanks; an account that is left out gets an empty word, in the place that is given."""
    if b"\r" in text:
        return []  # which is wrong for every verb
    words = text.replace(b"\t", b" ").split(b" ")
    if b"" in words:
        words = [word for word in words if word]
    if leave_out >= 0:
        words.insert(leave_out, b"")
    return words


def _number(word: bytes) -> int:
    """Read a count; 0 for what is none, which nats-server takes for less than 1."""
    return int(word) if len(word) <= SIZE_DIGITS_MAX and word.isdigit() else 0


def _connect(text: bytes, _: bool) -> Event | None:
    return Connect(text)


def _info(text: bytes, _: bool) -> Event | None:
    return Info(text)


def _info_of_client(text: bytes, _: bool) -> Event | None:
    """It means nothing, but has to be well."""
    return MISREAD if parse_info(text) is None else None


def _error(text: bytes, _: bool) -> Event | None:
    return PeerError(text)


def _subscribe(text: bytes, _: bool) -> Event | None:
    """SUB subject [queue] sid."""
    words = _words(text)
    if len(words) == 2:
        return Subscribe(words[0], words[1])
    return Subscribe(words[0], words[2], words[1]) if len(words) == 3 else MISREAD


def _unsubscribe(text: bytes, _: bool) -> Event | None:
    """UNSUB sid [max]."""
    words = _words(text)
    if len(words) == 1:
        return Unsubscribe(words[0])
    return Unsubscribe(words[0], _number(words[1])) if len(words) == 2 else MISREAD


def _remote_subscribe(text: bytes, account_omitted: bool) -> Event | None:
    """RS+ account subject [queue weight]."""
    return _remote(_words(text, 0 if account_omitted else -1))


def _leaf_subscribe(text: bytes, account_omitted: bool) -> Event | None:
    """LS+ origin account subject [queue weight]: the origin is a cluster of leaf nodes, all the same to us."""
    return _remote(_words(text, 1 if account_omitted else -1)[1:])


def _remote(words: list[bytes]) -> Event:
    if len(words) == 2:
        return RemoteSubscribe(words[0], words[1])
    return RemoteSubscribe(words[0], words[1], words[2], _number(words[3])) if len(words) == 4 else MISREAD


def _remote_unsubscribe(text: bytes, account_omitted: bool) -> Event | None:
    """RS- account subject [queue]; LS- the same, since it names its origin only to who has asked for that (lnocu)."""
    words = _words(text, 0 if account_omitted else -1)
    if len(words) == 2:
        return RemoteUnsubscribe(words[0], words[1])
    return RemoteUnsubscribe(words[0], words[1], words[2]) if len(words) == 3 else MISREAD


def _ignore(text: bytes, _: bool) -> Event | None:
    return MISREAD if b"\r" in text else None


def _by_verb(readers: Mapping[Verb, Reader]) -> tuple[Reader, ...]:
    """Put readers in a row: looking up members of an Enum takes longer than most lines do."""
    return tuple(readers.get(Verb(number), _ignore) if number else _ignore for number in range(max(Verb) + 1))


_FROM_CLIENTS: Final[Mapping[Verb, Reader]] = {
    Verb.CONNECT: _connect,
    Verb.INFO: _info_of_client,
    Verb.ERR: _error,
    Verb.SUB: _subscribe,
    Verb.UNSUB: _unsubscribe,
}
# nats-server ignores SUB on a route whatever it says, and takes UNSUB for RS-.
_FROM_SERVERS: Final[Mapping[Verb, Reader]] = {
    Verb.CONNECT: _connect,
    Verb.INFO: _info,
    Verb.ERR: _error,
    Verb.SUB: _ignore,
    Verb.UNSUB: _remote_unsubscribe,
    Verb.REMOTE_SUB: _remote_subscribe,
    Verb.REMOTE_UNSUB: _remote_unsubscribe,
    Verb.LEAF_SUB: _leaf_subscribe,
    Verb.LEAF_UNSUB: _remote_unsubscribe,
    Verb.ACCOUNT_SUB: _ignore,
    Verb.ACCOUNT_UNSUB: _ignore,
}
_READERS: Final = {PeerKind.CLIENT: _by_verb(_FROM_CLIENTS), PeerKind.ROUTE: _by_verb(_FROM_SERVERS)}
