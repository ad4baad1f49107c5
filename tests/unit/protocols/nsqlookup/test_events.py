from __future__ import annotations

import dataclasses

import pytest

from polymq.protocols.nsqlookup.events import Register


def test_events_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Register("t").topic = "u"  # type: ignore[misc]  # that it cannot be done is the point
