from __future__ import annotations

from polymq.protocols.phpmq.events import Consume, ForeignId, Remove, Requeue


def test_what_is_rare_cannot_be_changed() -> None:
    for event in (Consume(b"q", 1), Requeue(b"q", 1, 2), Remove(b"q", 1), ForeignId(b"q")):
        assert event == type(event)(*(getattr(event, name) for name in event.__slots__))
        try:
            event.queue = b"r"  # type: ignore[misc]
        except AttributeError:
            continue
        raise AssertionError(event)
