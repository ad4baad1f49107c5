"""What a single command line says, once its end has been found: pure functions from words to events.

`interpret` keeps nsqd's order of checks, which decides what error a client sees: TLS, then the command's existence,
then the state, then (SUB) heartbeats, then the words one by one. The decoder has its own shortcuts for runs of PUB,
MPUB and FIN lines that equal one another; they accept nothing that this file would not.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from polymq.protocols.nsq import problems
from polymq.protocols.nsq.events import Cls, Event, Finish, ForeignId, Nop, Ready, Requeue, Subscribe, Touch, Violation
from polymq.protocols.nsq.names import is_valid_name
from polymq.protocols.nsq.states import TRANSITIONS, Command, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polymq.protocols.nsq.settings import NsqSettings

__all__ = ["MESSAGE_ID_SIZE_BYTES", "BodyAhead", "Situation", "interpret", "parse_id", "situation_of"]

MESSAGE_ID_SIZE_BYTES: Final = 16

# 63 bits: the first digit of an id that this server minted is below 8.
_MINTED_ID: Final = re.compile(rb"[0-7][0-9a-f]{15}")
_DIGITS: Final = re.compile(rb"[0-9]*")
_COMMANDS: Final[Mapping[bytes, Command]] = {command.value: command for command in Command}
# Python converts at most 4300 digits in one go and a line may have 16,000.
_DIGITS_AT_ONCE: Final = 4000
_MASK_64: Final = (1 << 64) - 1
_NS_PER_MS: Final = 1_000_000
_WORDS_OF_REQ: Final = 3
_WORDS_OF_SUB: Final = 3
_WORDS_OF_DPUB: Final = 3


# Lines whose meaning is remembered, for all connections together: a publisher that goes round its topics sends as many.
_REMEMBERED_LINES: Final = 4096
_REMEMBERED_SIZE_BYTES_MAX: Final = 160
# What is sent again and again as it is; lines with a message id are not.
_REMEMBERED_WORDS: Final = (b"PUB ", b"MPUB ", b"DPUB ", b"RDY ")
# A server has one set of settings, and few situations that a connection can be in with them.
_SITUATIONS_KEPT: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """What decides, besides its words, whether a command is legal. Made by `situation_of`; each is equal to itself only."""

    state: State
    heartbeats: bool
    tls_missing: bool
    settings: NsqSettings


@dataclass(frozen=True, slots=True)
class BodyAhead:
    """The line is well and a body follows it."""

    command: Command
    topic: bytes = b""
    delay_ms: int = 0


Outcome = Event | BodyAhead


def parse_id(raw_id: bytes) -> int:
    """Read 16 lower-case hex digits as a message id; -1 if this server cannot have minted it."""
    return int(raw_id, 16) if _MINTED_ID.fullmatch(raw_id) else -1


@lru_cache(maxsize=_SITUATIONS_KEPT)
def situation_of(state: State, *, heartbeats: bool, tls_missing: bool, settings: NsqSettings) -> Situation:
    """Give the situation of all connections that these hold for."""
    return Situation(state, heartbeats, tls_missing, settings)


def interpret(line: bytes, situation: Situation) -> tuple[Outcome, State]:
    """Say what one command line (without its line end) means and in which state it leaves the connection.

    Words are separated by single spaces, so a double space makes an empty word; words too many are ignored.
    Cost: what publishes and RDYs mean is remembered, so it costs a tenth to be asked again.
    """
    if len(line) <= _REMEMBERED_SIZE_BYTES_MAX and line.startswith(_REMEMBERED_WORDS):
        return _remembered(line, situation)
    return _interpret(line, situation)


def _interpret(line: bytes, situation: Situation) -> tuple[Outcome, State]:
    words = line.split(b" ")
    command = _COMMANDS.get(words[0])
    if situation.tls_missing and command is not Command.IDENTIFY:
        return Violation(problems.tls_required(words[0])), situation.state
    if command is None:
        return Violation(problems.invalid_command(words[0])), situation.state
    state = TRANSITIONS[situation.state].get(command)
    if state is None:
        return Violation(problems.cannot_in_state(command)), situation.state
    return _INTERPRETERS[command](command, words, situation), state


def _number(word: bytes) -> int:
    """Read digits as nsqd does: nothing is 0, more than 64 bits wrap around, anything else is -1."""
    if not _DIGITS.fullmatch(word):
        return -1
    number = 0
    for at in range(0, len(word), _DIGITS_AT_ONCE):
        digits = word[at : at + _DIGITS_AT_ONCE]
        number = (number * 10 ** len(digits) + int(digits)) & _MASK_64
    return number


def _signed(number: int) -> int:
    """Keep the low 64 bits of a number and read them as a signed integer, as Go converts."""
    return ((number + (1 << 63)) & _MASK_64) - (1 << 63)


def _duration_ns(milliseconds: int) -> int:
    return _signed(milliseconds * _NS_PER_MS)


def _identify(command: Command, _words: Sequence[bytes], _situation: Situation) -> Outcome:
    return BodyAhead(command)


def _auth(command: Command, words: Sequence[bytes], _situation: Situation) -> Outcome:
    return BodyAhead(command) if len(words) == 1 else Violation(problems.AUTH_PARAMETERS)


def _subscribe(command: Command, words: Sequence[bytes], situation: Situation) -> Outcome:
    if not situation.heartbeats:
        return Violation(problems.HEARTBEATS_DISABLED)
    if len(words) < _WORDS_OF_SUB:
        return Violation(problems.insufficient(command))
    if not is_valid_name(words[1]):
        return Violation(problems.wrong_topic(command, words[1]))
    if not is_valid_name(words[2]):
        return Violation(problems.wrong_channel(words[2]))
    return Subscribe(words[1], words[2])


def _ready(command: Command, words: Sequence[bytes], situation: Situation) -> Outcome:
    if situation.state is State.CLOSING:
        return Nop()
    number = _number(words[1]) if len(words) > 1 else 1
    if number < 0:
        return Violation(problems.unparsable(command, b"count", words[1]))
    count = _signed(number)
    count_max = situation.settings.ready_count_max
    if not 0 <= count <= count_max:
        return Violation(problems.ready_out_of_range(count, count_max))
    return Ready(count)


def _finish(command: Command, words: Sequence[bytes], _situation: Situation) -> Outcome:
    problem = _problem_of_id(command, words)
    if problem is not None:
        return Violation(problem)
    message_id = parse_id(words[1])
    if message_id < 0:
        return ForeignId(command, words[1])
    return Finish(memoryview(array("q", [message_id])), first=0, count=1)


def _touch(command: Command, words: Sequence[bytes], _situation: Situation) -> Outcome:
    problem = _problem_of_id(command, words)
    if problem is not None:
        return Violation(problem)
    message_id = parse_id(words[1])
    return ForeignId(command, words[1]) if message_id < 0 else Touch(message_id)


def _requeue(command: Command, words: Sequence[bytes], situation: Situation) -> Outcome:
    problem = _problem_of_id(command, words, count_min=_WORDS_OF_REQ)
    if problem is not None:
        return Violation(problem)
    number = _number(words[2])
    if number < 0:
        return Violation(problems.unparsable(command, b"timeout", words[2]))
    delay_ns = min(max(0, _duration_ns(number)), situation.settings.requeue_delay_ms_max * _NS_PER_MS)
    message_id = parse_id(words[1])
    return ForeignId(command, words[1]) if message_id < 0 else Requeue(message_id, delay_ns // _NS_PER_MS)


def _problem_of_id(command: Command, words: Sequence[bytes], count_min: int = 2) -> bytes | None:
    if len(words) < count_min:
        return problems.insufficient(command, b"params")
    return None if len(words[1]) == MESSAGE_ID_SIZE_BYTES else problems.BAD_MESSAGE_ID


def _cls(_command: Command, _words: Sequence[bytes], _situation: Situation) -> Outcome:
    return Cls()


def _nop(_command: Command, _words: Sequence[bytes], _situation: Situation) -> Outcome:
    return Nop()


def _publish(command: Command, words: Sequence[bytes], situation: Situation) -> Outcome:
    if len(words) < (_WORDS_OF_DPUB if command is Command.DPUB else 2):
        return Violation(problems.insufficient(command))
    if not is_valid_name(words[1]):
        return Violation(problems.wrong_topic(command, words[1]))
    if command is not Command.DPUB:
        return BodyAhead(command, words[1])
    number = _number(words[2])
    if number < 0:
        return Violation(problems.unparsable(command, b"timeout", words[2]))
    delay_ms_max = situation.settings.requeue_delay_ms_max
    delay_ns = _duration_ns(number)
    if not 0 <= delay_ns <= delay_ms_max * _NS_PER_MS:
        return Violation(problems.delay_out_of_range(number, delay_ms_max))
    return BodyAhead(command, words[1], delay_ns // _NS_PER_MS)


_INTERPRETERS: Final[Mapping[Command, Callable[[Command, Sequence[bytes], Situation], Outcome]]] = {
    Command.IDENTIFY: _identify,
    Command.AUTH: _auth,
    Command.SUB: _subscribe,
    Command.RDY: _ready,
    Command.FIN: _finish,
    Command.REQ: _requeue,
    Command.TOUCH: _touch,
    Command.CLS: _cls,
    Command.NOP: _nop,
    Command.PUB: _publish,
    Command.MPUB: _publish,
    Command.DPUB: _publish,
}


_remembered = lru_cache(maxsize=_REMEMBERED_LINES)(_interpret)
