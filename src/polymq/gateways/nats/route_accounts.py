"""The accounts that routes know: what is wanted in each by this server's own listeners, and what has been said of it.

Other servers hear of a pattern when its first listener comes and when its last one goes; of a queue group each time that
its number changes. Whether that is so is found out by comparing what there is with what was said last. Read next: `cluster.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from polymq.gateways.nats.account_names import GLOBAL_ACCOUNT, namespace_of
from polymq.protocols.nats.encode import remote_subscribe, remote_unsubscribe
from polymq.protocols.nats.subjects import is_valid_subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from polymq.core.live import Live, LiveSpace
    from polymq.gateways.nats.route_rules import RouteRules

__all__ = ["RouteAccount", "RouteAccounts"]

# What servers say to each other is nobody's who logs in here: no account's name has a blank.
_SERVERS_NAMESPACE: Final = "$SYS of servers"
_BLANK: Final = re.compile(rb"[ \t\r\n]")


class RouteAccount:
    """One account. `number` is the tag of what other servers want in it; `plain` and `groups` are what they have been told.

    With `only` nothing else that other servers want counts; `changed` is called when they want something more or less.
    """

    __slots__ = ("changed", "groups", "name", "number", "only", "plain", "space")

    def __init__(self, name: bytes, number: int, space: LiveSpace) -> None:
        self.name = name
        self.number = number
        self.space = space
        # A dictionary as a set that keeps its order.
        self.plain: dict[bytes, None] = {}
        self.groups: dict[tuple[bytes, bytes], int] = {}
        self.only: frozenset[bytes] | None = None
        self.changed: Callable[[], None] | None = None

    def change(self, pattern: bytes, queue: bytes, rules: RouteRules) -> bytes:
        """Give the line that other servers are due now that listeners of this pattern and group have come or gone; maybe none."""
        count = self.space.interest.local_count(pattern, queue)
        if queue:
            return self._change_group(pattern, queue, count, rules)
        if not count:
            if pattern not in self.plain:
                return b""
            del self.plain[pattern]
            return remote_unsubscribe(self.name, pattern)
        if pattern in self.plain or not _may_be_told(pattern, queue, rules):
            return b""
        self.plain[pattern] = None
        return remote_subscribe(self.name, pattern)

    def _change_group(self, pattern: bytes, queue: bytes, count: int, rules: RouteRules) -> bytes:
        key = pattern, queue
        told = self.groups.get(key, 0)
        if told == count:
            return b""
        if not count:
            del self.groups[key]
            return remote_unsubscribe(self.name, pattern, queue)
        if not told and not _may_be_told(pattern, queue, rules):
            return b""
        self.groups[key] = count
        return remote_subscribe(self.name, pattern, queue, count)

    def whole(self) -> Iterator[bytes]:
        """Give a line for each thing that is wanted, for a server that knows nothing yet.

        What changes meanwhile is told to it as to all others, so that a line may come twice and none is missing.
        """
        for pattern in list(self.plain):
            if pattern in self.plain:
                yield remote_subscribe(self.name, pattern)
        for key in list(self.groups):
            count = self.groups.get(key)
            if count:
                yield remote_subscribe(self.name, *key, count)


class RouteAccounts:
    """All accounts that there are for other servers, by their names on a route and by the namespaces of the core.

    The servers' own account ($SYS) is one of them only for who has something to ask there (`system`), and even then its messages
    are apart from all that users of this server publish. Else what is said in it concerns nobody here.
    """

    def __init__(self, live: Live, names: Iterable[str], system: str = "") -> None:
        """`names` are the configuration's; $G is always there."""
        self.by_name: dict[bytes, RouteAccount] = {}
        self.by_namespace: dict[str, RouteAccount] = {}
        self.by_number: list[RouteAccount] = []
        for name in dict.fromkeys((GLOBAL_ACCOUNT, *names)):
            self._add(live, name, namespace_of(name))
        self.system = self._add(live, system, _SERVERS_NAMESPACE) if system else None

    def _add(self, live: Live, name: str, namespace: str) -> RouteAccount:
        account = RouteAccount(name.encode(), len(self.by_number), live.space(namespace))
        assert account.name not in self.by_name
        self.by_name[account.name] = self.by_namespace[namespace] = account
        self.by_number.append(account)
        return account

    def whole(self) -> Iterator[bytes]:
        """Give a line for each thing that is wanted here; see `RouteAccount.whole`."""
        for account in self.by_number:
            yield from account.whole()


def _may_be_told(pattern: bytes, queue: bytes, rules: RouteRules) -> bool:
    """Say whether a pattern can be written in a line, which not all that other protocols listen to can, and may be."""
    return is_valid_subscription(pattern) and not _BLANK.search(queue) and rules.may_import(pattern)
