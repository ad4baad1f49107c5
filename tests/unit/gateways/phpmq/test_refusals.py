from __future__ import annotations

from polymq.errors import RefusalCode
from polymq.gateways.phpmq.refusals import REASONS


def test_every_refusal_is_counted_as_something() -> None:
    assert set(REASONS) == set(RefusalCode)
    assert all(reason.replace("-", "").islower() for reason in REASONS.values())
