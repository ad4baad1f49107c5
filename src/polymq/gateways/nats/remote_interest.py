"""What another server wants, in all accounts: its RS+ and RS- lines as entries of the core, all of one remote target."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from polymq.errors import Refusal
from polymq.protocols.nats.subjects import is_valid_subscription

if TYPE_CHECKING:
    from polymq.core.interest.targets import Entry, Target
    from polymq.gateways.nats.route_accounts import RouteAccounts
    from polymq.gateways.nats.route_rules import RouteRules
    from polymq.protocols.nats.events import RemoteSubscribe, RemoteUnsubscribe

__all__ = ["RemoteInterest"]

log = logging.getLogger(__name__)


class RemoteInterest:
    """One route's. The tag of an entry is its account's number.

    Limits:  the entries of a namespace (`Interest`); what is beyond is left out, and said once.
    Cost:    an entry, and a place in a dictionary: about 200 bytes more.
    """

    __slots__ = ("_accounts", "_entries", "_left_out", "_name", "_rules", "_target")

    def __init__(self, accounts: RouteAccounts, rules: RouteRules, target: Target, name: str) -> None:
        """`name` is the other server's address, for people."""
        self._accounts = accounts
        self._rules = rules
        self._target = target
        self._name = name
        # By account: a subject's entry, or a subject and a queue group's.
        self._entries: list[dict[bytes | tuple[bytes, bytes], Entry]] = [{} for _ in accounts.by_number]
        self._left_out = 0

    def __len__(self) -> int:
        return sum(map(len, self._entries))

    def add(self, event: RemoteSubscribe) -> None:
        """There are takers: of a queue group so many. What is no subject, or of no account that is known, is passed over.

        nats-server says so (-ERR 'Invalid Subscription'), but hangs up on hearing it from others, so it is not said.
        """
        account = self._accounts.by_name.get(event.account)
        subject, queue = event.subject, event.queue
        if account is None or (account.only is not None and (queue or subject not in account.only)):
            return
        entries = self._entries[account.number]
        found = entries.get((subject, queue) if queue else subject)
        if found is not None:
            if queue:
                assert found.interest is not None
                found.interest.change(found, weight=event.weight)
            return
        if not is_valid_subscription(subject) or not self._rules.may_export(subject):
            log.debug("NATS route %s: %r is not let out", self._name, subject)
            return
        try:
            entry = account.space.listen(subject, self._target, tag=account.number, queue=queue, weight=event.weight)
        except Refusal as refusal:
            self._left_out += 1
            if self._left_out == 1:
                log.error("NATS route %s: some of what it wants it will not get: %s", self._name, refusal)
            return
        entries[(entry.pattern, queue) if queue else entry.pattern] = entry
        if account.changed is not None:
            account.changed()

    def remove(self, event: RemoteUnsubscribe) -> None:
        """There are no takers any more."""
        account = self._accounts.by_name.get(event.account)
        if account is None:
            return
        subject, queue = event.subject, event.queue
        entry = self._entries[account.number].pop((subject, queue) if queue else subject, None)
        if entry is not None:
            account.space.leave(entry)
            if account.changed is not None:
                account.changed()

    def forget(self) -> None:
        """Let go of the entries: their target has been dismissed, and the core takes them out."""
        for account, entries in zip(self._accounts.by_number, self._entries, strict=True):
            had_some = bool(entries)
            entries.clear()
            if had_some and account.changed is not None:
                account.changed()
