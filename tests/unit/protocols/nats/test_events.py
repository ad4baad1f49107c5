from __future__ import annotations

from typing import Any

import pytest

from polymq.protocols.nats import events


def test_secrets_do_not_show() -> None:
    assert "hidden" not in repr(events.Connect(b'{"pass":"hidden"}'))


def test_what_ends_a_connection_cannot_be_changed() -> None:
    event: Any = events.PeerError(b"x")
    with pytest.raises(AttributeError):
        event.text = b"y"
