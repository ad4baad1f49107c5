from __future__ import annotations

from typing import get_args

import pytest

from polymq.protocols.nsq import events


def test_a_secret_is_not_shown() -> None:
    assert "hunter2" not in repr(events.Auth(b"hunter2"))
    assert events.Auth(b"hunter2").secret == b"hunter2"


@pytest.mark.parametrize("kind", get_args(events.Event))
def test_events_are_slotted_and_listed(kind: type) -> None:
    assert "__dict__" not in dir(kind)
    assert kind.__name__ in events.__all__
