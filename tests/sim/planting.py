"""How a bug is planted: a context manager that patches the real code for as long as it lasts, in a list."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

__all__ = ["BUGS", "Bug", "bug", "every", "plant", "replaced"]


@dataclass(frozen=True)
class Bug:
    """A mistake, and how to make it."""

    name: str
    plant: Callable[[], AbstractContextManager[None]]

    def __str__(self) -> str:
        return self.name


BUGS: list[Bug] = []


def bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """Enter a bug into the list under its function's name."""
    BUGS.append(Bug(plant.__name__, contextmanager(plant)))
    return plant


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
