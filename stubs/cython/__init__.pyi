"""What the hot modules use of Cython's pure Python mode, typed for mypy. Integers of C are `int` here."""

import builtins
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)

compiled: bool

# Element types of typed views: `cython.uchar[::1]` is no type to mypy, so what is declared with these is not checked.
uchar: Any
int: Any  # noqa: A001
longlong: Any

char = builtins.int
short = builtins.int
ushort = builtins.int
uint = builtins.int
ulonglong = builtins.int
Py_ssize_t = builtins.int
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
