"""What the hot modules use of Cython's pure Python mode, typed for mypy. Integers of C are `int` here."""

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)

compiled: bool

uchar = int
char = int
short = int
ushort = int
int = int
uint = int
longlong = int
ulonglong = int
Py_ssize_t = int
bint = bool
double = float
void = None
const: Any

def cfunc(f: _F) -> _F: ...
def ccall(f: _F) -> _F: ...
def inline(f: _F) -> _F: ...
def cclass(c: _C) -> _C: ...
def final(c: _C) -> _C: ...
def nogil(f: _F) -> _F: ...
def exceptval(*args: Any, check: bool = ...) -> Callable[[_F], _F]: ...
def locals(**kwargs: Any) -> Callable[[_F], _F]: ...  # noqa: A001
def cast(kind: Any, value: Any) -> Any: ...
def declare(kind: Any = ..., value: Any = ..., visibility: str = ...) -> Any: ...
def address(value: Any) -> Any: ...
