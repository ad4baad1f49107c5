r"""The words of nats-server's configuration language: keys, bare words, quoted texts, block texts, comments.

    key: value      key = value      key value        '…' as it is      "…" with \n, \t, \r, \", \\, \xHH
    # comment       // comment       $variable        ( line              a text of several lines,
                                                      )                   up to a ) alone on its line

A bare word ends at a blank, a comma, a semicolon, ] or }. What it is follows from how it looks: true, yes, on (and
their opposites) in any case; whole numbers, with a suffix that multiplies (k is 1000, kb, ki and kib are 1024; m, g, t,
p, e); numbers with a fraction; times as in 2024-02-29T12:00:00Z; anything else is text. Blocks and lists are `conf.py`'s.

Source: observed on nats-server 2.9.10 (`-t`); conf/lex.go of 2.9.10 and 2.15.2. Two things are wider here: numbers that
a ] follows, and words that begin like a number or a date and are none ("10.0.0.1/8"), which 2.9.10 cannot read. Two are
narrower: a ' within a bare word, which nats-server drops, and a value of nothing at all, which it takes for "".
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError
from polymq.protocols.nats.conf_tree import Place

if TYPE_CHECKING:
    from polymq.protocols.nats.conf_tree import Plain

__all__ = ["Scanner", "Word"]

_SPACE: Final = re.compile(r"[ \t]*+")
_WHITESPACE: Final = re.compile(r"\s*+")
_BLANK: Final = re.compile(r"(?:\s++|#[^\r\n]*+|//[^\r\n]*+)*+")
_COMMENT: Final = re.compile(r"(?:#|//)[^\r\n]*+")
# Where a value is expected, # and // belong to it ("#secret"), unless a blank shows what was meant.
_REMARK: Final = re.compile(r"(?:#|//)\s")
_KEY: Final = re.compile(r"[^\s:={}\[\],;]++")
_FILE: Final = re.compile(r"[^\s;,(){}\[\]'\"=:\\$#-][^\s;}'\"]*+")
_BARE: Final = re.compile(r"[^\n\r\t ;,\]}'\\]*+(?:\\.[^\n\r\t ;,\]}'\\]*+)*+")
_QUOTED: Final = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_BLOCK_END: Final = re.compile(r"\n\)(?=\r?\n|\Z)")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_ESCAPED: Final = {"t": b"\t", "n": b"\n", "r": b"\r", '"': b'"', "\\": b"\\"}
_BOOLEANS: Final = dict.fromkeys(("true", "yes", "on"), True) | dict.fromkeys(("false", "no", "off"), False)
_INTEGER: Final = re.compile(r"(-?)([0-9]++)([kmgtpe](?:i?b|i)?)?", re.IGNORECASE)
_FLOAT: Final = re.compile(r"-?[0-9]++\.[0-9]++")
_TIME: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z", re.ASCII)
_GLUED: Final = re.compile(r"(?:-?[0-9]+\.[0-9]+|[-0-9]{10}T[0-9:]{8}Z)(?:#|//)")
_POWERS: Final = {letter: power for power, letter in enumerate("kmgtpe", 1)}
# More digits are no number of 64 bits, whatever they are; Python refuses to read very many.
_DIGITS_MAX: Final = 19
_INTEGER_MAX: Final = (1 << 63) - 1
# nats-server knows the first of these only; a variable cannot be meant in any case.
_BCRYPT: Final = re.compile(r"\$2[abxy]\$")
_QUOTE_IT: Final = "a text with blanks or any of , ; ] } ' in it goes in double quotes"


@dataclass(frozen=True, slots=True, repr=False)
class Word:
    """A value that is not made of others. `variable`: the text is the name of one."""

    data: Plain
    spelling: str = ""
    variable: bool = False


class Scanner:
    """Goes through one text from word to word. Raises ConfigError with the place and what was expected there."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self.position = 0

    def place(self, position: int | None = None) -> Place:
        """Say where a position is, or the present one."""
        at = self.position if position is None else position
        return Place(self._file, bisect_left(self._newlines, at) + 1)

    def fault(self, what: str, position: int | None = None) -> ConfigError:
        """Make the error for what is wrong at a position."""
        return ConfigError([f"{self.place(position)}: {what}"])

    @property
    def next(self) -> str:
        """The next character; "" at the end."""
        return self._text[self.position : self.position + 1]

    def skip_space(self) -> None:
        """Step over blanks and tabs."""
        self._match(_SPACE)

    def skip_blank(self) -> None:
        """Step over blanks, ends of lines and comments."""
        self._match(_BLANK)

    def take(self, character: str) -> bool:
        """Step over the character if it is the next one."""
        found = self._text.startswith(character, self.position)
        self.position += len(character) * found
        return found

    def key(self) -> tuple[str, bool]:
        """Read a key; also says whether it is the word that includes a file."""
        start = self.position
        for quote in "\"'":
            if self.take(quote):
                key = self._closed_by(quote, "key")
                if not key:
                    raise self.fault("a key cannot be empty", start)
                return key, False
        key = self._match(_KEY)
        if not key:
            raise self.fault(f"expected a key, not {self._shown()}")
        if self.next in tuple("{}[],;"):
            raise self.fault(f"expected a blank, a : or a = after {key!r}, not {self._shown()}")
        return key, key.lower() == "include" and self.next.isspace()

    def separator(self, *, newlines: bool) -> None:
        """Step over what lies between a key and its value. `newlines`: also behind the : or =, as within braces."""
        self._match(_WHITESPACE)
        if self.take(":") or self.take("="):
            if newlines:
                self._match(_WHITESPACE)
            self.skip_space()
            if self.next in ("\n", "\r"):
                raise self.fault("expected a value on the same line; write it behind the : or =")
        if _REMARK.match(self._text, self.position):
            raise self.fault("expected a value, not a comment")

    def end_value(self, closing: str, terminators: str) -> None:
        """Step over what ends a value: a comment, a newline, a terminator. What closes a block or list stays."""
        self.skip_space()
        if self._match(_COMMENT) or not self.next or self.next in ("\n", "\r") or self.next == closing:
            return
        if self.next not in tuple(terminators):
            expected = " or ".join(["the end of the line", *(repr(each) for each in (*terminators, closing) if each)])
            raise self.fault(f"expected {expected} after a value, not {self._shown()}; {_QUOTE_IT}")
        self.position += 1

    def word(self) -> Word:
        """Read a value that is not made of others."""
        start = self.position
        if self.take("'"):
            return Word(self._closed_by("'", "text"))
        if self.take('"'):
            text = self._match(_QUOTED)
            if not self.take('"'):
                raise self.fault('the " that begins this text is not closed', start)
            return Word(self._unescape(text, start))
        if self.take("("):
            return Word(self._block(start))
        return self._bare(start)

    def included(self) -> str:
        """Read the name of the file behind `include`."""
        self.skip_space()
        start = self.position
        for quote in "\"'":
            if self.take(quote):
                name = self._closed_by(quote, "file name")
                break
        else:
            name = self._match(_FILE)
        if not name or "\0" in name:
            raise self.fault("expected the name of a file after include, in quotes unless it is a plain word", start)
        return name

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self.position)
        if match is None:
            return ""
        self.position = match.end()
        return match[0]

    def _closed_by(self, quote: str, what: str) -> str:
        """Read up to the quote that closes what the last character has opened; nothing has a meaning in there."""
        end = self._text.find(quote, self.position)
        if end < 0:
            raise self.fault(f"the {quote} that begins this {what} is not closed", self.position - 1)
        text = self._text[self.position : end]
        self.position = end + 1
        return text

    def _shown(self) -> str:
        """Show the next character, and no more: what follows may be a secret."""
        return {"": "the end of the file", "\n": "the end of the line", "\r": "the end of the line"}.get(self.next, repr(self.next))

    def _block(self, start: int) -> str:
        """Read the text behind a (; the newlines around it belong to it."""
        end = _BLOCK_END.search(self._text, self.position)
        if end is None:
            raise self.fault("the ( that begins this text is not closed: expected a ) alone on a line, at its start", start)
        text = self._text[self.position : end.start() + 1]
        self.position = end.end()
        return text

    def _bare(self, start: int) -> Word:
        text = self._match(_BARE)
        if self.next == "'":
            raise self.fault(f"a ' within a word; {_QUOTE_IT}", start)
        if self.next == "\\" or "\\" in text:
            return Word(self._unescape(text + ("\\" if self.next == "\\" else ""), start))
        if not text:
            raise self.fault(f'expected a value, not {self._shown()}; an empty one is ""', start)
        if text[0] == "$" and not _BCRYPT.match(text):
            if text == "$":
                raise self.fault('expected the name of a variable after $; a $ alone is "$"', start)
            return Word(text[1:], variable=True)
        return self._plain(text, start)

    def _plain(self, text: str, start: int) -> Word:
        """Find out what a bare word is."""
        boolean = _BOOLEANS.get(text.lower())
        if boolean is not None:
            return Word(boolean, text)
        if match := _INTEGER.fullmatch(text):
            return Word(self._integer(match, start), text)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if math.isinf(number):
                raise self.fault("this number is too large", start)
            return Word(number, text)
        if match := _TIME.fullmatch(text):
            try:
                year, month, day, hour, minute, second = map(int, match.groups())
                return Word(datetime(year, month, day, hour, minute, second, tzinfo=UTC), text)
            except ValueError as error:
                raise self.fault(f"there is no such time: {error}", start) from error
        if _GLUED.match(text):
            # nats-server sees the comment here, but not behind a whole number.
            raise self.fault("expected a blank between a number and a comment", start)
        return Word(text)

    def _integer(self, match: re.Match[str], start: int) -> int:
        sign, digits, suffix = match.groups()
        digits = digits.lstrip("0") or "0"
        value = int(digits) if len(digits) <= _DIGITS_MAX else _INTEGER_MAX + 2
        if suffix:
            value *= (1000 if len(suffix) == 1 else 1024) ** _POWERS[suffix[0].lower()]
        value = -value if sign else value
        if not -_INTEGER_MAX - 1 <= value <= _INTEGER_MAX:
            raise self.fault("this number does not fit into 64 bits", start)
        return value

    def _unescape(self, text: str, start: int) -> str:
        if "\\" not in text:
            return text
        found = bytearray()
        position = 0
        while (at := text.find("\\", position)) >= 0:
            found += text[position:at].encode()
            match = _ESCAPE.match(text, at)
            if match is None or (not match[1] and match[2] not in _ESCAPED):
                shown = 'only \\t, \\n, \\r, \\", \\\\ and \\xHH mean something behind a backslash; a backslash itself is \\\\'
                raise self.fault(shown, start)
            found += bytes.fromhex(match[1]) if match[1] else _ESCAPED[match[2]]
            position = match.end()
        found += text[position:].encode()
        try:
            return found.decode()
        except UnicodeDecodeError as error:
            raise self.fault("what the \\x… stand for is not UTF-8", start) from error
