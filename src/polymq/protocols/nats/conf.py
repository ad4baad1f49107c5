"""Read a configuration file of nats-server: blocks, lists, variables, included files.

    name: value            # or name = value, or name value
    block { name: value, name: value }
    list: [ value, value ]
    again: $name           # what stands above under that name, in this block or one around it; else the environment's
    include 'other.conf'   # its keys, as if they stood here; the path starts at this file's folder

Nothing is read here: whoever calls hands in how files are read, and the environment. All that is wrong is gathered, as
far as it can be told apart: a file with a fault in its grammar is not read on. What keys mean is not this file's matter.

Limits:  those of `limits.NATS_CONF_…`; a file or a variable that needs itself is a problem like any other.
Source:  observed on nats-server 2.9.10 (`-t`); conf/parse.go of 2.9.10 and 2.15.2.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.errors import ConfigError
from polymq.protocols.nats.conf_lexer import Scanner
from polymq.protocols.nats.conf_tree import Block, Document, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.protocols.nats.conf_tree import Place

__all__ = ["parse"]

_BOM: Final = "\ufeff"


def parse(path: str, *, read: Callable[[str], bytes], environment: Mapping[str, str]) -> Document:
    """Read a file and all that it includes.

    `read` gives the bytes of the file at a path, which is `path` or one made of its folder and what an `include` names;
    it may raise OSError. It need not give more than one byte above `limits.NATS_CONF_SIZE_BYTES_MAX`.
    """
    reading = _Reading(read, environment)
    root = Block()
    try:
        reading.file(path, root, included_by=None, depth=0)
    except ConfigError as error:
        reading.problems += error.problems
    return Document(root, tuple(reading.problems), tuple(reading.notes))


@dataclass(slots=True)
class _Reading:
    """What all files of one configuration have in common."""

    read: Callable[[str], bytes]
    environment: Mapping[str, str]
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # that are being read, the outermost first
    variables: list[str] = field(default_factory=list)  # of the environment that are being read
    file_count: int = 0
    size_bytes: int = 0
    value_count: int = 0
    spent: bool = False

    def file(self, path: str, block: Block, *, included_by: Place | None, depth: int) -> None:
        """Read one file into a block."""
        where = f"{included_by}: include {path!r}" if included_by else path
        if posixpath.normpath(path) in self.files:
            raise ConfigError([f"{where}: this file includes itself; take one of the includes out"])
        self.file_count += 1
        if self.file_count > limits.NATS_CONF_FILES_MAX:
            raise self.limit(f"{where}: more than {limits.NATS_CONF_FILES_MAX} files; put some of them together")
        text = self.text(path, where)
        self.files.append(posixpath.normpath(path))
        try:
            _Parser(self, Scanner(text, path), posixpath.dirname(path)).entries(block, (block,), closing="", depth=depth)
        finally:
            self.files.pop()

    def text(self, path: str, where: str) -> str:
        """Get the text of one file."""
        try:
            data = self.read(path)
        except FileNotFoundError as error:
            hint = "; an include starts at the folder of the file that has it, also with a / in front" if where != path else ""
            raise ConfigError([f"{where}: there is no such file{hint}"]) from error
        except OSError as error:
            raise ConfigError([f"{where}: cannot be read: {error.strerror or error}"]) from error
        self.count_bytes(len(data), where)
        zero = data.find(b"\0")
        if zero >= 0:
            # nats-server takes it for the end of the file.
            line = data.count(b"\n", 0, zero) + 1
            raise ConfigError([f"{path}:{line}: there is a zero byte; take it out, or save the file as UTF-8"])
        try:
            return data.decode().removeprefix(_BOM)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise ConfigError([f"{path}:{line}: this is no UTF-8; save the file as UTF-8"]) from error

    def variable(self, name: str, place: Place, depth: int) -> Value:
        """Read a variable of the environment as what stands behind a key: it may be a number, a list, or refer to others."""
        text = self.environment.get(name)
        if text is None:
            raise ConfigError([f"{place}: nothing above is called {name!r}, nor is there such a variable in the environment"])
        if name in self.variables:
            raise ConfigError([f"{place}: the variable {name!r} of the environment refers to itself"])
        try:
            self.count_bytes(len(text.encode()), f"{place}: ${name}")
        except UnicodeEncodeError as error:
            raise ConfigError([f"{place}: the variable {name!r} of the environment is no UTF-8"]) from error
        self.variables.append(name)
        try:
            return _Parser(self, Scanner(text, f"${name}"), "").alone(depth)
        except ConfigError as error:
            if self.spent:
                raise
            hint = f"(${name} is a variable of the environment, {place} refers to it; a text may need quotes within)"
            raise ConfigError([f"{problem} {hint}" for problem in error.problems]) from error
        finally:
            self.variables.pop()

    def count_bytes(self, size_bytes: int, where: str) -> None:
        """Count what is read."""
        self.size_bytes += size_bytes
        if self.size_bytes > limits.NATS_CONF_SIZE_BYTES_MAX:
            raise self.limit(f"{where}: the configuration has more than {limits.NATS_CONF_SIZE_BYTES_MAX} bytes")

    def count_values(self, count: int, place: Place) -> None:
        """Count values: those behind a variable each time that it is referred to, since whoever reads the tree meets them so often."""
        self.value_count += count
        if self.value_count > limits.NATS_CONF_VALUES_MAX:
            raise self.limit(f"{place}: more than {limits.NATS_CONF_VALUES_MAX} values, those behind variables counted each time")

    def limit(self, what: str) -> ConfigError:
        """Make the error for a limit of the whole configuration: nothing more is read."""
        self.spent = True
        return ConfigError([what])


class _Parser:
    """Reads one file, or one variable of the environment."""

    def __init__(self, reading: _Reading, scanner: Scanner, folder: str) -> None:
        self._reading = reading
        self._scanner = scanner
        self._folder = folder

    def entries(self, block: Block, scopes: tuple[Block, ...], *, closing: str, depth: int) -> None:
        """Read keys and values up to the closing brace, or the end of the file. `scopes`: the blocks around, and this one last."""
        scanner = self._scanner
        start = scanner.position - 1
        while True:
            scanner.skip_blank()
            if closing and scanner.take(closing):
                return
            if not scanner.next:
                if closing:
                    raise scanner.fault("the { here is not closed by a }", start)
                return
            if not closing and scanner.take("{"):
                # A whole file in braces, as JSON has it.
                self.entries(block, scopes, closing="}", depth=depth)
            else:
                self._entry(block, scopes, closing, depth)
            scanner.end_value(closing, ",;")

    def alone(self, depth: int) -> Value:
        """Read one value and nothing else; no text at all is an empty one."""
        scanner = self._scanner
        scanner.skip_space()
        place = scanner.place()
        value = self._value(place, (), depth) if scanner.next else Value("", place)
        scanner.end_value("", "")
        scanner.skip_blank()
        if scanner.next:
            raise scanner.fault("expected one value and nothing behind it")
        return value

    def _entry(self, block: Block, scopes: tuple[Block, ...], closing: str, depth: int) -> None:
        place = self._scanner.place()
        key, include = self._scanner.key()
        if include:
            self._include(block, place, depth)
            return
        self._scanner.separator(newlines=bool(closing))
        value = self._value(place, scopes, depth)
        before = block.entries.pop(key, None)
        if before is not None and before.place.file == place.file:
            self._reading.notes.append(f"{place}: {key!r} is written again; what line {before.place.line} says no longer counts")
        block.entries[key] = value

    def _include(self, block: Block, place: Place, depth: int) -> None:
        """Read a file that is included, and put its keys into the block. It sees no variables but its own."""
        path = posixpath.join(self._folder, self._scanner.included().lstrip("/"))
        found = Block()
        try:
            self._check_depth(depth + 1, place)
            self._reading.file(path, found, included_by=place, depth=depth + 1)
        except ConfigError as error:
            if self._reading.spent:
                raise
            self._reading.problems += error.problems
        for key, value in found:
            block.entries.pop(key, None)
            block.entries[key] = value
        block.variables |= found.variables

    def _value(self, place: Place, scopes: tuple[Block, ...], depth: int) -> Value:
        """Read what a key or a place in a list has."""
        scanner = self._scanner
        self._reading.count_values(1, place)
        if scanner.take("{"):
            self._check_depth(depth + 1, place)
            block = Block()
            self.entries(block, (*scopes, block), closing="}", depth=depth + 1)
            return _whole(block, list(block.entries.values()), place)
        if scanner.take("["):
            self._check_depth(depth + 1, place)
            values = self._list(scopes, depth + 1)
            return _whole(tuple(values), values, place)
        word = scanner.word()
        if word.variable:
            assert isinstance(word.data, str)
            return self._variable(word.data, place, scopes, depth)
        return Value(word.data, place, word.spelling)

    def _list(self, scopes: tuple[Block, ...], depth: int) -> list[Value]:
        scanner = self._scanner
        start = scanner.position - 1
        values: list[Value] = []
        while True:
            scanner.skip_blank()
            if scanner.take("]"):
                return values
            if not scanner.next:
                raise scanner.fault("the [ here is not closed by a ]", start)
            values.append(self._value(scanner.place(), scopes, depth))
            scanner.end_value("]", ",")

    def _variable(self, name: str, place: Place, scopes: tuple[Block, ...], depth: int) -> Value:
        """Find what a variable stands for. Without it the tree has a gap, and there is a problem."""
        try:
            for scope in reversed(scopes):
                found = scope.entries.get(name)
                if found is not None:
                    scope.variables.add(name)
                    self._reading.count_values(found.weight - 1, place)
                    self._check_depth(depth + found.height, place)
                    return replace(found, place=place)
            return replace(self._reading.variable(name, place, depth), place=place)
        except ConfigError as error:
            if self._reading.spent:
                raise
            self._reading.problems += error.problems
            return Value(None, place)

    def _check_depth(self, depth: int, place: Place) -> None:
        if depth > limits.NATS_CONF_DEPTH_MAX:
            raise ConfigError([f"{place}: more than {limits.NATS_CONF_DEPTH_MAX} blocks, lists and files within one another"])


def _whole(data: Block | tuple[Value, ...], parts: list[Value], place: Place) -> Value:
    """Make the value that a block or a list is."""
    return Value(data, place, weight=1 + sum(part.weight for part in parts), height=1 + max((part.height for part in parts), default=0))
