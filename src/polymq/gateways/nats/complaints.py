"""What is wrong with other servers, or whoever says to be one, is logged; but they may come as often as they like, and the log may not grow so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.limits import COMPLAINTS_PER_MINUTE_MAX

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

__all__ = ["Complaints"]

_MINUTE_NS: Final = 60_000_000_000


class _Sort:
    """What was said of one sort in the minute that began then."""

    __slots__ = ("begun_ns", "left_out", "said")

    def __init__(self, begun_ns: int) -> None:
        self.begun_ns = begun_ns
        self.said = self.left_out = 0


class Complaints:
    """Lines for a logger: of each sort, which is a text before its arguments are put in, COMPLAINTS_PER_MINUTE_MAX a minute.

    The last one says that more are left out, the first one after that how many were.
    """

    def __init__(self, log: logging.Logger, monotonic_ns: Callable[[], int]) -> None:
        self._log = log
        self._monotonic_ns = monotonic_ns
        self._sorts: dict[str, _Sort] = {}

    def say(self, level: int, text: str, *arguments: object) -> None:
        """Log it, or count it. What the logger does not want at its level does not count."""
        if not self._log.isEnabledFor(level):
            return
        now_ns = self._monotonic_ns()
        sort = self._sorts.get(text)
        left_out = 0
        if sort is None or now_ns - sort.begun_ns >= _MINUTE_NS:
            left_out = sort.left_out if sort is not None else 0
            sort = self._sorts[text] = _Sort(now_ns)
        if sort.said == COMPLAINTS_PER_MINUTE_MAX:
            sort.left_out += 1
            return
        sort.said += 1
        if left_out:
            text, arguments = f"{text} (and %d more of these before, which were left out)", (*arguments, left_out)
        elif sort.said == COMPLAINTS_PER_MINUTE_MAX:
            text = f"{text} (more of these are left out for a minute)"
        self._log.log(level, text, *arguments)
