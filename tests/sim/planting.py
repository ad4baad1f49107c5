"""How a bug is planted: a context manager that patches the real code for as long as it lasts, in a list."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

__all__ = ["BUGS", "Bug", "bug", "bug_from", "every", "plant", "replaced"]


@dataclass(frozen=True)
class Bug:
    """A mistake, and how to make it; `first`: the seed from which on it is looked for."""

    name: str
    plant: Callable[[], AbstractContextManager[None]]
    first: int = 0

    def __str__(self) -> str:
        return self.name


BUGS: list[Bug] = []


def bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """Enter a bug into the list under its function's name."""
    return bug_from(0)(plant)


def bug_from(first: int) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Enter bugs that are looked for from a seed on."""

    def enter(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        BUGS.append(Bug(plant.__name__, contextmanager(plant), first))
        return plant

    return enter


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Put `make(what is there)` in the place of an attribute for a while."""
    original = vars(owner)[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def every(count: int) -> Callable[[], bool]:
    """Say True at every `count`-th call: bugs that always strike are found by anybody."""
    calls = 0

    def strikes() -> bool:
        nonlocal calls
        calls += 1
        return calls % count == 0

    return strikes


def plant(name: str) -> ExitStack:
    """Plant a bug by its name, for looking at what it does: the caller closes the stack."""
    stack = ExitStack()
    stack.enter_context(next(bug.plant() for bug in BUGS if bug.name == name))
    return stack
