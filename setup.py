"""Build hook: compiles the hot modules with Cython where a C compiler works, and installs them uncompiled elsewhere.

Everything else about the package is in pyproject.toml. Environment:
  POLYMQ_BUILD=fast      (default) compile without bounds checks
  POLYMQ_BUILD=checked   compile with bounds checks, for the fuzzers
  POLYMQ_BUILD=pure      compile nothing
By hand: python setup.py -q build_ext --inplace
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MODES = ("fast", "checked", "pure")
MODE = os.environ.get("POLYMQ_BUILD") or "fast"
HOT_MODULES = Path(__file__).with_name("hot_modules.txt").read_text(encoding="utf-8").split()

PROCESSORS = os.cpu_count() or 1

if MODE not in MODES:
    sys.exit(f"POLYMQ_BUILD is {MODE!r}; it must be one of {', '.join(MODES)}")


def extensions() -> list[Extension]:
    """Describe one optional extension per hot module: a failed compilation leaves the .py file in charge."""
    if MODE == "pure":
        return []
    from Cython.Build import cythonize

    checked = MODE == "checked"
    sources = {name: f"src/{name.replace('.', '/')}.py" for name in HOT_MODULES}
    modules = [
        Extension(name, [source], extra_compile_args=["-O3", "-g0"], optional=True)
        for name, source in sources.items()
        if Path(source).exists()
    ]
    cythonized: list[Extension] = cythonize(
        modules,
        include_path=["src"],
        language_level=3,
        compiler_directives={
            "boundscheck": checked,
            "wraparound": False,
            "initializedcheck": checked,
            "cdivision": True,
            "embedsignature": True,
            "show_performance_hints": False,
        },
        build_dir=f"build/cython-{MODE}",
        quiet=True,
        # Elsewhere processes are spawned, which would run this file again.
        nthreads=PROCESSORS if sys.platform == "linux" else 0,
    )
    for extension in cythonized:
        # cythonize() drops it.
        extension.optional = True
    return cythonized


class BuildInOneMode(build_ext):
    """Compiles again when the last build was of another mode, and leaves a note of the mode for `polymq --version`.

    Without this an older build of the other mode would pass as up to date: it is newer than the C files.
    """

    def run(self) -> None:
        """Compile, then write the note beside the package."""
        folder = Path("src" if self.inplace else self.build_lib, "polymq")
        note = folder / "_build_mode.txt"
        if not note.exists() or note.read_text(encoding="utf-8").strip() != MODE:
            self.force = True
        self.parallel = PROCESSORS
        super().run()
        if folder.is_dir() and MODE != "pure":
            note.write_text(f"{MODE}\n", encoding="utf-8")


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildInOneMode})
