from __future__ import annotations

from polymq.protocols.nsqlookup.encode import OK, response


def test_a_size_and_the_data_without_a_type() -> None:
    assert OK == b"\0\0\0\2OK"
    assert response(b"") == b"\0\0\0\0"
    assert response(b"x" * 300) == b"\0\0\1\x2c" + b"x" * 300
