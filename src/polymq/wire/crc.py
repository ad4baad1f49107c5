"""The one checksum of everything that polymq stores: CRC-32C (Castagnoli), done by the processor where it can."""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

__all__ = ["crc32c"]

_PACKAGE: Final = "crc32c"
# What is compiled in it, and the only part that is used here.
_COMPILED: Final = "crc32c._crc32c"


def _load() -> Callable[[Buffer, int], int]:
    """Take the compiled part of the package alone: the rest of it reads metadata, which takes a tenth of a start.

    A release of it that has another shape is imported as a whole.
    """
    package = PathFinder.find_spec(_PACKAGE)
    spec = PathFinder.find_spec(_COMPILED, package.submodule_search_locations) if package is not None else None
    if spec is None or spec.loader is None:
        import crc32c

        return crc32c.crc32c
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[Buffer, int], int] = module.crc32c
    return function


_crc32c: Final = _load()


def crc32c(data: Buffer, seed: int = 0) -> int:
    """Compute the CRC-32C of `data`; `seed` is the checksum of what comes before it, 0 at the start."""
    return _crc32c(data, seed)
