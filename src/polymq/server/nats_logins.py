"""Who may come in to NATS: from nats-server's settings to what the gateway asks."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from polymq.core.access import ANONYMOUS, Principal
from polymq.core.live_rules import AnswerRule, NameRule, PatternRules
from polymq.gateways.nats.account_names import namespace_of
from polymq.gateways.nats.logins import NatsUser, OpenDoor, UserLogins
from polymq.server.nats_settings import PermissionSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.gateways.nats.house import NatsLogins
    from polymq.server.nats_settings import NatsServerSettings, SubjectRule, UserSettings

__all__ = ["make_nats_logins", "make_rules", "remake_nats_logins"]

_DIGEST_KEY_SIZE_BYTES: Final = 32


def remake_nats_logins(settings: NatsServerSettings, before: NatsServerSettings, logins: NatsLogins) -> NatsLogins:
    """Make what settings ask for that have changed: whoever may do the same as before is the same, and is known again."""
    if not isinstance(logins, UserLogins):
        return make_nats_logins(settings)
    principals = logins.principals()
    known = {replace(user, password=""): principals[user.name or user.nkey] for user in before.users}
    made = make_nats_logins(settings, known)
    if isinstance(made, UserLogins):
        made.inherit(logins)
    return made


def make_nats_logins(settings: NatsServerSettings, known: Mapping[UserSettings, Principal] | None = None) -> NatsLogins:
    """Make what the settings ask for. `known`: who somebody is, whatever his password."""
    said = settings.authorization
    single: NatsUser | None = None
    if said.token:
        single = NatsUser(Principal("token"), secret=said.token)
    elif said.user:
        single = NatsUser(Principal(said.user), name=said.user, secret=said.password)
    elif not settings.users:
        return OpenDoor()
    users = [_user(each, known or {}) for each in settings.users]
    nobody = next((user.principal for user in users if settings.no_auth_user and settings.no_auth_user in (user.name, user.nkey)), None)
    told = nobody is None
    if nobody is None and _has_only_system(settings):
        # As with nats-server: where nobody but the system's users is named, everybody else is in as ever.
        nobody = ANONYMOUS
    return UserLogins(
        users,
        digest_key=secrets.token_bytes(_DIGEST_KEY_SIZE_BYTES),
        single=single,
        nobody=nobody,
        told=told,
        timeout_ns=said.timeout_ns,
    )


def make_rules(said: PermissionSettings | None) -> PatternRules | None:
    """Make what a user may do; None is everything."""
    if said is None or said == PermissionSettings():
        return None
    return PatternRules(
        publish_allow=_names(said.publish.allow),
        publish_deny=_names(said.publish.deny) or (),
        listen_allow=_names(said.subscribe.allow),
        listen_deny=_names(said.subscribe.deny) or (),
        answers=None if said.responses is None else AnswerRule(said.responses.messages_max, said.responses.expires_ns),
    )


def _names(rules: tuple[SubjectRule, ...] | None) -> list[NameRule] | None:
    return None if rules is None else [NameRule(rule.subject.encode(), rule.queue.encode()) for rule in rules]


def _user(settings: UserSettings, known: Mapping[UserSettings, Principal]) -> NatsUser:
    principal = known.get(replace(settings, password="")) or Principal(
        settings.name or settings.nkey, namespace_of(settings.account), live=make_rules(settings.permissions)
    )
    return NatsUser(principal, settings.name, settings.password, settings.nkey)


def _has_only_system(settings: NatsServerSettings) -> bool:
    """Say whether the system's account is the only one that is named."""
    said = settings.authorization
    accounts = {each.name for each in settings.accounts} | {each.account for each in settings.users}
    return accounts == {settings.system_account} and not (said.user or said.token)
