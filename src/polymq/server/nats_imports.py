"""Imports between accounts: from nats-server's settings to what the gateway does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.gateways.nats.account_names import namespace_of
from polymq.gateways.nats.imports import ImportRule
from polymq.server.nats_subjects import covers

if TYPE_CHECKING:
    from polymq.server.nats_settings import ExportSettings, ImportSettings, NatsServerSettings

__all__ = ["import_rules"]


def import_rules(settings: NatsServerSettings) -> list[ImportRule]:
    """Say what each account has of which other. That there are such exports has been looked at."""
    exports = {account.name: account.exports for account in settings.accounts}
    return [_rule(account.name, made, exports[made.account]) for account in settings.accounts for made in account.imports]


def _rule(importer: str, made: ImportSettings, exports: tuple[ExportSettings, ...]) -> ImportRule:
    export = next(
        each
        for each in exports
        if each.kind == made.kind and covers(each.subject, made.subject) and (each.accounts is None or importer in each.accounts)
    )
    return ImportRule(
        made.kind == "service",
        namespace_of(made.account),
        made.subject.encode(),
        namespace_of(importer),
        made.to.encode(),
        export.response_type,
        export.response_threshold_ns,
    )
