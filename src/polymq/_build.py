"""Which build of the hot modules is running, and how to run them uncompiled.

A hot module is a plain `.py` file that Cython may have compiled into an extension beside it; it is known by the
`.pxd` of the same name. With POLYMQ_PURE=1 in the environment `polymq/__init__.py` installs `PureFinder`, which
prefers the `.py`: the one way to run uncompiled in an environment where everything is compiled.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["BuildReport", "PureFinder", "hot_modules", "install_pure_finder", "mode", "report"]

PACKAGE: Final = "polymq"
FOLDER: Final = Path(__file__).parent
# Written by setup.py beside the modules that it compiled: "fast" or "checked".
MODE_FILE: Final = "_build_mode.txt"
# Has a .pxd, but is no module of its own when compiled: its C bodies are included into the hot modules.
INCLUDED: Final = "polymq.wire.inline"


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What would be, or has been, imported. `stale` modules were compiled from older source than lies beside them."""

    mode: str
    compiled: tuple[str, ...]
    interpreted: tuple[str, ...]
    stale: tuple[str, ...]

    def __str__(self) -> str:
        """Say it in one line, for `polymq --version`."""
        total = len(self.compiled) + len(self.interpreted)
        if not self.compiled:
            text = f"interpreted: none of the {total} hot modules is compiled"
        elif self.interpreted:
            text = f"partly compiled ({self.mode}): {len(self.compiled)} of {total} hot modules, not {', '.join(self.interpreted)}"
        else:
            text = f"compiled ({self.mode}): all {total} hot modules"
        return text + (f"; OUT OF DATE, run make setup: {', '.join(self.stale)}" if self.stale else "")


def hot_modules(folder: Path = FOLDER) -> tuple[str, ...]:
    """List the hot modules by name, sorted: every module with a `.pxd` beside its `.py`."""
    found = []
    for path in folder.rglob("*.pxd"):
        name = ".".join((PACKAGE, *path.relative_to(folder).with_suffix("").parts))
        if name != INCLUDED and path.with_suffix(".py").exists():
            found.append(name)
    return tuple(sorted(found))


class PureFinder:
    """Finds the `.py` of a hot module although a compiled extension lies beside it: an entry of `sys.meta_path`."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the source's spec for a hot module; None leaves everything else to the usual finders."""
        del target
        if not fullname.startswith(f"{PACKAGE}.") or path is None:
            return None
        for folder in path:
            source = Path(folder, fullname.rpartition(".")[2] + ".py")
            if source.exists() and source.with_suffix(".pxd").exists():
                return importlib.util.spec_from_file_location(fullname, source, loader=SourceFileLoader(fullname, str(source)))
        return None


def install_pure_finder() -> None:
    """Put a PureFinder before all other finders, once."""
    if not any(isinstance(finder, PureFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PureFinder())


def report() -> BuildReport:
    """Look where each hot module comes from, without importing it."""
    compiled, interpreted, stale = [], [], []
    for name in hot_modules():
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        if not spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
            interpreted.append(name)
            continue
        compiled.append(name)
        if _is_stale(Path(spec.origin)):
            stale.append(name)
    return BuildReport(mode(), tuple(compiled), tuple(interpreted), tuple(stale))


def mode() -> str:
    """Say how the hot modules were compiled, without looking at them: "fast" or "checked"."""
    try:
        return FOLDER.joinpath(MODE_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return "fast"


def _is_stale(extension: Path) -> bool:
    base = extension.with_name(extension.name.partition(".")[0])
    built = extension.stat().st_mtime
    declarations = base.with_suffix(".pxd")
    # The build compiles again only what includes the helpers.
    includes = declarations.exists() and INCLUDED in declarations.read_text(encoding="utf-8")
    sources = (base.with_suffix(".py"), declarations, *([FOLDER / "wire" / "inline.pxd"] if includes else []))
    return any(source.exists() and source.stat().st_mtime > built for source in sources)
