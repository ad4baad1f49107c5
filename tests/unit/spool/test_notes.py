"""Notes: what a record keeps beside body, time and headers."""

from __future__ import annotations

import pytest

from polymq.errors import RemoteProtocolError
from polymq.spool.notes import encode_note, read_note


def test_what_is_written_is_read() -> None:
    assert read_note(encode_note(b"t")) == (0, b"t", b"", b"", None)
    whole = encode_note(b"topic", b"id", attempts=3, reply_to=b"_INBOX.1", expires_at_us=-5)
    assert read_note(whole) == (3, b"topic", b"id", b"_INBOX.1", -5)
    assert read_note(encode_note(b"", attempts=1 << 20))[0] == 0xFFFF
    assert read_note(b"short") == (0, b"", b"", b"", None)


def test_names_have_a_limit() -> None:
    assert read_note(encode_note(b"t" * 65_535))[1] == b"t" * 65_535
    with pytest.raises(RemoteProtocolError, match="65,535"):
        encode_note(b"t", b"i" * 65_536)
