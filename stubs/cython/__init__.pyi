"""What the hot modules use of Cython's pure Python mode, typed for mypy."""

import builtins
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)

compiled: bool

# The C integers may be elements of typed views, and `cython.uchar[::1]` is no type to mypy: what is declared with
# these is not checked. Indexes and counts, which are never elements, are.
uchar: Any
char: Any
short: Any
ushort: Any
int: Any  # noqa: A001
uint: Any
longlong: Any
ulonglong: Any

Py_ssize_t = builtins.int
bint = bool
double = float
void: TypeAlias = None
const: Any

nogil: AbstractContextManager[builtins.object]

def cfunc(f: _F) -> _F: ...
def ccall(f: _F) -> _F: ...
def inline(f: _F) -> _F: ...
def cclass(c: _C) -> _C: ...
def final(c: _C) -> _C: ...
def exceptval(*args: Any, check: bool = ...) -> Callable[[_F], _F]: ...
def locals(**kwargs: Any) -> Callable[[_F], _F]: ...  # noqa: A001
def cast(kind: Any, value: Any) -> Any: ...
def declare(kind: Any = ..., value: Any = ..., visibility: str = ...) -> Any: ...
def address(value: Any) -> Any: ...
