"""How much memory this process may use: the machine's, or less where a control group says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["memory_bytes"]

_MEMBERSHIPS: Final = Path("/proc/self/cgroup")
_GROUPS: Final = Path("/sys/fs/cgroup")


def memory_bytes(memberships: Path = _MEMBERSHIPS, groups: Path = _GROUPS) -> int:
    """Give the machine's memory, or the least limit of the control groups that this process is in. Cost: a few small reads."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *_limits(memberships, groups)])


def _limits(memberships: Path, groups: Path) -> list[int]:
    """Read the limits of version 2 (one line `0::/path`) and of version 1 (a line with `memory` among its controllers)."""
    found = []
    for line in _text(memberships).splitlines():
        _number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            base, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = base / path.lstrip("/")
        # The groups above have limits, too.
        for each in (folder, *folder.parents):
            if not each.is_relative_to(base):
                break
            limit = _text(each / name).strip()
            if limit.isdigit():
                found.append(int(limit))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
