"""Events say what their flags mean."""

from __future__ import annotations

import pytest

from polymq.protocols.rocketmq import events
from polymq.protocols.rocketmq.events import COLUMNS, Request, Sends


@pytest.mark.parametrize(("flag", "response", "oneway"), [(0, False, False), (1, True, False), (2, False, True), (3, True, True)])
def test_flags(flag: int, *, response: bool, oneway: bool) -> None:
    request = Request(10, 1, flag, {})
    assert (request.response, request.oneway) == (response, oneway)


def test_rows_are_read_by_their_columns() -> None:
    names = ("OPAQUE", "FLAGS", "TOPIC", "QUEUE_ID", "BODY_AT", "BODY_SIZE", "EXTRA_AT", "EXTRA_SIZE")
    assert [getattr(events, name) for name in names] == list(range(COLUMNS))
    rows = memoryview(b"".join([number.to_bytes(4, "little") for number in (0,) * COLUMNS + (9, 1, 1, 3, 1, 4, 2, 2)])).cast("i")
    sends = Sends(memoryview(b"-body"), rows, memoryview(b"--xy"), ["T", "U"], first=1, count=1, size_bytes=23)
    assert (sends.topic(1), sends.number(1, events.QUEUE_ID), sends.body(1), sends.extra(1)) == ("U", 3, b"body", b"xy")
