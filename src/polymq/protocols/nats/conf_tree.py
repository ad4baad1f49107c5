"""What a configuration file of nats-server comes to: blocks of keys and values, each with its place.

The language knows no schema: what a key means is for `server/nats_settings.py` and its readers. Keys are as written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Block", "Data", "Document", "Place", "Plain", "Value"]

Plain = str | bool | int | float | datetime
"""What a word or a quoted text can be."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written. What comes out of the environment is in the file `$NAME`."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True, repr=False)
class Block:
    """Keys and values between braces, or a whole file: the value that was written last for each key, in order.

    `variables` are those keys that something else refers to (`$key`): they may mean nothing else.
    """

    entries: dict[str, Value] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        return iter(self.entries.items())


Data = Plain | tuple["Value", ...] | Block | None
"""What a value is; None where it could not be had (a variable that nothing defines), which is a problem of its own."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Value:
    """One value. It has no `repr`: it may be a secret.

    `place` is where its key is, or the value itself in a list. `spelling` is how a number was written ("2m" is a
    number here, and most people mean minutes). `weight` counts the values in it, `height` how deep they lie.
    """

    data: Data
    place: Place
    spelling: str = ""
    weight: int = 1
    height: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Document:
    """A file with all that it includes. With problems, the rest of the tree may lack something."""

    root: Block
    problems: tuple[str, ...]
    notes: tuple[str, ...]
