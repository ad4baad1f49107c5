"""How far a query is behind its source, from the offsets in its progress, whatever shape the source gives them."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["distance", "lag_of"]


def lag_of(sources: list[dict[str, Any]]) -> int | None:
    """Add up what is there and has not been taken in, in the source's offsets; None if no source says how far it goes."""
    found = [distance(_read(each.get("endOffset")), _read(each.get("latestOffset"))) for each in sources if each.get("latestOffset")]
    return sum(found) if found else None


def distance(end: Any, latest: Any) -> int:
    """Count from one position to another: numbers, positions {"offset": n, …}, or these by any names. What is not comparable counts nothing."""
    if isinstance(latest, bool) or latest is None:
        return 0
    if isinstance(latest, int):
        return max(0, latest - (end if isinstance(end, int) else 0))
    if isinstance(latest, dict):
        known = end if isinstance(end, dict) else {}
        if "offset" in latest:
            return distance(known.get("offset"), latest["offset"])
        return sum(distance(known.get(name), value) for name, value in latest.items())
    return 0


def _read(offset: Any) -> Any:
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None
