"""Answer by exit status whether the hot modules are compiled from the present source in the mode that is asked for.

Used by tools/setup, so that `make setup` costs nothing when there is nothing to do. `--explain` says what is not.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from polymq import _build

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Return 0 if everything listed is compiled, current and in this mode; else 1."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--mode", default="fast")
    arguments.add_argument("--explain", action="store_true")
    options = arguments.parse_args()
    report = _build.report()
    missing = sorted(report.interpreted)
    build_hook = ROOT / "setup.py"
    built = ROOT / "src/polymq/_build_mode.txt"
    current = built.exists() and built.stat().st_mtime >= build_hook.stat().st_mtime
    good = current and not missing and not report.stale and report.mode == options.mode
    if not good and options.explain:
        print(
            f"wanted mode {options.mode}, is {report.mode}; not compiled: {missing or 'none'}; out of date: {list(report.stale) or 'none'}"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
