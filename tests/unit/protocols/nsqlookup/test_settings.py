from __future__ import annotations

from polymq.config_sections import NsqSettings
from polymq.protocols.nsqlookup.settings import LookupSettings


def test_the_defaults_are_nsqlookupds_in_both_places() -> None:
    section, settings = NsqSettings(), LookupSettings()
    assert settings.inactive_producer_timeout_ns == section.lookup_inactive_producer_timeout_ns == 300_000_000_000
    assert settings.tombstone_lifetime_ns == section.lookup_tombstone_lifetime_ns == 45_000_000_000
