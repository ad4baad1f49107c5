"""Imports of nats-server's settings, with what their exports say."""

from __future__ import annotations

from polymq.gateways.nats.imports import ImportRule
from polymq.server.nats_imports import import_rules
from polymq.server.nats_settings import AccountSettings, ExportSettings, ImportSettings, NatsServerSettings

SECOND_NS = 1_000_000_000


def test_nothing_is_imported_unless_it_is_said() -> None:
    assert import_rules(NatsServerSettings(accounts=(AccountSettings("A", (ExportSettings("stream", ">"),)),))) == []


def test_an_import_has_what_its_export_says() -> None:
    exports = (
        ExportSettings("stream", "s.>"),
        ExportSettings("service", "q.*", accounts=("C",), response_type="stream"),
        ExportSettings("service", "q.>", response_type="chunked", response_threshold_ns=7 * SECOND_NS),
    )
    imports = (ImportSettings("stream", "A", "s.x.*", "mine.$1"), ImportSettings("service", "A", "q.x", "ask"))
    settings = NatsServerSettings(accounts=(AccountSettings("A", exports), AccountSettings("B", imports=imports)))
    assert import_rules(settings) == [
        ImportRule(False, "A", b"s.x.*", "B", b"mine.$1"),
        ImportRule(True, "A", b"q.x", "B", b"ask", "chunked", 7 * SECOND_NS),
    ]
