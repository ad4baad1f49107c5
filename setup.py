"""Build hook: compiles the hot modules with Cython where a C compiler works, and installs them uncompiled elsewhere.

Everything else about the package is in pyproject.toml. Environment:
  POLYMQ_BUILD=pure      compile nothing
  POLYMQ_BUILD=checked   compile with bounds checks, for the fuzzers
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

HOT_MODULES = Path(__file__).with_name("hot_modules.txt").read_text().split()


def extensions() -> list[Extension]:
    """Describe one optional extension per hot module: a failed compilation leaves the .py file in charge."""
    mode = os.environ.get("POLYMQ_BUILD", "fast")
    if mode == "pure":
        return []
    from Cython.Build import cythonize

    checked = mode == "checked"
    modules = [
        Extension(name, [f"src/{name.replace('.', '/')}.py"], extra_compile_args=["-O3"], optional=True)
        for name in HOT_MODULES
        if Path(f"src/{name.replace('.', '/')}.py").exists()
    ]
    return cythonize(
        modules,
        include_path=["src"],
        language_level=3,
        compiler_directives={
            "boundscheck": checked,
            "wraparound": False,
            "initializedcheck": checked,
            "cdivision": True,
            "embedsignature": True,
        },
        build_dir=f"build/cython-{mode}",
        quiet=True,
    )


setup(ext_modules=extensions())
