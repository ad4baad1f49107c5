"""Which subjects may cross the routes of this server: `import` is what may come in, `export` what may go out.

So other servers are told only of interest in what may come in, and their interest counts only in what may go out. A
pattern that is wider than what is allowed is not let through at all; one that is wider than what is denied is, and its
messages are looked at one by one. Observed on nats-server 2.9.10 and 2.14.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.core.interest.names import covers
from polymq.limits import INTEREST_CACHED_NAME_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from polymq.protocols.nats.info import Permissions

__all__ = ["RouteRules"]

# With names of INTEREST_CACHED_NAME_SIZE_BYTES_MAX, 2 MB. A line of a route may be longer: such names are looked at each time.
_REMEMBERED_MAX: Final = 4096


class _Rule:
    """One direction: everything that is in `allow` (nothing said: all there is) and not in `deny`."""

    def __init__(self, said: Permissions | None) -> None:
        self._allow = [text.encode() for text in said.allow] if said is not None else []
        self._deny = [text.encode() for text in said.deny] if said is not None else []
        self._remembered: dict[bytes, bool] = {}

    def permits(self, name: bytes) -> bool:
        """Say whether a subject, or all that a pattern stands for, is allowed and not denied as a whole."""
        found = self._remembered.get(name)
        if found is None:
            allowed = not self._allow or any(covers(each, name) for each in self._allow)
            found = allowed and not any(covers(each, name) for each in self._deny)
            if len(name) <= INTEREST_CACHED_NAME_SIZE_BYTES_MAX:
                if len(self._remembered) >= _REMEMBERED_MAX:
                    self._remembered.clear()
                self._remembered[name] = found
        return found


class RouteRules:
    """Both directions; `imports` and `exports` are what INFO says of them, None: everything may pass."""

    __slots__ = ("_export", "_import", "exports", "imports")

    def __init__(self, imports: Permissions | None = None, exports: Permissions | None = None) -> None:
        self.imports = imports
        self.exports = exports
        self._import = _Rule(imports)
        self._export = _Rule(exports)

    def may_import(self, name: bytes) -> bool:
        """Say whether messages of a subject or pattern may come in."""
        return self.imports is None or self._import.permits(name)

    def may_export(self, name: bytes) -> bool:
        """Say whether messages of a subject or pattern may go out."""
        return self.exports is None or self._export.permits(name)
