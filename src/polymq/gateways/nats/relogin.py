"""Who is connected when it changes who may come in: whether he may stay, and as whom.

Observed on nats-server 2.15.2 (SIGHUP): who is no user any more, or one of another account, is closed without a word; whose password
is another one is told so; who may do less keeps the connection, and is told of each subscription that it loses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.core.access import Principal
from polymq.gateways.nats.logins import UNKNOWN
from polymq.limits import NATS_RECONSIDERED_PER_LOSS, NATS_RECONSIDERED_PER_TURN_MAX
from polymq.protocols.nats import problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.core.access import LiveRules
    from polymq.core.interest.targets import Entry, Target
    from polymq.gateways.contract import Peer
    from polymq.gateways.nats.house import NatsLogins
    from polymq.protocols.nats.info import ClientConnect
    from polymq.wire.tls import TlsLayer

__all__ = ["Revision", "judge"]


def judge(
    logins: NatsLogins, principal: Principal, connect: ClientConnect, nonce: str, peer: Peer, tls: TlsLayer | None
) -> Principal | bytes:
    """Say who `principal` is from here on, by what it said when it came; or with which words it has to go, which may be none.

    Where its password would have to be looked at again, which takes long, it has to come again: the hash is another one.
    """
    found = logins.begin(connect, nonce, peer, tls)
    if isinstance(found, Principal):
        return b"" if found.namespace != principal.namespace else found
    return b"" if found is UNKNOWN else problems.AUTH_VIOLATION


class Revision:
    """A client's subscriptions, looked at one part after the other by rules that are new.

    Until all have been seen, the target hears by none of them what the rules do not allow; no subscription may be made.
    """

    def __init__(self, rules: LiveRules | None, target: Target, subscriptions: Mapping[bytes, Entry]) -> None:
        self._rules = rules
        self._target = target
        self._subscriptions = subscriptions
        self._left = iter(() if rules is None else tuple(subscriptions))
        self._restricted = False
        self.done = False
        target.restrict(None if rules is None else rules.may_hear)

    def part(self) -> list[tuple[bytes, Entry]]:
        """Look at some more; those that are lost, by the client's names for them."""
        rules, lost = self._rules, []
        left = NATS_RECONSIDERED_PER_TURN_MAX
        for sid in self._left:
            entry = self._subscriptions.get(sid)
            if entry is None:
                continue  # it had a maximum, and has come to that
            assert rules is not None  # or none would be left to be looked at
            if not rules.may_listen(entry.pattern, entry.queue):
                lost.append((sid, entry))
                left -= NATS_RECONSIDERED_PER_LOSS
            elif not self._restricted:
                self._restricted = not rules.may_hear_all(entry.pattern, entry.queue)
            left -= 1
            if left <= 0:
                return lost
        self.done = True
        if not self._restricted:
            self._target.restrict(None)
        return lost
