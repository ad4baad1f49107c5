from __future__ import annotations

import pytest

from polymq.wire.go_quote import quote


@pytest.mark.parametrize(
    ("raw", "quoted"),
    [
        (b"", b'""'),
        (b"a$b", b'"a$b"'),
        (b'a"b\\', b'"a\\"b\\\\"'),
        (b"\a\b\f\n\r\t\v", b'"\\a\\b\\f\\n\\r\\t\\v"'),
        (b"\x00\x1f\x7f", b'"\\x00\\x1f\\x7f"'),
        (b"\xff\xc3(", b'"\\xff\\xc3("'),
        ("é世😀".encode(), '"é世😀"'.encode()),
        ("\u0080\u00a0\u200b\ufeff".encode(), b'"\\u0080\\u00a0\\u200b\\ufeff"'),
        ("\ufffd".encode(), '"\ufffd"'.encode()),
        ("\U000e0001".encode(), b'"\\U000e0001"'),
        # A surrogate in UTF-8 is not UTF-8.
        (b"\xed\xa0\x80", b'"\\xed\\xa0\\x80"'),
    ],
)
def test_names_are_quoted_as_go_quotes_them(raw: bytes, quoted: bytes) -> None:
    assert quote(raw) == quoted
