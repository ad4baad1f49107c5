"""What a node sends, from bytes to events: the directory's side.

The decoder owns the connection's state and checks in nsqlookupd's order, which decides what error a node sees. It
takes the success of IDENTIFY for granted: should the directory be full, the connection ends anyway.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from polymq.limits import LOOKUP_COMMANDS_PER_TURN_MAX, LOOKUP_IDENTIFY_SIZE_BYTES_MAX, LOOKUP_LINE_SIZE_BYTES_MAX
from polymq.protocols.nsq.names import is_valid_name
from polymq.protocols.nsqlookup import problems
from polymq.protocols.nsqlookup.events import Identify, Ping, Register, Unregister, Violation
from polymq.protocols.nsqlookup.identify import parse_identity
from polymq.protocols.nsqlookup.settings import MAGIC
from polymq.protocols.nsqlookup.states import TRANSITIONS, Command, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.protocols.nsqlookup.events import Event

__all__ = ["Decoder"]

_LINE_END: Final = re.compile(rb"\n")
_COMMANDS: Final[Mapping[bytes, Command]] = {command.value: command for command in Command}
_SIZE_SIZE_BYTES: Final = 4
# White space as Go's strings.TrimSpace knows it.
_SPACES: Final = (
    "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


class Decoder:
    """One connection's input. `need` is how many bytes must be there before `feed` can do more than it did.

    Limits: `limits.LOOKUP_LINE_SIZE_BYTES_MAX` for a line, `limits.LOOKUP_IDENTIFY_SIZE_BYTES_MAX` for the body.
    """

    def __init__(self) -> None:
        self.need = len(MAGIC)
        self.state = State.INIT
        self._greeted = False
        self._in_body = False
        self._ended = False
        self._searched = 0

    def feed(self, view: memoryview) -> tuple[list[Event], int]:
        """Decode whole commands; give the events and how many bytes they were. A Violation is the last event.

        `LOOKUP_COMMANDS_PER_TURN_MAX` events are the most: then `need` is 0, and the rest may be fed at once.
        """
        events: list[Event] = []
        at = 0
        while not self._ended:
            if len(events) == LOOKUP_COMMANDS_PER_TURN_MAX:
                self.need = 0
                return events, at
            event, size = self._next(view, at)
            if event is None and not size:
                return events, at
            at += size
            if event is not None:
                events.append(event)
                self._ended = isinstance(event, Violation)
        self.need = 1
        return events, len(view)

    def eof(self) -> list[Event]:
        """Say what the end of the input breaks off: within the body of IDENTIFY there is somebody to be told."""
        if self._ended or not self._in_body:
            return []
        self._ended = True
        # More than a size was waited for: the size was there.
        return [Violation(problems.BODY_UNREADABLE if self.need > _SIZE_SIZE_BYTES else problems.SIZE_UNREADABLE)]

    def _next(self, view: memoryview, at: int) -> tuple[Event | None, int]:
        """Take one step: an event and the bytes that it took; no bytes if there are not enough."""
        if not self._greeted:
            return self._magic(view, at)
        return self._body(view, at) if self._in_body else self._line(view, at)

    def _magic(self, view: memoryview, at: int) -> tuple[Event | None, int]:
        if len(view) - at < len(MAGIC):
            return None, 0
        self._greeted = True
        wrong = bytes(view[at : at + len(MAGIC)]) != MAGIC
        return Violation(problems.BAD_PROTOCOL) if wrong else None, len(MAGIC)

    def _line(self, view: memoryview, at: int) -> tuple[Event | None, int]:
        left = len(view) - at
        found = _LINE_END.search(view, at + self._searched)
        size = left if found is None else found.end() - at
        if size > LOOKUP_LINE_SIZE_BYTES_MAX:
            return Violation(problems.line_too_long(LOOKUP_LINE_SIZE_BYTES_MAX)), size
        if found is None:
            self._searched = left
            self.need = left + 1
            return None, 0
        self._searched = 0
        return self._command(_trimmed(bytes(view[at : at + size])).split(b" ")), size

    def _command(self, words: list[bytes]) -> Event | None:
        command = _COMMANDS.get(words[0])
        if command is None:
            return Violation(problems.invalid_command(words[0]))
        following = TRANSITIONS[self.state].get(command)
        if following is None:
            return Violation(problems.cannot(command))
        if command is Command.IDENTIFY:
            self._in_body = True  # the words behind it mean nothing
            return None
        self.state = following
        return Ping() if command is Command.PING else _registration(command, words)

    def _body(self, view: memoryview, at: int) -> tuple[Event | None, int]:
        left = len(view) - at
        if left < _SIZE_SIZE_BYTES:
            self.need = _SIZE_SIZE_BYTES
            return None, 0
        size = int.from_bytes(view[at : at + _SIZE_SIZE_BYTES], "big", signed=True)
        end = _SIZE_SIZE_BYTES + size
        if not 0 <= size <= LOOKUP_IDENTIFY_SIZE_BYTES_MAX:
            return Violation(problems.wrong_size(size, LOOKUP_IDENTIFY_SIZE_BYTES_MAX)), left
        if left < end:
            self.need = end
            return None, 0
        self._in_body = False
        self.state = TRANSITIONS[self.state][Command.IDENTIFY]
        identity = parse_identity(bytes(view[at + _SIZE_SIZE_BYTES : at + end]))
        return Violation(identity) if isinstance(identity, bytes) else Identify(identity), end


def _trimmed(line: bytes) -> bytes:
    if line.isascii():
        return line.strip(b"\t\n\v\f\r ")
    return line.decode("utf-8", "surrogateescape").strip(_SPACES).encode("utf-8", "surrogateescape")


def _registration(command: Command, words: list[bytes]) -> Event:
    """Check the names of REGISTER and UNREGISTER. An empty channel is none."""
    if len(words) == 1:
        return Violation(problems.insufficient(command))
    topic = words[1]
    channel = words[2] if len(words) > 2 else b""
    if not is_valid_name(topic):
        return Violation(problems.wrong_topic(command, topic))
    if channel and not is_valid_name(channel):
        return Violation(problems.wrong_channel(command, channel))
    kind = Register if command is Command.REGISTER else Unregister
    return kind(topic.decode("ascii"), channel.decode("ascii"))
